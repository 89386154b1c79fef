"""Parses the JSON reports of test runners."""

from collections.abc import Iterator

from patchwright.resolver.run_results import RunnerOutcome, TestStatus
from patchwright.resolver.suites.reports.report_builder import InvalidReport, LenientModel, ReportBuilder
from patchwright.resolver.suites.reports.runner_report import MAX_ID, RunnerReport

_JEST_RESULTS: dict[str, TestStatus] = {
    "passed": "passed",
    "failed": "failed",
    "pending": "skipped",
    "skipped": "skipped",
    "todo": "skipped",
    "disabled": "skipped",
}
_RSPEC_RESULTS: dict[str, TestStatus] = {"passed": "passed", "failed": "failed", "pending": "skipped"}


def _map_status(results: dict[str, TestStatus], status: str) -> TestStatus:
    if status not in results:
        raise InvalidReport(f"the test report has the unknown outcome {status[:40]!r}")
    return results[status]


# --- jest and vitest: jestjs.io/docs/cli#--json, vitest.dev/guide/reporters#json-reporter ---------------------------


class _JestTest(LenientModel):
    fullName: str  # noqa: N815 (theirs)
    status: str
    failureMessages: tuple[str, ...] | None = None  # noqa: N815
    invocations: int | None = None
    """How often jest ran the test; vitest does not say it."""


class _JestFile(LenientModel):
    name: str
    status: str = ""
    message: str = ""
    assertionResults: tuple[_JestTest, ...] = ()  # noqa: N815


class _JestReport(LenientModel):
    numTotalTests: int | None = None  # noqa: N815
    numFailedTests: int | None = None  # noqa: N815
    numPassedTests: int | None = None  # noqa: N815
    testResults: tuple[_JestFile, ...]  # noqa: N815


def parse_jest(content: bytes, root: str) -> RunnerReport:
    """Parses a report of jest or vitest. A test file that could not be loaded gets the result "error", with
    the file's path as the id.
    """
    parsed = _JestReport.model_validate_json(content)
    collected = ReportBuilder(root)
    for file in parsed.testResults:
        for test in file.assertionResults:
            message = "\n".join(test.failureMessages or ())
            collected.add(
                collected.test_id(file.name, test.fullName),
                _map_status(_JEST_RESULTS, test.status),
                message or file.message,
                "todo" if test.status == "todo" else None,
                retries=(test.invocations or 1) - 1,
            )
    failed, passed = collected.counts["failed"], collected.counts["passed"]
    # vitest also counts the skipped tests as passed.
    passes = None if parsed.numPassedTests == collected.total - failed else parsed.numPassedTests
    totals = {"tests": parsed.numTotalTests, "failures": parsed.numFailedTests, "passes": passes}
    collected.check_totals(totals, {"tests": collected.total, "failures": failed, "passes": passed})
    for file in parsed.testResults:
        if file.status == "failed" and all(test.status != "failed" for test in file.assertionResults):
            collected.add(collected.relative_path(file.name), "error", file.message)
    return collected.build()


# --- mocha: mochajs.org/#json -----------------------------------------------------------------------------------


class _MochaError(LenientModel):
    message: str | None = None
    stack: str | None = None


class _MochaTest(LenientModel):
    fullTitle: str  # noqa: N815 (theirs)
    file: str | None = None
    err: _MochaError = _MochaError()
    currentRetry: int = 0  # noqa: N815


class _MochaStats(LenientModel):
    tests: int | None = None
    passes: int | None = None
    pending: int | None = None
    failures: int | None = None


class _MochaReport(LenientModel):
    stats: _MochaStats = _MochaStats()
    tests: tuple[_MochaTest, ...]
    passes: tuple[_MochaTest, ...]
    failures: tuple[_MochaTest, ...]
    pending: tuple[_MochaTest, ...] = ()
    unfinished: _MochaTest | None = None
    """The test that ran when the process ended before the last test."""


def parse_mocha(content: bytes, root: str) -> RunnerReport:
    """Parses a report of mocha. A hook that fails is reported as a failed test with the hook's name. If the process
    ended early, the file of the running test gets the result "error", and the finished tests count.
    """
    parsed = _MochaReport.model_validate_json(content)
    unfinished = parsed.unfinished
    if unfinished is not None and not unfinished.file:
        raise InvalidReport("the test report ends before the last test")
    collected = ReportBuilder(root)
    outcomes: tuple[tuple[tuple[_MochaTest, ...], TestStatus], ...] = (
        (parsed.passes, "passed"),
        (parsed.failures, "failed"),
        (parsed.pending, "skipped"),
    )
    for tests, result in outcomes:
        for test in tests:
            message = test.err.stack or test.err.message or ""
            collected.add(
                collected.test_id(test.file or "", test.fullTitle),
                result,
                message,
                "pending" if result == "skipped" else None,
                retries=test.currentRetry,
            )
    found = {"tests": len(parsed.tests), "passes": len(parsed.passes), "failures": len(parsed.failures)}
    collected.check_totals(parsed.stats.model_dump(), found | {"pending": len(parsed.pending)})
    if unfinished is not None:
        message = f"mocha ended during this test: {unfinished.fullTitle}"
        collected.add(collected.relative_path(unfinished.file or ""), "error", message)
    return collected.build()


# --- rspec: the formatter `json` of rspec-core -------------------------------------------------------------------


class _RspecError(LenientModel):
    message: str | None = None


class _RspecExample(LenientModel):
    full_description: str
    status: str
    file_path: str = ""
    exception: _RspecError | None = None


class _RspecSummary(LenientModel):
    example_count: int | None = None
    failure_count: int | None = None
    errors_outside_of_examples_count: int = 0


class _RspecReport(LenientModel):
    examples: tuple[_RspecExample, ...]
    summary: _RspecSummary = _RspecSummary()
    messages: tuple[str, ...] = ()


def parse_rspec(content: bytes, root: str) -> RunnerReport:
    """Parses a report of rspec. If rspec names a file that could not be loaded, the file gets the result
    "error", with its path as the id.
    """
    parsed = _RspecReport.model_validate_json(content)
    collected = ReportBuilder(root)
    for example in parsed.examples:
        collected.add(
            collected.test_id(example.file_path, example.full_description),
            _map_status(_RSPEC_RESULTS, example.status),
            example.exception.message or "" if example.exception else "",
            "pending" if example.status == "pending" else None,
        )
    totals = {"tests": parsed.summary.example_count, "failures": parsed.summary.failure_count}
    collected.check_totals(totals, {"tests": collected.total, "failures": collected.counts["failed"]})
    for message in parsed.messages if parsed.summary.errors_outside_of_examples_count else ():
        _, found, file = message.partition("An error occurred while loading ")
        if found:
            collected.add(
                collected.relative_path(file.split("\n", 1)[0].partition(". - Did")[0].strip().rstrip(".")),
                "error",
                message,
            )
    return collected.build()


# --- go: `go doc test2json` ---------------------------------------------------------------------------------------


class _GoEvent(LenientModel):
    Action: str
    Package: str = ""
    Test: str = ""
    Output: str = ""


def parse_go(content: bytes, root: str) -> RunnerReport:
    """Parses the output of `go test -json`. The output may also contain lines of other programs.

    If a package fails although none of its tests fails, the package gets the result "error". For a test with
    subtests, only the subtests are reported. If such a test fails although no subtest fails, the test is
    reported as well.
    """
    results: dict[tuple[str, str], TestStatus | None] = {}
    outputs: dict[tuple[str, str], list[str]] = {}
    output: list[str] = []
    for event in _parse_go_events(content):
        test = event.Package, event.Test
        match event.Action:
            case "run":
                results.setdefault(test, None)
            case "pass" | "fail" | "skip" if event.Test or event.Action == "fail":
                statuses: dict[str, TestStatus] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
                if results.get(test) != "failed":  # The code under test can print `--- PASS` after a failure.
                    results[test] = statuses[event.Action]
            case "output" | "build-output":
                output.append(event.Output)
                outputs.setdefault(test, []).append(event.Output)
    collected = ReportBuilder(root)
    parents = {parent for test in results for parent in _parents(*test)}
    explained = {
        parent for test, result in results.items() if result in ("failed", None) for parent in _parents(*test)
    }
    for (package, name), result in results.items():
        if (package, name) in explained or (result != "failed" and (package, name) in parents):
            continue
        message = "".join(outputs.get((package, name), ()))
        if name:
            # `result` is None if the program ended before the test did.
            collected.add(collected.test_id(package, name), result or "failed", message)
        else:
            collected.add(package, "error", message)
    return collected.build("".join(output))


def _parents(package: str, name: str) -> Iterator[tuple[str, str]]:
    """Yields the package of a test, and then the tests that contain this test. Each item is a pair of package
    and test name; the name is empty for the package itself.
    """
    parts = name.split("/")
    if name:
        yield package, ""
        yield from ((package, "/".join(parts[:count])) for count in range(1, min(len(parts), 20)))


def _parse_go_events(content: bytes) -> Iterator[_GoEvent]:
    for line in content.splitlines():
        if line.startswith(b'{"'):
            try:
                yield _GoEvent.model_validate_json(line)
                continue
            except ValueError:
                pass  # output of a program that looks like an event
        text = line.decode(errors="replace") + "\n"
        yield _GoEvent(Action="output", Output=text)
        words = text.split()
        if len(words) >= 3 and words[0] == "FAIL" and words[2] in ("[build", "[setup"):
            yield _GoEvent(Action="fail", Package=words[1][:MAX_ID])


# --- our own reporters (reporters/): one test per line
# ---------------------------------------------------------


class _TestLine(LenientModel):
    file: str = ""
    name: str = ""
    result: TestStatus
    message: str = ""
    outcome: RunnerOutcome | None = None
    is_unfinished: bool = False


class _TotalLine(LenientModel):
    tests: int


def parse_json_lines(content: bytes, root: str) -> RunnerReport:
    """Parses a report of our own reporters: one line per test, and a final line with the number of tests."""
    collected = ReportBuilder(root)
    *tests, last = content.splitlines() or [b""]
    if not last.startswith(b'{"tests":'):
        raise InvalidReport("the test report ends before the last test")
    for line in tests:
        test = _TestLine.model_validate_json(line)
        if test.is_unfinished:
            collected.add_unfinished_file(test.file, test.message)
            continue
        name = collected.test_id(test.file, test.name) if test.name else collected.relative_path(test.file)
        collected.add(name, test.result, test.message, test.outcome)
    collected.check_totals({"tests": _TotalLine.model_validate_json(last).tests}, {"tests": collected.total})
    return collected.build()
