"""Every verdict names its reason, and lists what the test runs show."""

import pytest

from patchwright.resolver.domain import VerdictKind
from patchwright.resolver.proof.evidence import Evidence, PatchTests, TestEdits
from patchwright.resolver.proof.run_comparison import get_test_file
from patchwright.resolver.proof.verdict import decide_verdict
from tests.resolver.proof.test_verdict import ABSENT, HUNG, PATCH, brought, named, run

CONFIG = TestEdits(reverted_test_config=("conftest.py", "tox.ini", "setup.cfg"))
NOTHING = TestEdits()
BROUGHT_FAILURE = PatchTests(frozenset(), False, run(exit_code=1))
FLAKY = run(exit_code=1).model_copy(update={"flaky": ("c",)})


def exits(before: int, after: int, **more: object) -> Evidence:
    """Runs of a command that reports no individual tests."""
    return Evidence(run(exit_code=before), run(exit_code=after), **more)  # type: ignore[arg-type]


def brought_to_command(before: int, before_again: int | None) -> PatchTests:
    """Runs of the patch's tests, which pass, with a command that reports no individual tests."""
    again = None if before_again is None else run(exit_code=before_again)
    return PatchTests(frozenset({"t.js"}), False, run(), before=run(exit_code=before), before_rerun=again)


@pytest.mark.parametrize(
    ("kind", "evidence", "edits", "reason"),
    [
        ("untested", None, NOTHING, "No tests were found in the repository, and none are configured."),
        ("regressed", Evidence(run(".."), run("FF")), NOTHING,
         "2 tests passed without the patch and failed with it, twice."),
        ("unproven", Evidence(run("."), run("F"), full_patch=run(".")), NOTHING,
         "No test shows the fix, and the patch changes what 1 existing test expects: `a`."),
        ("unproven", Evidence(run(".."), run(". ")), NOTHING,
         "No test shows the fix, and 1 test that passed before is not run now: `b`."),
        ("unproven", Evidence(run(".."), run("FF"), full_patch=run("..")), NOTHING,
         "No test shows the fix, and the patch changes what 2 existing tests expect: `a` and `b`."),
        ("conditional", Evidence(run("...F"), run("ss .")), NOTHING,
         "1 test failed without the patch and passed with it, and the patch also removes or skips 3 existing tests."),
        ("unproven", Evidence(run(".."), run("s.")), NOTHING,
         "No test shows the fix, and 1 test that passed before is skipped now: `a`."),
        ("unproven", Evidence(run("."), run("."), patch_tests=brought(".F")), NOTHING,
         "1 test from the patch failed with it, twice: `b`."),
        ("unproven", Evidence(run("."), run("."), patch_tests=PatchTests(frozenset({"t.py"}), True, HUNG)), NOTHING,
         "The tests from the patch could not be run: the tests did not finish within 9 s and were killed."),
        ("fixed", Evidence(run("F"), run(".")), NOTHING,
         "1 test failed without the patch and passed with it; none broke."),
        ("unproven", Evidence(run("."), run("."), changes_code=False), CONFIG,
         "The tests were run without the change to conftest.py and 2 more, which can affect how tests run."),
        ("unproven", Evidence(run("."), run("."), changes_code=False), NOTHING,
         "The patch changes only tests, so no test can show that the code is fixed."),
        ("unproven", Evidence(run("."), run("."), patch_tests=brought("..", "..")), CONFIG,
         "The tests of this change also pass without the rest of it, so they do not show the fix."),
        ("unproven", Evidence(run("F"), run("F")), NOTHING,
         "All tests fail without the patch and with it: they may need something that the sandbox lacks, such as a "
         "network or a service."),
        *(
            ("unproven", Evidence(run(before), run(after), patch_tests=theirs), NOTHING,
             "No test fails without the patch and passes with it, so no test shows the fix.")
            for before, after, theirs in (
                (".", ".", None), (".F", ".F", None), ("s", "s", None), ("Fs", "F.", None),
                (".", ".", brought("..", ".s")), ("..", "..", brought("..", "..")),
            )
        ),
        ("unproven", exits(0, 1, after_rerun=run()), NOTHING,
         "The test command failed once and passed once with the patch: it is flaky."),
        ("unproven", exits(0, 1, full_patch=run()), NOTHING,
         "The test command fails with the old tests on the patch's code, and passes with the patch's tests."),
        ("regressed", exits(0, 1, full_patch=run(exit_code=1)), NOTHING,
         "The test command passed without the patch and failed with it, twice."),
        ("unproven", Evidence(FLAKY, run()), NOTHING,
         "The test command failed once and passed once without the patch: it is flaky."),
        ("unproven", exits(1, 0, patch_tests=BROUGHT_FAILURE), NOTHING,
         "The test command failed with the tests from the patch."),
        ("fixed", exits(1, 0), NOTHING, "As a whole, the test command failed without the patch and passed with it."),
        ("fixed", exits(0, 0, patch_tests=brought_to_command(1, 1)), NOTHING,
         "With the patch's tests, the test command failed without the patch and passed with it."),
        ("unproven", exits(0, 0, changes_code=False), NOTHING,
         "The patch changes only tests, so no test can show that the code is fixed."),
        ("unproven", exits(1, 1, changes_code=False), TestEdits(reverted_test_config=("tox.ini", "setup.cfg")),
         "The tests were run without the change to tox.ini and 1 more, which can affect how tests run."),
        ("unproven", exits(0, 0), NOTHING,
         "The test command passed without the patch and with it, and reports no individual tests."),
        ("unproven", exits(1, 1), NOTHING,
         "The test command failed without the patch and with it, and reports no individual tests."),
        ("unproven", Evidence(run("."), ABSENT, after_rerun=ABSENT, full_patch=run(".")), NOTHING,
         "With the patch, only its own tests ran, not the old tests: pytest is not installed."),
        ("regressed", Evidence(run("."), ABSENT, after_rerun=ABSENT, full_patch=ABSENT), NOTHING,
         "The tests ran without the patch, but two attempts to run them with it failed: pytest is not installed."),
    ],
)  # fmt: skip
def test_every_verdict_names_its_reason(
    kind: VerdictKind, evidence: Evidence | None, edits: TestEdits, reason: str
) -> None:
    verdict = decide_verdict(PATCH, evidence, edits)
    assert (verdict.kind, verdict.reason) == (kind, reason)


def test_a_run_without_individual_results_on_one_side_is_compared_by_its_tests() -> None:
    assert decide_verdict(PATCH, Evidence(run(), run("."))).kind == "unproven"
    assert decide_verdict(PATCH, Evidence(run("."), run(exit_code=1))).missing == named("a")


def test_a_partial_run_misses_no_tests_and_says_that_it_is_partial() -> None:
    verdict = decide_verdict(PATCH, Evidence(run(".F"), run(" ."), partial=True))
    assert (verdict.kind, verdict.missing, verdict.partial) == ("fixed", (), True)
    assert not decide_verdict(PATCH, Evidence(run(".F"), run(" ."))).partial


@pytest.mark.parametrize(("before", "after", "again"), [(".F", "F.", "s."), ("F.", "..", "s.")])
def test_a_test_that_is_skipped_in_its_second_run_is_flaky(before: str, after: str, again: str) -> None:
    verdict = decide_verdict(PATCH, Evidence(run(before), run(after), after_rerun=run(again)))
    assert verdict.flaky == named("a") and not {*verdict.fail_to_pass, *verdict.pass_to_fail} & {*named("a")}


def test_flaky_tests_of_both_versions_are_listed() -> None:
    theirs = brought("...FF.", ".....F", after_rerun="...s..", before_rerun="......")
    verdict = decide_verdict(
        PATCH, Evidence(run("..F"), run("..."), before_rerun=run("..."), patch_tests=theirs)
    )
    assert verdict.flaky == named("c", "d", "e", "f")
    assert (verdict.kind, verdict.fail_to_pass, verdict.patch_tests_failing) == ("unproven", (), ())


def test_the_patchs_tests_that_failed_or_were_flaky_at_base_do_not_count_against_it() -> None:
    before = run("F..").model_copy(update={"flaky": named("b")})
    verdict = decide_verdict(PATCH, Evidence(before, before, patch_tests=brought("FFF")))
    assert verdict.patch_tests_failing == named("c")


def test_without_a_run_of_the_patchs_tests_no_test_is_new_or_missing() -> None:
    for theirs in (
        PatchTests(frozenset({"t.py"}), True, HUNG, before=run("F")),
        PatchTests(frozenset({"t.py"}), True, run(".", problem=HUNG.problem), before=run("F")),
        PatchTests(frozenset({"t.py"}), True, run(".."), before=HUNG),
    ):
        verdict = decide_verdict(PATCH, Evidence(run(" ."), run(" ."), patch_tests=theirs))
        assert (verdict.new_tests_at_base, verdict.missing) == ({}, ())


@pytest.mark.parametrize(
    ("before", "after", "theirs", "shown", "output"),
    [
        ("..", "..", ".F", ".F", "theirs"),
        ("..", "F.", ".F", ".F", "own"),  # The broken test of the repository is what matters.
        ("..", "..", "..", "..", "own"),
        ("..", ".. ", "...", "...", "own"),
    ],
)
def test_the_result_of_a_changed_test_replaces_the_old_one(
    before: str, after: str, theirs: str, shown: str, output: str
) -> None:
    own, changed = (
        run(signs).model_copy(update={"output": name}) for signs, name in ((after, "own"), (theirs, "theirs"))
    )
    verdict = decide_verdict(
        PATCH, Evidence(run(before), own, patch_tests=PatchTests(frozenset({"t.py"}), True, changed))
    )
    assert verdict.after and (verdict.after.results, verdict.after.output) == (run(shown).results, output)
    elsewhere = PatchTests(
        frozenset({"u.py"}), True, changed.model_copy(update={"results": {"u.py::x": "passed"}})
    )
    both = decide_verdict(PATCH, Evidence(run(before), own, patch_tests=elsewhere)).after
    assert both and both.results == {**own.results, "u.py::x": "passed"}


def test_a_failed_run_stays_as_it_is_beside_the_patchs_tests() -> None:
    for own, theirs in ((ABSENT, run(".")), (run(".", exit_code=1), HUNG), (run(exit_code=1), run("."))):
        evidence = Evidence(run("."), own, patch_tests=PatchTests(frozenset({"t.py"}), True, theirs))
        assert decide_verdict(PATCH, evidence).after == own


def test_a_test_is_in_the_file_before_its_first_colons() -> None:
    assert get_test_file("t.py::Class::test[a::b]") == "t.py"
