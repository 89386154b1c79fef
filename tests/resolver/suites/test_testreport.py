"""Reports, honest and not: nothing in them is taken on trust."""

import pytest

from resolver.suites.testreport import MAX_REPORT, Report, parse_junit


def report(*cases: str, totals: str = "") -> bytes:
    return f"<testsuites><testsuite name='s' {totals}>{''.join(cases)}</testsuite></testsuites>".encode()


def case(name: str, classname: str = "", file: str = "", inside: str = "") -> str:
    return f"<testcase classname='{classname}' file='{file}' name='{name}'>{inside}</testcase>"


@pytest.mark.parametrize(
    ("classname", "file", "name", "test"),
    [
        ("tests.test_x", "tests/test_x.py", "test_y", "tests/test_x.py::test_y"),
        ("tests.test_x", "tests/test_x.py", "test_y[a.b::c]", "tests/test_x.py::test_y[a.b::c]"),
        ("tests.test_x.TestA.TestB", "tests/test_x.py", "test_y", "tests/test_x.py::TestA::TestB::test_y"),
        ("", "tests/test_x.py", "tests.test_x", "tests/test_x.py"),
        ("other.TestA", "tests/test_x.py", "test_y", "other.TestA::test_y"),
        ("com.acme.CalcTest", "", "adds", "com.acme.CalcTest::adds"),
        ("calc", "src/calc.test.js", "adds two numbers", "calc::adds two numbers"),
        ("", "", "adds", "adds"),
    ],
)
def test_an_id_is_what_pytest_prints_where_that_can_be_known(classname, file, name, test) -> None:
    assert parse_junit(report(case(name, classname, file))).results == {test: "passed"}


def test_each_outcome_is_told_with_what_it_said() -> None:
    seen = parse_junit(
        report(
            case("ok"),
            case("bad", inside="<failure message='1 != 2'>line\nE  AssertionError</failure>"),
            case("broken", inside="<error message='boom'/>"),
            case("left", inside="<skipped message='not here'/>"),
            case("noisy", inside="<system-out>error</system-out>"),
            totals="tests='5' failures='1' errors='1' skipped='1'",
        )
    )
    assert seen == Report(
        results={"ok": "passed", "bad": "failed", "broken": "error", "left": "skipped", "noisy": "passed"},
        messages={"bad": "1 != 2\nline\nE  AssertionError\n", "broken": "boom\n"},
    )


def test_the_worst_of_several_outcomes_counts() -> None:
    failed_then_erred = case("t", inside="<failure/>") + case("t", inside="<error/>")
    both = report(
        failed_then_erred, case("u"), case("u", inside="<failure/>"), totals="failures='2' errors='1'"
    )
    assert parse_junit(both).results == {"t": "failed", "u": "failed"}


def test_a_report_of_another_runner_with_a_namespace_is_read() -> None:
    content = b"<testsuite xmlns='urn:x' tests='1'><testcase name='a'><failure/></testcase></testsuite>"
    assert parse_junit(content).results == {"a": "failed"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the test report is not XML that can be read"),
        (b"not xml", "the test report is not XML that can be read"),
        (b"\xff\xfe\x00<", "the test report is not XML that can be read"),
        (b"<?xml version='1.0' encoding='no-such'?><a/>", "the test report is not XML that can be read"),
        (report(case("a"))[:-20], "the test report is not XML that can be read"),
        (b"<html/>", "the test report holds no test suite"),
        (b"<a>" * 200_000 + b"</a>" * 200_000, "the test report holds no test suite"),
        (b" " * (MAX_REPORT + 1), "the test report is larger than 20 MB"),
        (
            b"<!DOCTYPE a [<!ENTITY x 'ha'><!ENTITY y '&x;&x;&x;&x;'>]><testsuite name='&y;'/>",
            "the test report uses what a report does not need",
        ),
        (
            b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'><testsuite/>",
            "the test report uses what a report does not need",
        ),
    ],
)
def test_what_is_no_report_is_a_problem_and_no_result(content: bytes, problem: str) -> None:
    seen = parse_junit(content)
    assert seen.results == {} and seen.problem is not None and seen.problem.startswith(problem)


@pytest.mark.parametrize(
    ("totals", "problem"),
    [
        ("failures='0'", "the test report claims 0 failures and shows 1"),
        ("errors='2'", "the test report claims 2 errors and shows 0"),
        ("tests='900'", "the test report claims 900 tests and shows 2"),
        ("tests='1'", "the test report claims 1 tests and shows 2"),
    ],
)
def test_a_report_whose_totals_are_not_its_tests_is_not_believed(totals: str, problem: str) -> None:
    seen = parse_junit(report(case("a"), case("b", inside="<failure/>"), totals=totals))
    assert seen == Report(problem=problem)


def test_a_quarter_of_a_million_tests_is_too_many() -> None:
    content = report("".join(f"<testcase name='{n}'/>" for n in range(250_000)))
    assert parse_junit(content) == Report(problem="the test report holds more than 200000 tests")


def test_a_name_without_end_is_cut() -> None:
    (name,) = parse_junit(report(case("x" * 1_000_000))).results
    assert len(name) == 2_000
