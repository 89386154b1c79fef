"""JUnit XML reports, valid and not: nothing in them is trusted."""

import pytest

from patchwright.resolver.suites.reports.runner_report import MAX_REPORT_BYTES, RunnerReport, parse_junit


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
        ("docs.guide.rst", "docs/guide.rst", "guide.rst", "docs/guide.rst::guide.rst"),
        ("tests.words.txt", "tests/words.txt", "", "tests/words.txt::"),
        ("tests.api.yaml.Get", "tests/api.yaml", "ok", "tests/api.yaml::Get::ok"),
        ("other.TestA", "tests/test_x.py", "test_y", "other.TestA::test_y"),
        ("com.acme.CalcTest", "", "adds", "com.acme.CalcTest::adds"),
        ("calc", "src/calc.test.js", "adds two numbers", "calc::adds two numbers"),
        ("", "", "adds", "adds"),
    ],
)
def test_ids_have_pytests_form_if_the_file_is_known(classname, file, name, test) -> None:
    assert parse_junit(report(case(name, classname, file))).results == {test: "passed"}


def test_each_outcome_has_its_message() -> None:
    parsed = parse_junit(
        report(
            case("ok"),
            case("bad", inside="<failure message='1 != 2'>line\nE  AssertionError</failure>"),
            case("broken", inside="<error message='boom'/>"),
            case("left", inside="<skipped message='not here'/>"),
            case("noisy", inside="<system-out>error</system-out>"),
            totals="tests='5' failures='1' errors='1' skipped='1'",
        )
    )
    assert parsed == RunnerReport(
        results={"ok": "passed", "bad": "failed", "broken": "error", "left": "skipped", "noisy": "passed"},
        messages={"bad": "1 != 2\nline\nE  AssertionError\n", "broken": "boom\n"},
    )


def test_the_most_severe_outcome_counts() -> None:
    failed_then_erred = case("t", inside="<failure/>") + case("t", inside="<error/>")
    both = report(
        failed_then_erred, case("u"), case("u", inside="<failure/>"), totals="failures='2' errors='1'"
    )
    assert parse_junit(both).results == {"t": "failed", "u": "failed"}


def test_a_report_with_an_xml_namespace_is_parsed() -> None:
    content = b"<testsuite xmlns='urn:x' tests='1'><testcase name='a'><failure/></testcase></testsuite>"
    assert parse_junit(content).results == {"a": "failed"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the test report is not valid XML"),
        (b"not xml", "the test report is not valid XML"),
        (b"\xff\xfe\x00<", "the test report is not valid XML"),
        (b"<?xml version='1.0' encoding='no-such'?><a/>", "the test report is not valid XML"),
        (report(case("a"))[:-20], "the test report is not valid XML"),
        (b"<html/>", "the test report contains no test suite"),
        (b"<a>" * 200_000 + b"</a>" * 200_000, "the test report contains no test suite"),
        (b" " * (MAX_REPORT_BYTES + 1), "the test report is larger than 20 MB"),
        (
            b"<!DOCTYPE a [<!ENTITY x 'ha'><!ENTITY y '&x;&x;&x;&x;'>]><testsuite name='&y;'/>",
            "the test report uses XML features that reports do not need",
        ),
        (
            b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'><testsuite/>",
            "the test report uses XML features that reports do not need",
        ),
    ],
)
def test_an_invalid_report_is_a_problem_without_results(content: bytes, problem: str) -> None:
    parsed = parse_junit(content)
    assert parsed.results == {} and parsed.problem is not None and parsed.problem.startswith(problem)


@pytest.mark.parametrize(
    ("totals", "problem"),
    [
        ("failures='0'", "the test report claims 0 failures, but contains 1"),
        ("errors='2'", "the test report claims 2 errors, but contains 0"),
        ("tests='1'", "the test report claims 1 tests, but contains 2"),
    ],
)
def test_a_report_with_wrong_totals_is_rejected(totals: str, problem: str) -> None:
    parsed = parse_junit(report(case("a"), case("b", inside="<failure/>"), totals=totals))
    assert parsed == RunnerReport(problem=problem)


def test_a_total_that_counts_subtests_is_right() -> None:
    parsed = parse_junit(report(case("a"), case("b", inside="<failure/>"), totals="tests='9' failures='1'"))
    assert parsed.problem is None and list(parsed.results.values()) == ["passed", "failed"]


@pytest.mark.slow
def test_a_quarter_of_a_million_tests_is_too_many() -> None:
    content = report("".join(f"<testcase name='{n}'/>" for n in range(250_000)))
    assert parse_junit(content) == RunnerReport(problem="the test report contains more than 200000 tests")


def test_a_very_long_test_name_is_clipped() -> None:
    (name,) = parse_junit(report(case("x" * 1_000_000))).results
    assert len(name) == 2_000
