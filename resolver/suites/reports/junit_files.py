"""JUnit XML reports: one, or those of many classes one after the other."""

from resolver.domain import Result
from resolver.suites.testreport import MAX_TESTS, Report, parse_junit

BETWEEN = b"\0"
"""Stands between two files: no XML may hold it."""


def junit(content: bytes, root: str) -> Report:
    return parse_junit(content)


def junit_files(content: bytes, root: str) -> Report:
    """All of them, or the first problem."""
    results: dict[str, Result] = {}
    messages: dict[str, str] = {}
    for part in content.split(BETWEEN):
        if not part.strip():
            continue
        report = parse_junit(part)
        if report.problem:
            return report
        results |= report.results
        messages |= report.messages
        if len(results) > MAX_TESTS:
            return Report(problem=f"the test report holds more than {MAX_TESTS} tests")
    if not results:
        return Report(problem="the command left no test report")
    return Report(results=results, messages=messages)
