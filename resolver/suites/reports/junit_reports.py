"""Parses JUnit XML reports: one file, or several files that were concatenated."""

from patchwright.resolver.suites.reports.runner_report import (
    MAX_TESTS,
    SEVERITY_ORDER,
    RunnerReport,
    parse_junit_xml,
)

FILE_SEPARATOR = b"\0"
"""Separates two concatenated files. XML cannot contain this character."""


def parse_junit(content: bytes, root: str) -> RunnerReport:
    return parse_junit_xml(content)


def parse_junit_files(content: bytes, root: str) -> RunnerReport:
    """Returns the merged results of all files. If a test is in several files, its most severe result counts: code
    under test could write another file. If a file has a problem, returns only the first problem.
    """
    merged = RunnerReport()
    for part in content.split(FILE_SEPARATOR):
        if not part.strip():
            continue
        report = parse_junit_xml(part)
        if report.problem:
            return report
        known = merged.results
        worse = {
            test: min(result, known[test], key=SEVERITY_ORDER.index)
            for test, result in report.results.items()
            if test in known
        }
        merged = merged.merge(report)
        merged = merged.model_copy(update={"results": merged.results | worse})
        if len(merged.results) > MAX_TESTS:
            return RunnerReport(problem=f"the test report contains more than {MAX_TESTS} tests")
    if not merged.results:
        return RunnerReport(problem="the command wrote no test report")
    return merged
