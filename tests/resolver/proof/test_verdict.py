"""The verdict depends on test runs alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchwright.resolver.domain import Patch, TestRun, TestStatus, Verdict
from patchwright.resolver.proof.evidence import Evidence, PatchTests, TestEdits
from patchwright.resolver.proof.verdict import decide_verdict
from patchwright.resolver.proof.verdict_merge import merge_verdicts

PATCH = Patch(base_sha="0" * 40, diff=b"diff --git a/a b/a\n")
SIGNS: dict[str, TestStatus] = {".": "passed", "F": "failed", "E": "error", "s": "skipped"}


def run(
    signs: str = "", *, exit_code: int | None = 0, problem: str | None = None, names: str = "abcdef"
) -> TestRun:
    """Tests `t.py::a`, `t.py::b`, ... with these results; a space is a missing test."""
    results = {f"t.py::{name}": SIGNS[sign] for name, sign in zip(names, signs, strict=False) if sign != " "}
    return TestRun(command="c", results=results, exit_code=exit_code, seconds=1.0, output="", problem=problem)


def named(*names: str) -> tuple[str, ...]:
    return tuple(f"t.py::{name}" for name in names)


@pytest.mark.parametrize(
    ("before", "after", "again", "kind", "passing", "failing", "flaky", "missing"),
    [
        (".F", "..", None, "fixed", "b", "", "", ""),
        (".E", "..", None, "fixed", "b", "", "", ""),
        ("..", "..", None, "unproven", "", "", "", ""),
        ("..", "...", None, "unproven", "", "", "", ""),  # A new test that was not run at base.
        (".s", "..", None, "unproven", "", "", "", ""),
        ("FF", "FF", None, "unproven", "", "", "", ""),
        ("FF", "..", None, "fixed", "ab", "", "", ""),
        (".F", "F.", "F", "regressed", "b", "a", "", ""),
        (".F", "E.", "E", "regressed", "b", "a", "", ""),
        (".F", "F.", ".", "fixed", "b", "", "a", ""),
        (".F", "F.", " ", "regressed", "b", "a", "", ""),  # Nothing shows that it passes.
        ("..F", "FF.", "F.", "regressed", "c", "a", "b", ""),
        (".F", " .", None, "conditional", "b", "", "", "a"),
        (".F", "s.", None, "conditional", "b", "", "", "a"),
        ("..", "s.", None, "unproven", "", "", "", "a"),
        ("..F", "F .", "F", "regressed", "c", "a", "", "b"),
    ],
)
def test_the_results_of_individual_tests_decide_the_verdict(
    before, after, again, kind, passing, failing, flaky, missing
) -> None:
    first, second = run(before), run(after)
    verdict = decide_verdict(
        PATCH, Evidence(first, second, after_rerun=None if again is None else run(again))
    )
    assert bool(verdict.conditions) == bool(missing)
    assert verdict.model_copy(update={"reason": "", "conditions": ()}) == Verdict(
        kind=kind,
        fail_to_pass=named(*passing),
        pass_to_fail=named(*failing),
        flaky=named(*flaky),
        missing=named(*missing),
        before=first,
        after=second,
    )
    assert verdict.reason.endswith(".") and verdict.reason.count(".") == 1


def test_a_file_that_can_no_longer_be_collected_fails_with_all_its_tests() -> None:
    after = run().model_copy(update={"results": {"t.py": "error"}})
    verdict = decide_verdict(PATCH, Evidence(run("..F"), after, after_rerun=after))
    assert (verdict.kind, verdict.pass_to_fail) == ("regressed", named("a", "b"))


def test_a_file_that_can_be_collected_again_fixes_all_its_tests() -> None:
    before = run().model_copy(update={"results": {"t.py": "error"}})
    verdict = decide_verdict(PATCH, Evidence(before, run("..")))
    assert (verdict.kind, verdict.fail_to_pass) == ("fixed", named("a", "b"))


def brought(after: str, before: str | None = None, **more: object) -> PatchTests:
    """The patch's own tests, all in t.py, with the patch and on the code at base."""
    runs = {key: value if value is None else run(str(value)) for key, value in more.items()}
    at_base = None if before is None else run(before)
    return PatchTests(frozenset({"t.py"}), True, run(after), before=at_base, **runs)


@pytest.mark.parametrize(
    ("theirs", "kind", "passing", "still", "flaky", "missing"),
    [
        (brought("..", ".F"), "fixed", "b", "", "", ""),
        (brought("..", ".E"), "fixed", "b", "", "", ""),
        (brought("..", ".s"), "unproven", "", "", "", ""),  # An error that does not count.
        (brought("..", ".."), "unproven", "", "", "", ""),
        (brought(".F"), "unproven", "", "b", "", ""),
        (brought(".F", after_rerun=".F"), "unproven", "", "b", "", ""),
        (brought(".F", after_rerun=".."), "unproven", "", "", "b", ""),
        (brought("..", ".F", before_rerun=".F"), "fixed", "b", "", "", ""),
        (brought("..", ".F", before_rerun=".."), "unproven", "", "", "b", ""),
        (brought("..F", ".FF"), "unproven", "b", "c", "", ""),
        (brought(" .", " F"), "conditional", "b", "", "", "a"),
        (brought("s.", ".F"), "conditional", "b", "", "", "a"),
    ],
)
def test_the_patchs_tests_are_compared_with_and_without_the_fix(
    theirs, kind, passing, still, flaky, missing
) -> None:
    verdict = decide_verdict(PATCH, Evidence(run("."), run("."), patch_tests=theirs))
    found = verdict.fail_to_pass, verdict.patch_tests_failing, verdict.flaky, verdict.missing
    assert (verdict.kind, *found) == (
        kind,
        *(named(*names) for names in (passing, still, flaky, missing)),
    )


@pytest.mark.parametrize(
    ("base", "theirs", "expected"),
    [
        (".", brought("...", ".F."), {"b": "failed", "c": "passed"}),  # The first one is unchanged.
        (".F", brought("..", "FE"), {"a": "failed"}),  # The second one failed anyway.
        (".", brought("...", ".sF"), {"b": "skipped", "c": "failed"}),
        (".", brought(".."), {}),
    ],
)
def test_new_and_changed_tests_are_listed_with_their_results_at_base(base, theirs, expected) -> None:
    verdict = decide_verdict(PATCH, Evidence(run(base), run(base), patch_tests=theirs))
    assert verdict.new_tests_at_base == {f"t.py::{name}": result for name, result in expected.items()}
    assert (
        merge_verdicts((verdict, decide_verdict(PATCH, None))).new_tests_at_base == verdict.new_tests_at_base
    )


def test_the_patchs_tests_cannot_fix_the_repositorys_own() -> None:
    together = PatchTests(frozenset({"new.py"}), False, run(".."), before=run(".F"))
    verdict = decide_verdict(PATCH, Evidence(run(".F"), run(".F"), patch_tests=together))
    assert (verdict.kind, verdict.fail_to_pass) == ("unproven", ())
    assert verdict.after and verdict.after.results == run(".F").results
    changed = PatchTests(frozenset({"t.py"}), False, run(".."), before=run(".F"))
    rewritten = decide_verdict(PATCH, Evidence(run(".F"), run(".F"), patch_tests=changed))
    assert (rewritten.kind, rewritten.fail_to_pass) == ("unproven", ())
    fixes = decide_verdict(PATCH, Evidence(run(".F"), run(".."), patch_tests=together))
    assert (fixes.kind, fixes.fail_to_pass) == ("fixed", named("b"))


def test_a_modified_test_that_fails_in_its_old_version_is_a_condition() -> None:
    evidence = Evidence(run(".F"), run("F."), after_rerun=run("F."))
    for full_patch in (run(".."), run(" .")):  # changed or deleted
        verdict = decide_verdict(PATCH, replace(evidence, full_patch=full_patch))
        assert (verdict.kind, verdict.modified_tests_failing) == ("conditional", named("a"))
        assert verdict.pass_to_fail == ()
    # It fails, or it may not have run.
    for full_patch in (run("F."), run("  "), run("..", problem="It crashed.")):
        verdict = decide_verdict(PATCH, replace(evidence, full_patch=full_patch))
        assert (verdict.kind, verdict.pass_to_fail) == ("regressed", named("a"))


@pytest.mark.parametrize(
    ("before", "after", "again", "before_again"),
    [(".F", "F.", "F.", "F."), (".F", "..", "..", ".."), (".F", "..", ".F", ".F")],
)
def test_a_result_that_a_second_run_contradicts_is_flaky(before, after, again, before_again) -> None:
    evidence = Evidence(run(before), run(after), after_rerun=run(again), before_rerun=run(before_again))
    verdict = decide_verdict(PATCH, evidence)
    assert verdict.kind == "unproven"
    assert verdict.flaky and not verdict.fail_to_pass and not verdict.pass_to_fail


def test_tests_that_are_flaky_at_base_do_not_count() -> None:
    before = run("..F").model_copy(update={"flaky": named("a", "c")})
    verdict = decide_verdict(PATCH, Evidence(before, run("F..")))
    assert (verdict.kind, verdict.fail_to_pass, verdict.pass_to_fail) == ("unproven", (), ())
    assert verdict.flaky == named("a", "c")


@pytest.mark.parametrize(
    ("touched", "text"),
    [
        (TestEdits(weakened_tests=("t.py has 1 check fewer.",)), "weakens the tests in 1 file."),
        (TestEdits(deleted_test_files=("t.py", "u.py")), "deletes 2 test files."),
        (TestEdits(reverted_test_config=("conftest.py",)), "changes the test configuration."),
    ],
)
def test_a_fix_that_weakens_tests_is_conditional(touched, text) -> None:
    verdict = decide_verdict(PATCH, Evidence(run(".F"), run("..")), touched)
    assert (verdict.kind, verdict.fail_to_pass) == ("conditional", named("b"))
    assert verdict.reason == f"1 test failed without the patch and passed with it, and the patch also {text}"
    broken = decide_verdict(PATCH, Evidence(run(".F"), run("F.")), touched)
    assert broken.kind == "regressed" and broken.conditions == verdict.conditions
    unproven = decide_verdict(PATCH, Evidence(run(".F"), run(".F")), touched)
    assert unproven.kind == "unproven" and unproven.conditions == verdict.conditions


def test_several_suites_are_as_bad_as_the_worst_and_one_can_show_the_fix() -> None:
    fixed, calm = (
        decide_verdict(PATCH, Evidence(run(".F"), run(".."))),
        decide_verdict(PATCH, Evidence(run("."), run("."))),
    )
    regressed = decide_verdict(PATCH, Evidence(run(".", names="x"), run("F", names="x")))
    absent = decide_verdict(PATCH, Evidence(ABSENT, ABSENT))
    assert merge_verdicts((fixed,)) == fixed
    both = merge_verdicts((calm, fixed))
    assert (both.kind, both.fail_to_pass, both.reason) == ("fixed", named("b"), fixed.reason)
    assert both.before and both.before.command == "c; c"
    assert (merge_verdicts((fixed, regressed)).kind, merge_verdicts((fixed, regressed)).pass_to_fail) == (
        "regressed",
        named("x"),
    )
    kinds = [merge_verdicts((other, absent)).kind for other in (fixed, absent)]
    assert kinds == ["unproven", "untested"]
    assert ABSENT.problem and ABSENT.problem in merge_verdicts((fixed, absent)).reason
    assert absent.reason == f"The tests could not be run, with the patch or without it: {ABSENT.problem}."


ABSENT = run(exit_code=1, problem="pytest is not installed")
HUNG = run(exit_code=None, problem="the tests did not finish within 9 s and were killed")
EMPTY = run(exit_code=5, problem="pytest found no tests")


@pytest.mark.parametrize(
    ("before", "after", "again", "kind"),
    [
        (ABSENT, ABSENT, ABSENT, "untested"),
        (ABSENT, run(".."), None, "unproven"),
        (run(".."), HUNG, HUNG, "regressed"),
        (run(".."), HUNG, run(".."), "unproven"),
        (run(".."), EMPTY, EMPTY, "unproven"),
        (None, None, None, "untested"),
    ],
)
def test_a_run_with_a_problem_proves_nothing(before, after, again, kind) -> None:
    verdict = decide_verdict(PATCH, before and Evidence(before, after, after_rerun=again))
    assert verdict.kind == kind
    if before and before.problem:  # a new test cannot stand in for the repository's tests
        assert decide_verdict(PATCH, Evidence(before, after, patch_tests=brought("..", ".F"))).kind == kind
    for problem in (before and before.problem, before and not before.problem and after.problem):
        assert not problem or problem in verdict.reason


@pytest.mark.parametrize(
    ("before", "after", "again", "theirs", "kind"),
    [
        (1, 0, None, None, "fixed"),
        (1, 0, None, 0, "fixed"),
        (1, 0, None, 1, "unproven"),  # It fails with the patch's own tests.
        (0, 1, 1, None, "regressed"),
        (0, 1, 0, None, "unproven"),
        (0, 0, None, 0, "unproven"),
        (1, 2, 2, None, "unproven"),
    ],
)
def test_without_a_report_exit_codes_decide(before, after, again, theirs, kind) -> None:
    alone = None if theirs is None else PatchTests(frozenset(), False, run(exit_code=theirs))
    second = None if again is None else run(exit_code=again)
    evidence = Evidence(run(exit_code=before), run(exit_code=after), after_rerun=second, patch_tests=alone)
    assert decide_verdict(PATCH, evidence).kind == kind


@pytest.mark.parametrize(
    ("before", "again", "after", "kind"),
    [
        (1, 1, 0, "fixed"),
        (1, 0, 0, "unproven"),
        (1, None, 0, "unproven"),
        (0, None, 0, "unproven"),
        (1, 1, 1, "unproven"),
    ],
)
def test_without_a_report_the_patchs_tests_have_to_fail_twice_at_base(before, again, after, kind) -> None:
    second = None if again is None else run(exit_code=again)
    tests = PatchTests(
        frozenset(), False, run(exit_code=after), before=run(exit_code=before), before_rerun=second
    )
    assert decide_verdict(PATCH, Evidence(run(), run(), patch_tests=tests)).kind == kind
    still_failing = run(exit_code=1)
    assert decide_verdict(PATCH, Evidence(still_failing, still_failing, patch_tests=tests)).kind == "unproven"


def test_a_command_that_is_flaky_at_base_shows_no_fix() -> None:
    before = run(exit_code=1).model_copy(update={"flaky": ("c",)})
    assert decide_verdict(PATCH, Evidence(before, run())).kind == "unproven"


def test_an_empty_patch_is_empty_whatever_the_tests_say() -> None:
    nothing = Patch(base_sha="0" * 40, diff=b"\n")
    verdict = decide_verdict(nothing, Evidence(run("F"), run(".")))
    assert (verdict.kind, verdict.reason) == ("empty", "The run ended without a change to the code.")


signs = st.text(alphabet=".FEs ", min_size=6, max_size=6)


@given(signs, signs, st.none() | signs, st.none() | signs, st.none() | signs, st.none() | signs)
def test_fixed_requires_a_test_that_fails_at_base(
    before, after, again, before_again, after_theirs, before_theirs
) -> None:
    one, two = run(before), run(after)
    theirs = after_theirs and brought(after_theirs, before_theirs)
    evidence = Evidence(
        one,
        two,
        after_rerun=again and run(again),
        before_rerun=before_again and run(before_again),
        patch_tests=theirs,
    )
    verdict = decide_verdict(PATCH, evidence)
    assert (verdict.kind == "conditional") <= bool(verdict.conditions)
    if verdict.kind in ("fixed", "conditional"):
        own = any(was in "FE" and now == "." for was, now in zip(before, after, strict=True))
        new = theirs and any(
            was in "FE" and now == "."
            for was, now in zip(before_theirs or "......", after_theirs, strict=True)
        )
        assert own or new
    if verdict.kind == "fixed":
        for was, now, then in zip(before, after, again or after, strict=True):
            assert was != "." or now == "." or (now in "FE" and (then in ".s" or before_again))
        for was, now in zip(before, after_theirs or after, strict=True):
            assert was != "." or now != " "
    assert not set(verdict.pass_to_fail) & set(verdict.flaky)
    assert not set(verdict.fail_to_pass) & set(verdict.patch_tests_failing)


def test_a_failing_test_that_the_patch_rewrites_shows_no_fix() -> None:
    # The base version of b fails with and without the patch; the patch's version fails at base and passes now.
    verdict = decide_verdict(PATCH, Evidence(run(".F"), run(".F"), patch_tests=brought("..", ".F")))
    assert (verdict.kind, verdict.fail_to_pass, verdict.replaced_failing_tests) == (
        "unproven",
        (),
        named("b"),
    )
    assert verdict.reason == (
        "The original version of `b` still fails with the patch, and no other test shows the fix."
    )
    # If the code makes the base version pass, too, the test is evidence.
    honest = decide_verdict(PATCH, Evidence(run(".F"), run(".."), patch_tests=brought("..", ".F")))
    assert (honest.kind, honest.fail_to_pass, honest.replaced_failing_tests) == ("fixed", named("b"), ())
    # A further test can show the fix. A person still has to agree to the rewritten test.
    other = decide_verdict(PATCH, Evidence(run(".F"), run(".F"), patch_tests=brought("...", ".FF")))
    assert (other.kind, other.fail_to_pass, other.replaced_failing_tests) == (
        "conditional",
        named("c"),
        named("b"),
    )


def test_a_failing_test_that_still_fails_in_the_patchs_version_is_not_rewritten() -> None:
    verdict = decide_verdict(PATCH, Evidence(run(".F"), run(".F"), patch_tests=brought(".F.", ".FF")))
    assert (verdict.kind, verdict.replaced_failing_tests, verdict.conditions) == ("fixed", (), ())


def test_a_failing_test_whose_parameters_the_patch_replaces_shows_no_fix() -> None:
    def runs(**results: TestStatus) -> TestRun:
        named_results = {f"t.py::a[{key}]": status for key, status in results.items()}
        return run().model_copy(update={"results": named_results})

    own = runs(old="failed")
    theirs = PatchTests(frozenset({"t.py"}), True, runs(new="passed"), before=runs(new="failed"))
    verdict = decide_verdict(PATCH, Evidence(own, own, patch_tests=theirs))
    assert (verdict.kind, verdict.fail_to_pass, verdict.replaced_failing_tests) == (
        "unproven",
        (),
        ("t.py::a[old]",),
    )
    # A further parameter beside the failing one is a new test.
    kept = PatchTests(
        frozenset({"t.py"}), True, runs(old="failed", new="passed"), before=runs(old="failed", new="failed")
    )
    assert decide_verdict(PATCH, Evidence(own, own, patch_tests=kept)).kind == "fixed"


def test_a_test_file_that_cannot_be_collected_and_is_rewritten_shows_no_fix() -> None:
    own = run().model_copy(update={"results": {"t.py": "error"}})
    verdict = decide_verdict(PATCH, Evidence(own, own, patch_tests=brought(".", "F")))
    assert (verdict.kind, verdict.replaced_failing_tests) == ("unproven", ("t.py",))


def test_a_flaky_test_that_the_patch_rewrites_shows_no_fix() -> None:
    own = run("..").model_copy(update={"flaky": named("b")})
    assert decide_verdict(PATCH, Evidence(own, own, patch_tests=brought("..", ".F"))).kind == "unproven"


def test_a_failing_test_that_the_patch_deletes_is_a_condition() -> None:
    theirs = PatchTests(frozenset({"t.py"}), True, run(" ."), before=run(" F"))
    verdict = decide_verdict(PATCH, Evidence(run("F"), run("F"), patch_tests=theirs))
    assert (verdict.kind, verdict.fail_to_pass, verdict.replaced_failing_tests) == (
        "conditional",
        named("b"),
        named("a"),
    )


def test_a_command_that_passes_only_with_the_patchs_tests_shows_no_fix() -> None:
    failing = run(exit_code=1)
    verdict = decide_verdict(
        PATCH, Evidence(failing, failing, patch_tests=PatchTests(frozenset(), False, run()))
    )
    assert (verdict.kind, verdict.replaced_failing_tests) == ("unproven", ("c",))
