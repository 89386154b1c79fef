"""Grading: which tests pass that should. The expected values are those of SWE-bench's own harness."""

import pytest

from patchwright.evaluation.hidden_tests import HiddenTestRun, Score, grade, normalize_test
from patchwright.resolver.domain import TestStatus

STATUSES: dict[str, TestStatus] = {
    "tests/a.py::test_good": "passed",
    "tests/a.py::test_bad": "failed",
    "tests/a.py::test_skipped": "skipped",
    "tests/a.py::test_error": "error",
    "tests/a.py::test_each[one two]": "passed",
    "tests/a.py::test_each[one three]": "passed",
    "tests/a.py::test_mixed[one two]": "passed",
    "tests/a.py::test_mixed[one three]": "failed",
    "tests/b/test_calc.py::AddTest::test_add": "passed",
}


@pytest.mark.parametrize(
    ("test", "shows_fix", "is_regression"),
    [
        ("tests/a.py::test_good", True, False),
        ("tests/a.py::test_bad", False, True),
        ("tests/a.py::test_skipped", False, False),
        ("tests/a.py::test_error", False, True),
        ("tests/a.py::test_absent", False, True),
        ("tests/a.py::test_each[one", True, False),
        ("tests/a.py::test_mixed[one", False, True),
        ("tests/a.py::test_each", False, True),
    ],
)
def test_each_status_is_graded_as_in_swe_bench(test: str, shows_fix: bool, is_regression: bool) -> None:
    run = HiddenTestRun(statuses=STATUSES)
    assert bool(grade(run, (test,), ()).fail_to_pass) == shows_fix
    assert grade(run, ("tests/a.py::test_good", test), ()).resolved == shows_fix
    assert bool(grade(run, (), (test,)).regressions) == is_regression


@pytest.mark.parametrize("suffix", ["", ".test_add"])
def test_the_names_of_djangos_runner_are_understood(suffix: str) -> None:
    name = f"test_add (b.test_calc.AddTest{suffix})"
    assert normalize_test(name) == "test_calc.py::AddTest::test_add"
    assert grade(HiddenTestRun(statuses=STATUSES), (name,), ()).resolved


def test_an_instance_is_resolved_only_if_all_tests_pass() -> None:
    good, bad = "tests/a.py::test_good", "tests/a.py::test_bad"
    run = HiddenTestRun(statuses=STATUSES)
    assert grade(run, (good,), (good,)).resolved
    assert not grade(run, (good, bad), ()).resolved
    assert not grade(run, (good,), (bad,)).resolved
    assert not grade(run, (), (good,)).resolved  # Nothing shows the fix.
    assert not grade(run.model_copy(update={"problem": "The suite did not end."}), (good,), ()).resolved
    assert not Score().resolved


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ("example.org/calc::TestAdd", "TestAdd"),
        ("example.org/calc::TestAdd/zero", "TestAdd/zero"),
        ("example.org/calc::TestAdd/zero", "TestAdd"),
        ("src/lib.rs::tests::adds", "tests::adds"),
        ("calc.test.js::calc adds two numbers", "adds two numbers"),  # jest --verbose
        ("calc.test.js::calc adds two numbers", "calc > adds two numbers"),  # jest --json, karma
        ("calc.test.js::calc adds two numbers", "calc.test.js > calc > adds two numbers"),  # vitest
        ("test/calc_test.rb::CalcTest#test_: Calc should add.", "CalcTest#test_: Calc should add"),
        ("spec/calc_spec.rb::Calc adds", "Calc adds"),
        ("org.example.CalcTest::adds", "org.example.CalcTest#adds"),
    ],
)
def test_the_names_of_swe_bench_in_other_languages_are_understood(known: str, name: str) -> None:
    assert grade(HiddenTestRun(statuses={known: "passed"}), (name,), ()).resolved
    assert not grade(HiddenTestRun(statuses={known: "failed"}), (name,), ()).resolved
    assert not grade(HiddenTestRun(statuses={known: "passed"}), (f"{name}s", f"x{name}"), ()).fail_to_pass


def test_the_worst_result_counts_for_a_name_that_several_tests_have() -> None:
    run = HiddenTestRun(statuses={"a.test.js::add zero": "passed", "a.test.js::sub zero": "failed"})
    assert grade(run, ("zero",), ()).still_failing == ("zero",)
    assert grade(run, ("add > zero",), ()).resolved


def test_the_ids_of_python_tests_must_be_complete() -> None:
    run = HiddenTestRun(statuses={"a.py::CalcTest::test_add": "passed"})
    assert grade(run, ("test_add",), ()).still_failing == ("test_add",)
