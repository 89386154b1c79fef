"""The verdict, decided by runs alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolver.domain import Patch, Result, SuiteRun, Verdict
from resolver.verdict import Brought, Evidence, Touched, judge, merged

PATCH = Patch(base="0" * 40, diff=b"diff --git a/a b/a\n")
SIGNS: dict[str, Result] = {".": "passed", "F": "failed", "E": "error", "s": "skipped"}


def run(
    signs: str = "", *, exit_code: int | None = 0, problem: str | None = None, names: str = "abcdef"
) -> SuiteRun:
    """Tests `t.py::a`, `t.py::b`, ... with these outcomes; a space is a test that is not there."""
    results = {f"t.py::{name}": SIGNS[sign] for name, sign in zip(names, signs, strict=False) if sign != " "}
    return SuiteRun(
        command="c", results=results, exit_code=exit_code, seconds=1.0, output="", problem=problem
    )


def named(*names: str) -> tuple[str, ...]:
    return tuple(f"t.py::{name}" for name in names)


@pytest.mark.parametrize(
    ("before", "after", "again", "kind", "passing", "failing", "flaky", "missing"),
    [
        (".F", "..", None, "fixed", "b", "", "", ""),
        (".E", "..", None, "fixed", "b", "", "", ""),
        ("..", "..", None, "unproven", "", "", "", ""),
        ("..", "...", None, "unproven", "", "", "", ""),  # a new test that nobody ran at base
        (".s", "..", None, "unproven", "", "", "", ""),
        ("FF", "FF", None, "unproven", "", "", "", ""),
        ("FF", "..", None, "fixed", "ab", "", "", ""),
        (".F", "F.", "F", "regressed", "b", "a", "", ""),
        (".F", "E.", "E", "regressed", "b", "a", "", ""),
        (".F", "F.", ".", "fixed", "b", "", "a", ""),
        (".F", "F.", " ", "regressed", "b", "a", "", ""),  # nothing says that it passes
        ("..F", "FF.", "F.", "regressed", "c", "a", "b", ""),
        (".F", " .", None, "unproven", "b", "", "", "a"),
        (".F", "s.", None, "unproven", "b", "", "", "a"),
        ("..F", "F .", "F", "regressed", "c", "a", "", "b"),
    ],
)
def test_outcomes_per_test_decide(before, after, again, kind, passing, failing, flaky, missing) -> None:
    first, second = run(before), run(after)
    verdict = judge(PATCH, Evidence(first, second, again=None if again is None else run(again)))
    assert verdict.model_copy(update={"reason": ""}) == Verdict(
        kind=kind,
        newly_passing=named(*passing),
        newly_failing=named(*failing),
        flaky=named(*flaky),
        missing=named(*missing),
        before=first,
        after=second,
    )
    assert verdict.reason.endswith(".") and verdict.reason.count(".") == 1


def test_a_file_that_can_no_longer_be_collected_fails_with_all_its_tests() -> None:
    after = run().model_copy(update={"results": {"t.py": "error"}})
    verdict = judge(PATCH, Evidence(run("..F"), after, again=after))
    assert (verdict.kind, verdict.newly_failing) == ("regressed", named("a", "b"))


def test_a_file_that_can_be_collected_again_is_mended_with_all_its_tests() -> None:
    before = run().model_copy(update={"results": {"t.py": "error"}})
    verdict = judge(PATCH, Evidence(before, run("..")))
    assert (verdict.kind, verdict.newly_passing) == ("fixed", named("a", "b"))


def brought(after: str, before: str | None = None, **more: object) -> Brought:
    """The patch's own tests, all in t.py: with it, and on the base code."""
    runs = {key: value if value is None else run(str(value)) for key, value in more.items()}
    at_base = None if before is None else run(before)
    return Brought(frozenset({"t.py"}), True, run(after), before=at_base, **runs)


@pytest.mark.parametrize(
    ("theirs", "kind", "passing", "still", "flaky", "missing"),
    [
        (brought("..", ".F"), "fixed", "b", "", "", ""),
        (brought("..", ".E"), "fixed", "b", "", "", ""),
        (brought("..", ".s"), "unproven", "", "", "", ""),  # an error that does not count
        (brought("..", ".."), "unproven", "", "", "", ""),
        (brought(".F"), "unproven", "", "b", "", ""),
        (brought(".F", again=".F"), "unproven", "", "b", "", ""),
        (brought(".F", again=".."), "unproven", "", "", "b", ""),
        (brought("..", ".F", before_again=".F"), "fixed", "b", "", "", ""),
        (brought("..", ".F", before_again=".."), "unproven", "", "", "b", ""),
        (brought("..F", ".FF"), "unproven", "b", "c", "", ""),
        (brought(" .", " F"), "unproven", "b", "", "", "a"),
        (brought("s.", ".F"), "unproven", "b", "", "", "a"),
    ],
)
def test_the_tests_that_a_patch_brings_are_judged_on_both_codes(
    theirs, kind, passing, still, flaky, missing
) -> None:
    verdict = judge(PATCH, Evidence(run("."), run("."), brought=theirs))
    found = verdict.newly_passing, verdict.still_failing, verdict.flaky, verdict.missing
    assert (verdict.kind, *found) == (
        kind,
        *(named(*names) for names in (passing, still, flaky, missing)),
    )


@pytest.mark.parametrize(
    ("base", "theirs", "told"),
    [
        (".", brought("...", ".F."), {"b": "failed", "c": "passed"}),  # the first is as it was
        (".F", brought("..", "FE"), {"a": "failed"}),  # the second failed anyway
        (".", brought("...", ".sF"), {"b": "skipped", "c": "failed"}),
        (".", brought(".."), {}),
    ],
)
def test_new_and_changed_tests_are_told_as_they_did_on_the_old_code(base, theirs, told) -> None:
    verdict = judge(PATCH, Evidence(run(base), run(base), brought=theirs))
    assert verdict.on_old_code == {f"t.py::{name}": result for name, result in told.items()}
    assert merged((verdict, judge(PATCH, None))).on_old_code == verdict.on_old_code


def test_what_the_patch_s_tests_say_of_the_repository_s_own_counts_for_nothing() -> None:
    together = Brought(frozenset({"new.py"}), False, run(".."), before=run(".F"))
    verdict = judge(PATCH, Evidence(run(".F"), run(".F"), brought=together))
    assert (verdict.kind, verdict.newly_passing) == ("unproven", ())
    assert verdict.after and verdict.after.results == run(".F").results
    changed = Brought(frozenset({"t.py"}), False, run(".."), before=run(".F"))
    assert judge(PATCH, Evidence(run(".F"), run(".F"), brought=changed)).newly_passing == named("b")
    mends = judge(PATCH, Evidence(run(".F"), run(".."), brought=together))
    assert (mends.kind, mends.newly_passing) == ("fixed", named("b"))


def test_a_test_that_the_patch_changes_and_that_fails_as_it_was_is_no_fix_and_no_regression() -> None:
    failing = run("F.")
    verdict = judge(PATCH, Evidence(run(".F"), failing, again=failing, delivered=run("..")))
    assert (verdict.kind, verdict.rewritten, verdict.newly_failing) == ("unproven", named("a"), ())
    gone = judge(PATCH, Evidence(run(".F"), failing, again=failing, delivered=run(" .")))
    assert (gone.kind, gone.rewritten) == ("unproven", named("a"))
    broken = judge(PATCH, Evidence(run(".F"), failing, again=failing, delivered=run("F.")))
    assert (broken.kind, broken.newly_failing) == ("regressed", named("a"))


@pytest.mark.parametrize(
    ("before", "after", "again", "before_again"),
    [(".F", "F.", "F.", "F."), (".F", "..", "..", ".."), (".F", "..", ".F", ".F")],
)
def test_what_a_second_run_contradicts_on_either_side_is_flaky(before, after, again, before_again) -> None:
    evidence = Evidence(run(before), run(after), again=run(again), before_again=run(before_again))
    verdict = judge(PATCH, evidence)
    assert verdict.kind == "unproven"
    assert verdict.flaky and not verdict.newly_passing and not verdict.newly_failing


def test_what_was_flaky_at_base_decides_nothing() -> None:
    before = run("..F").model_copy(update={"flaky": named("a", "c")})
    verdict = judge(PATCH, Evidence(before, run("F..")))
    assert (verdict.kind, verdict.newly_passing, verdict.newly_failing) == ("unproven", (), ())
    assert verdict.flaky == named("a", "c")


@pytest.mark.parametrize(
    ("touched", "said"),
    [
        (
            Touched(weakened=("t.py has 1 check fewer.",)),
            "also takes from the tests: t.py has 1 check fewer.",
        ),
        (Touched(deleted=("t.py",)), "also takes from the tests: The patch deletes t.py."),
        (Touched(set_aside=("conftest.py",)), "also changes conftest.py, which can decide how tests run."),
    ],
)
def test_a_mend_that_takes_from_the_tests_is_for_a_person_to_look_at(touched, said) -> None:
    verdict = judge(PATCH, Evidence(run(".F"), run("..")), touched)
    assert (verdict.kind, verdict.newly_passing) == ("unproven", named("b"))
    assert verdict.reason.endswith(said)
    broken = judge(PATCH, Evidence(run(".F"), run("F.")), touched)
    assert broken.kind == "regressed"


def test_several_suites_are_as_bad_as_the_worst_and_as_good_as_one_that_shows_the_mend() -> None:
    fixed, calm = judge(PATCH, Evidence(run(".F"), run(".."))), judge(PATCH, Evidence(run("."), run(".")))
    regressed = judge(PATCH, Evidence(run(".", names="x"), run("F", names="x")))
    absent = judge(PATCH, Evidence(ABSENT, ABSENT))
    assert merged((fixed,)) == fixed
    both = merged((calm, fixed))
    assert (both.kind, both.newly_passing, both.reason) == ("fixed", named("b"), fixed.reason)
    assert both.before and both.before.command == "c; c"
    assert (merged((fixed, regressed)).kind, merged((fixed, regressed)).newly_failing) == (
        "regressed",
        named("x"),
    )
    assert (merged((fixed, absent)).kind, merged((absent, absent)).kind) == ("unproven", "untested")
    assert ABSENT.problem and ABSENT.problem in merged((fixed, absent)).reason


ABSENT = run(exit_code=1, problem="pytest is not installed")
HUNG = run(exit_code=None, problem="they did not end within 9 s and were killed")
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
def test_a_run_that_is_none_proves_nothing(before, after, again, kind) -> None:
    verdict = judge(PATCH, before and Evidence(before, after, again=again))
    assert verdict.kind == kind
    for problem in (before and before.problem, before and not before.problem and after.problem):
        assert not problem or problem in verdict.reason


@pytest.mark.parametrize(
    ("before", "after", "again", "theirs", "kind"),
    [
        (1, 0, None, None, "fixed"),
        (1, 0, None, 0, "fixed"),
        (1, 0, None, 1, "unproven"),  # with the patch's own tests it fails
        (0, 1, 1, None, "regressed"),
        (0, 1, 0, None, "unproven"),
        (0, 0, None, 0, "unproven"),
        (1, 2, 2, None, "unproven"),
    ],
)
def test_without_a_report_exit_codes_decide(before, after, again, theirs, kind) -> None:
    apart = None if theirs is None else Brought(frozenset(), False, run(exit_code=theirs))
    second = None if again is None else run(exit_code=again)
    evidence = Evidence(run(exit_code=before), run(exit_code=after), again=second, brought=apart)
    assert judge(PATCH, evidence).kind == kind


def test_a_command_that_is_flaky_at_base_shows_no_mend() -> None:
    before = run(exit_code=1).model_copy(update={"flaky": ("c",)})
    assert judge(PATCH, Evidence(before, run())).kind == "unproven"


def test_an_empty_patch_is_empty_whatever_the_tests_say() -> None:
    nothing = Patch(base="0" * 40, diff=b"\n")
    assert judge(nothing, Evidence(run("F"), run("."))).kind == "empty"


signs = st.text(alphabet=".FEs ", min_size=6, max_size=6)


@given(signs, signs, st.none() | signs, st.none() | signs, st.none() | signs, st.none() | signs)
def test_fixed_is_never_said_lightly(before, after, again, before_again, after_theirs, before_theirs) -> None:
    one, two = run(before), run(after)
    theirs = after_theirs and brought(after_theirs, before_theirs)
    evidence = Evidence(
        one, two, again=again and run(again), before_again=before_again and run(before_again), brought=theirs
    )
    verdict = judge(PATCH, evidence)
    if verdict.kind == "fixed":
        own = any(was in "FE" and now == "." for was, now in zip(before, after, strict=True))
        new = theirs and any(
            was in "FE" and now == "."
            for was, now in zip(before_theirs or "......", after_theirs, strict=True)
        )
        assert own or new
        for was, now, then in zip(before, after, again or after, strict=True):
            assert was != "." or now == "." or (now in "FE" and (then in ".s" or before_again))
        for was, now in zip(before, after_theirs or after, strict=True):
            assert was != "." or now != " "
    assert not set(verdict.newly_failing) & set(verdict.flaky)
    assert not set(verdict.newly_passing) & set(verdict.still_failing)
