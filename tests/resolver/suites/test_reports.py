"""Reports of runners other than pytest, valid and not. Reports of real runs are parsed in tests/runners."""

import json
from pathlib import Path

import pytest

from patchwright.resolver.suites.reports import json_reports, text_reports
from patchwright.resolver.suites.reports.report_builder import InvalidReport
from patchwright.resolver.suites.reports.runner_report import FILE_SEPARATOR, RunnerReport, parse_junit_files

# --- gradle: recorded, because it is too large to install for each test run
# ---------------------------------------

GRADLE = (Path(__file__).parents[2] / "runners/recorded/gradle-4.4.1.xml").read_text()
"""Report of Debian's gradle 4.4.1 from 2026-11-20 on a class like that of `maven` in tests/runners; the stack
is cut.
"""


def test_gradles_reports_are_merged() -> None:
    other = GRADLE.replace("CalcTest", "MoreTest").encode()
    report = parse_junit_files(GRADLE.encode() + FILE_SEPARATOR + other + FILE_SEPARATOR, "/tree")
    assert report.problem is None and len(report.results) == 6
    assert {test: result for test, result in report.results.items() if "Calc" in test} == {
        "org.example.CalcTest::one": "passed",
        "org.example.CalcTest::later": "skipped",
        "org.example.CalcTest::adds": "failed",
    }
    assert "expected:<3> but was:<-1>" in report.messages["org.example.CalcTest::adds"]


def test_a_test_in_two_reports_has_its_worst_result() -> None:
    passed = b"<testsuite><testcase classname='org.example.CalcTest' name='adds'/></testsuite>"
    for parts in ((GRADLE.encode(), passed), (passed, GRADLE.encode())):
        report = parse_junit_files(FILE_SEPARATOR.join(parts), "/tree")
        assert report.results["org.example.CalcTest::adds"] == "failed"


def test_one_truncated_report_invalidates_all() -> None:
    report = parse_junit_files(GRADLE.encode() + FILE_SEPARATOR + GRADLE[:400].encode(), "/tree")
    assert report.results == {} and report.problem is not None and "not valid XML" in report.problem
    assert parse_junit_files(b"", "/tree").problem == "the command wrote no test report"


# --- JSON -------------------------------------------------------------------------------------------------------


def jest(*statuses: str, **totals: int) -> bytes:
    tests = [{"fullName": f"t{n}", "status": status} for n, status in enumerate(statuses)]
    return json.dumps({"testResults": [{"name": "/w/a.js", "assertionResults": tests}], **totals}).encode()


def test_a_file_that_jest_could_not_load_is_an_error() -> None:
    files = [
        {"name": "/w/a.test.js", "status": "failed", "message": "Cannot find module", "assertionResults": []},
        {
            "name": "/w/b.test.js",
            "status": "passed",
            "assertionResults": [{"fullName": "t", "status": "passed"}],
        },
    ]
    report = json_reports.parse_jest(json.dumps({"numTotalTests": 1, "testResults": files}).encode(), "/w")
    assert report == RunnerReport(
        results={"b.test.js::t": "passed", "a.test.js": "error"},
        messages={"a.test.js": "Cannot find module\n"},
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (jest("passed", numTotalTests=2), "claims 2 tests, but contains 1"),
        (jest("failed", numFailedTests=0), "claims 0 failures, but contains 1"),
        (jest("failed", numPassedTests=1), "claims 1 passes, but contains 0"),
        (jest("splendid"), "has the unknown outcome 'splendid'"),
    ],
)
def test_wrong_totals_of_jest_are_rejected(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidReport, match=problem):
        json_reports.parse_jest(content, "/w")


def test_vitest_counts_a_skipped_test_as_passed() -> None:
    report = json_reports.parse_jest(jest("passed", "skipped", "failed", numPassedTests=2), "/w")
    assert report.results == {"a.js::t0": "passed", "a.js::t1": "skipped", "a.js::t2": "failed"}
    with pytest.raises(InvalidReport, match="claims 3 passes, but contains 1"):
        json_reports.parse_jest(jest("passed", "skipped", "failed", numPassedTests=3), "/w")


def test_wrong_totals_of_mocha_and_rspec_are_rejected() -> None:
    one = {"fullTitle": "t", "file": "/w/test/a.js", "err": {}}
    mocha = {"stats": {"failures": 0}, "tests": [one], "passes": [], "failures": [one], "pending": []}
    with pytest.raises(InvalidReport, match="claims 0 failures, but contains 1"):
        json_reports.parse_mocha(json.dumps(mocha).encode(), "/w")
    rspec = {"examples": [{"full_description": "t", "status": "passed"}], "summary": {"example_count": 0}}
    with pytest.raises(InvalidReport, match="claims 0 tests, but contains 1"):
        json_reports.parse_rspec(json.dumps(rspec).encode(), "/w")


def test_the_finished_tests_of_mocha_count_if_its_process_ended_early() -> None:
    one, two = ({"fullTitle": name, "file": "/w/t.js"} for name in ("one", "two"))
    report = {"tests": [one], "passes": [], "failures": [one], "unfinished": two}
    results = json_reports.parse_mocha(json.dumps(report).encode(), "/w").results
    assert results == {"t.js::one": "failed", "t.js": "error"}
    with pytest.raises(InvalidReport, match="ends before the last test"):
        json_reports.parse_mocha(json.dumps({**report, "unfinished": {"fullTitle": "two"}}).encode(), "/w")


def test_a_spec_that_could_not_be_loaded_is_an_error() -> None:
    text = "\nAn error occurred while loading ./spec/a_spec.rb.\nFailure/Error: require 'no'\n"
    report = {"examples": [], "summary": {"errors_outside_of_examples_count": 1}, "messages": [text]}
    assert json_reports.parse_rspec(json.dumps(report).encode(), "/w").results == {"spec/a_spec.rb": "error"}


@pytest.mark.parametrize(
    "read",
    [
        json_reports.parse_jest,
        json_reports.parse_mocha,
        json_reports.parse_rspec,
        json_reports.parse_json_lines,
    ],
)
@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"{}", b"\xff\xfe", b"[" * 1_000_000, b'{"testResults": 3}', b'{"tests":1e999}'],
)
def test_an_invalid_report_raises_an_expected_error(read, content: bytes) -> None:
    with pytest.raises((InvalidReport, ValueError)):
        read(content, "/w")


def test_our_own_reporters_write_the_number_of_tests() -> None:
    line = b'{"file": "/w/a.rb", "name": "A#t", "result": "failed", "message": "no"}\n'
    assert json_reports.parse_json_lines(line + b'{"tests":1}\n', "/w").results == {"a.rb::A#t": "failed"}
    with pytest.raises(InvalidReport, match="ends before the last test"):
        json_reports.parse_json_lines(line, "/w")
    with pytest.raises(InvalidReport, match="claims 2 tests, but contains 1"):
        json_reports.parse_json_lines(line + b'{"tests":2}\n', "/w")


# --- go ---------------------------------------------------------------------------------------------------------


def go(*events: tuple[str, str, str]) -> bytes:
    lines = (
        json.dumps({"Action": action, "Package": package, "Test": test}) for action, package, test in events
    )
    return "\n".join(lines).encode()


def test_an_unfinished_go_test_has_failed() -> None:
    events = [("run", "p", "TestA"), ("pass", "p", "TestA"), ("run", "p", "TestB"), ("fail", "p", "")]
    assert json_reports.parse_go(go(*events), "/w").results == {"p::TestA": "passed", "p::TestB": "failed"}


def test_a_go_test_that_failed_does_not_pass_later() -> None:
    events = [("fail", "p", "TestA"), ("pass", "p", "TestA"), ("pass", "p", "TestB"), ("fail", "p", "")]
    assert json_reports.parse_go(go(*events), "/w").results == {"p::TestA": "failed", "p::TestB": "passed"}


def test_a_go_package_that_fails_on_its_own_is_an_error() -> None:
    assert json_reports.parse_go(go(("pass", "p", "TestA"), ("fail", "p", "")), "/w").results == {
        "p::TestA": "passed",
        "p": "error",
    }
    text = b"# x/b [x/b.test]\nb/b_test.go:3: undefined: testing\nFAIL\tx/b [build failed]\n"
    report = json_reports.parse_go(text + go(("pass", "x", "TestA")), "/w")
    assert report.results == {"x/b": "error", "x::TestA": "passed"}
    assert report.output is not None and "undefined: testing" in report.output


def test_go_subtests_represent_their_test_unless_it_alone_fails() -> None:
    events = [("pass", "p", "T/a"), ("fail", "p", "T/b"), ("fail", "p", "T")]
    assert json_reports.parse_go(go(*events), "/w").results == {"p::T/a": "passed", "p::T/b": "failed"}
    events = [("pass", "p", "T/a"), ("fail", "p", "T")]
    assert json_reports.parse_go(go(*events), "/w").results == {"p::T/a": "passed", "p::T": "failed"}


def test_output_of_a_go_test_is_not_an_event() -> None:
    printed = b'{"Action": 3}\n{"x"\n{"Action":"output","Package":"p","Test":"T","Output":"--- PASS: U\\n"}\n'
    assert json_reports.parse_go(printed + go(("fail", "p", "T")), "/w").results == {"p::T": "failed"}


# --- TAP --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("TAP version 13\nok 1 - a\nnot ok 2 - b\n1..2\n", {"a": "passed", "b": "failed"}),
        ("ok\nnot ok\n", {"test 1": "passed", "test 2": "failed"}),
        (
            "ok 1 a # SKIP no\nnot ok 2 b # TODO later\nok 3 - c \\# d # time=3ms\n",
            {"a": "skipped", "b": "skipped", "c # d": "passed"},
        ),
        ("ok 1 - same\nok 2 - same\n", {"same": "passed", "same (2)": "passed"}),
        (
            "# Subtest: x.js\n    ok 1 - a\n    # Subtest: b\n        not ok 1 - c\n          ---\n          ok: 1\n"
            "          ...\n        1..1\n    not ok 2 - b\n    1..2\nnot ok 1 - x.js\n1..1\n",
            {"x.js::a": "passed", "x.js::b": "failed"},
        ),
        (
            "# Subtest: b\n    ok 1 - c\n    ok 2 - d # SKIP\n    # Subtest: e\n    ok 3 - e\n    1..3\nok 1 - b\n",
            {"b": "passed", "b > d": "skipped", "b > e": "passed"},
        ),
        ("    ok 1 - a\nnot ok 1 - whole\n", {"whole": "failed"}),
        ("    # Subtest: a\n    ok 1 - a\n    not ok 2 - b\n    1..2\nnot ok 1 - a\n1..1\n", {"a": "failed"}),
        ("    1..0\nnot ok 1 - lib/x.test.js\n1..1\n", {"lib/x.test.js": "error"}),
        ("hello\nokay\nnot okay\nok 1 - a\n  ---\n  not ok 9 - b\n  ...\n", {"a": "passed"}),
    ],
)
def test_tap_counts_the_tests_that_have_no_subtests(text: str, results: dict[str, str]) -> None:
    assert text_reports.parse_tap(text.encode(), "/w").results == results


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1..3\nok 1\nok 2\n", "plans 3 tests, but contains 2"),
        ("ok 1 - a\n    ok 1 - b\n", "ends before the last test"),
        ("ok 1\nBail out! no database\n", "bailed out .Bail out! no database"),
        ("                ok 1 - deep\n", "ends before the last test"),
        (f"{' ' * 4000}ok 1 - deep\n", "invalid nesting"),
    ],
)
def test_contradictory_tap_is_rejected(text: str, problem: str) -> None:
    with pytest.raises(InvalidReport, match=problem):
        text_reports.parse_tap(text.encode(), "/w")


# --- cargo --------------------------------------------------------------------------------------------------------

CARGO = """     Running unittests src/lib.rs (target/debug/deps/calc-0b1)

running 3 tests
test tests::a ... ok
test tests::b - should panic ... FAILED
test tests::c ... ignored, no network

failures:

---- tests::b stdout ----
test tests::fake ... ok

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests calc

running 1 test
test src/lib.rs - one (line 1) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.20s
"""


TAPE = """\
TAP version 13
# adds
ok 1 should be strictly equal
not ok 2 should be strictly equal
  ---
    operator: equal
  ...
# subtracts
ok 3 should be strictly equal
# later
ok 4 should be strictly equal # SKIP not yet

1..4
# tests 4
# pass  2
# fail  1
"""


def test_a_tape_test_is_a_heading_with_its_assertions() -> None:
    assert text_reports.parse_tape(TAPE.encode(), "/w").results == {
        "adds": "failed",
        "subtracts": "passed",
        "later": "skipped",
    }


def test_files_that_use_tap_may_be_started_by_tape() -> None:
    text = "TAP version 13\n    # Subtest: adds\n    ok 1 - one\n    1..1\nok 1 - adds\n1..1\n"
    assert text_reports.parse_tape(text.encode(), "/w").results == {"adds": "passed"}


@pytest.mark.parametrize("name", ["# Subtest: x.js\n", ""])
def test_a_tap_test_that_threw_an_exception_has_the_same_name_as_when_it_passes(name: str) -> None:
    report = (
        name + "    # Subtest: adds\n        {}\n        1..1\n    {} 1 - adds\n    1..1\n{} 1 - x.js\n1..1\n"
    )
    threw = report.format("not ok 1 - add is not a function", "not ok", "not ok").encode()
    passed = report.format("ok 1 - should be equal", "ok", "ok").encode()
    assert text_reports.parse_tap(threw, "/w").results == {"x.js::adds": "failed"}
    assert text_reports.parse_tap(passed, "/w").results == {"x.js::adds": "passed"}


def test_the_tests_of_old_versions_of_tap_have_the_names_of_their_headings() -> None:
    text = "# a.js\n# TAP version 13\n# adds\nok 1 equal\nnot ok 2 equal\n# tests 2\n# fail 1\n# ok\n"
    text += "not ok 3 test/a.js\n\n1..3\n"
    results = {"adds": "failed", "test/a.js": "failed"}
    assert text_reports.parse_tap(text.encode(), "/w").results == results


@pytest.mark.parametrize(
    "text", [TAPE.replace("1..4", "1..5"), TAPE.replace("1..4", ""), TAPE + "1..4\n", TAPE + "ok 5 late\n"]
)
def test_contradictory_tape_output_is_rejected(text: str) -> None:
    with pytest.raises(InvalidReport):
        text_reports.parse_tape(text.encode(), "/w")


def test_only_the_announced_cargo_results_count() -> None:
    assert text_reports.parse_cargo(CARGO.encode(), "/w").results == {
        "src/lib.rs::tests::a": "passed",
        "src/lib.rs::tests::b": "failed",
        "src/lib.rs::tests::c": "skipped",
        "doc calc::src/lib.rs - one (line 1)": "passed",
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (CARGO.replace("1 failed", "0 failed"), "claims 0 failures, but contains 1"),
        (CARGO.replace("running 1", "running 2") + CARGO, "1 of the started tests did not finish"),
        (CARGO[:200], "ends before the last test"),
        (
            # The code under test printed the first outcome and the first result.
            "running 1 test\ntest adds ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\n"
            "test adds ... FAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured\n",
            "two results for one list of tests",
        ),
    ],
)
def test_contradictory_cargo_output_is_rejected(text: str, problem: str) -> None:
    with pytest.raises(InvalidReport, match=problem):
        text_reports.parse_cargo(text.encode(), "/w")


# --- limits
# -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_report_parser_has_limits() -> None:
    with pytest.raises(InvalidReport, match="more than 200000 tests"):
        text_reports.parse_tap(b"ok\n" * 200_001, "/w")
    (name,) = json_reports.parse_jest(jest("passed").replace(b"t0", b"x" * 100_000), "/w").results
    assert len(name) == 2_000
    long = json.dumps({"file": "a", "name": "t", "result": "failed", "message": "y" * 1_000_000}).encode()
    assert len(json_reports.parse_json_lines(long + b'\n{"tests":1}', "/w").messages["a::t"]) <= 8_000
