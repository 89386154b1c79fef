"""The verdict, decided by runs alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolver.domain import Patch, Result, SuiteRun, Verdict
from resolver.verdict import judge

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
    verdict = judge(PATCH, first, second, None if again is None else run(again))
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
    verdict = judge(PATCH, run("..F"), after, after)
    assert (verdict.kind, verdict.newly_failing) == ("regressed", named("a", "b"))


def test_a_file_that_can_be_collected_again_is_mended_with_all_its_tests() -> None:
    before = run().model_copy(update={"results": {"t.py": "error"}})
    verdict = judge(PATCH, before, run(".."))
    assert (verdict.kind, verdict.newly_passing) == ("fixed", named("a", "b"))


def test_what_the_base_code_does_under_the_new_tests_counts_before_what_it_did_under_the_old() -> None:
    weakened = judge(PATCH, run("F"), run("."), None, new_at_base=run("."))
    assert (weakened.kind, weakened.newly_passing) == ("unproven", ())
    added = judge(PATCH, run("."), run(".."), None, new_at_base=run(".F"))
    assert (added.kind, added.newly_passing) == ("fixed", named("b"))


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
    verdict = judge(PATCH, before, after, again)
    assert verdict.kind == kind
    for problem in (before and before.problem, before and not before.problem and after.problem):
        assert not problem or problem in verdict.reason


@pytest.mark.parametrize(
    ("before", "after", "again", "at_base", "kind"),
    [
        (1, 0, None, None, "fixed"),
        (1, 0, None, 1, "fixed"),
        (1, 0, None, 0, "unproven"),
        (0, 1, 1, None, "regressed"),
        (0, 1, 0, None, "unproven"),
        (0, 0, None, None, "unproven"),
        (1, 2, 2, None, "unproven"),
    ],
)
def test_without_a_report_exit_codes_decide(before, after, again, at_base, kind) -> None:
    runs = [None if code is None else run(exit_code=code) for code in (before, after, again, at_base)]
    assert judge(PATCH, *runs).kind == kind


def test_an_empty_patch_is_empty_whatever_the_tests_say() -> None:
    nothing = Patch(base="0" * 40, diff=b"\n")
    assert judge(nothing, run("F"), run(".")).kind == "empty"


signs = st.text(alphabet=".FEs ", min_size=6, max_size=6)


@given(signs, signs, st.none() | signs, st.none() | signs)
def test_fixed_is_never_said_lightly(before: str, after: str, again: str | None, at_base: str | None) -> None:
    one, two = run(before), run(after)
    verdict = judge(PATCH, one, two, again and run(again), at_base and run(at_base))
    if verdict.kind == "fixed":
        reference = at_base or before
        assert any(was in "FE" and now == "." for was, now in zip(reference, after, strict=True))
        for was, now, then in zip(before, after, again or after, strict=True):
            assert was != "." or now == "." or (now in "FE" and then in ".s")
    assert not set(verdict.newly_failing) & set(verdict.flaky)
