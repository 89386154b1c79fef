"""Parses text reports: the Test Anything Protocol (TAP) and the output of cargo."""

import re

from patchwright.resolver.domain import TestStatus
from patchwright.resolver.suites.reports.report_builder import InvalidReport, ReportBuilder
from patchwright.resolver.suites.runner_report import RunnerReport

_TEST_POINT = re.compile(r"(?P<indent> *)(?P<bad>not )?ok\b *(?P<number>\d+)? *(?:- )?(?P<name>.*)")
_DIRECTIVE = re.compile(r"(?P<name>.*?)(?:^|\s)#\s*(?P<what>skip|todo|time=)(?P<why>.*)", re.IGNORECASE)
_PLAN = re.compile(r"( *)1\.\.(\d+)\b")
_FILE_NAME = re.compile(r"[^\s:]*[^\s:/]\.\w{1,4}")
SUBTEST_INDENT = 4  # spaces of indentation per level of subtests
MAX_DEPTH = 50
MAX_DIAGNOSTIC_LINES = 400  # maximum lines per diagnostic


def parse_tap(content: bytes, root: str) -> RunnerReport:
    """Parses TAP. For a test with subtests, only the subtests are reported. If such a test fails although no
    subtest fails, the test is reported as well.

    Some runners report a whole file like a test, and the file's tests as subtests. The ids of these tests then
    begin with the file's path, as in `test/a.js::adds > zero`. If a file failed and has no subtests, it could
    not be run. Source: testanything.org, versions 13 and 14.
    """
    levels = [_TapLevel()]
    diagnostic: list[str] | None = None
    for line in content.decode(errors="replace").splitlines():
        stripped = line.strip()
        if diagnostic is not None:
            if stripped == "...":
                levels[-1].add_diagnostic("\n".join(diagnostic))
                diagnostic = None
            elif len(diagnostic) < MAX_DIAGNOSTIC_LINES:
                diagnostic.append(line)
        elif stripped == "---":
            diagnostic = []
        elif stripped.startswith("Bail out!"):
            raise InvalidReport(f"the tests bailed out ({stripped[:200]})")
        elif plan := _PLAN.match(line):
            _enter_level(levels, len(plan[1]) // SUBTEST_INDENT)
            levels[-1].planned = int(plan[2][:9])
        elif point := _TEST_POINT.fullmatch(line):
            depth = len(point["indent"]) // SUBTEST_INDENT
            subtests = levels.pop() if len(levels) == depth + 2 else None
            _enter_level(levels, depth)
            levels[-1].add(point, subtests)
    if len(levels) > 1:
        raise InvalidReport("the test report ends before the last test")
    return _build_report(levels[0], root)


def parse_tape(content: bytes, root: str) -> RunnerReport:
    """Parses the output of the JavaScript runner tape, which prints TAP. A test is a heading together with
    all assertions below this heading. The assertions rarely have names.
    """
    collected, heading, count, planned = ReportBuilder(root), "", 0, None
    for line in content.decode(errors="replace").splitlines():
        if point := _TEST_POINT.fullmatch(line):
            count += 1
            directive = _DIRECTIVE.fullmatch(point["name"])
            skipped = directive is not None and directive["what"].lower() != "time="
            result: TestStatus = "skipped" if skipped else "failed" if point["bad"] else "passed"
            collected.add(heading or point["name"] or f"test {count}", result)
        elif plan := _PLAN.match(line):
            if planned is not None:
                raise InvalidReport("the test report has two plans")
            planned = int(plan[2][:9])
        elif line.startswith("# ") and planned is None:
            heading = line[2:]
        elif line.startswith("Bail out!"):
            raise InvalidReport(f"the tests bailed out ({line[:200]})")
    if planned != count:
        raise InvalidReport(f"the test report plans {planned or 'no'} tests, but contains {count}")
    return collected.build()


class _TapLevel:
    """The tests at one level of indentation in a TAP report. They are the subtests of one test at the level
    above.
    """

    def __init__(self) -> None:
        self.points: list[tuple[tuple[str, ...], TestStatus, str]] = []
        """For each test: its names from this level down to the test itself, its outcome, and its diagnostic."""
        self.count = 0
        self.planned: int | None = None
        self._last_has_subtests = False

    def add(self, point: re.Match[str], subtests: "_TapLevel | None") -> None:
        self.count += 1
        name = point["name"]
        result: TestStatus = "failed" if point["bad"] else "passed"
        if directive := _DIRECTIVE.fullmatch(name):
            name = directive["name"]
            result = result if directive["what"].lower() == "time=" else "skipped"
        name = name.strip().replace("\\#", "#") or f"test {self.count}"
        self._last_has_subtests = subtests is not None and bool(subtests.points)
        if subtests is not None and subtests.points:
            subtests.check_plan()
            self.points += (
                ((name, *path), subresult, message) for path, subresult, message in subtests.points
            )
            if result != "failed" or any(subresult == "failed" for _, subresult, _ in subtests.points):
                return
        self.points.append(((name,), result, ""))

    def add_diagnostic(self, diagnostic: str) -> None:
        """Adds the diagnostic to the last test. Ignores it if that test has subtests, which have their own."""
        if self.points and not self._last_has_subtests:
            path, result, _ = self.points[-1]
            self.points[-1] = path, result, diagnostic

    def check_plan(self) -> None:
        if self.planned not in (None, self.count):
            raise InvalidReport(f"the test report plans {self.planned} tests, but contains {self.count}")


def _enter_level(levels: list[_TapLevel], depth: int) -> None:
    """Adds levels until the last one has this depth. Several levels may be added at once, because a report
    may begin with nested subtests. Raises InvalidReport if the depth is not valid.
    """
    while len(levels) <= depth <= MAX_DEPTH:
        levels.append(_TapLevel())
    if depth != len(levels) - 1:
        raise InvalidReport("the test report has an invalid nesting")


def _build_report(level: _TapLevel, root: str) -> RunnerReport:
    level.check_plan()
    collected = ReportBuilder(root)
    counts: dict[tuple[str, ...], int] = {}
    for path, result, message in level.points:
        counts[path] = count = counts.get(path, 0) + 1
        *parents, name = path
        unique_name = f"{name} ({count})" if count > 1 else name  # assertions have no name of their own
        file = collected.relative_path(path[0])
        if _FILE_NAME.fullmatch(file) is None:
            collected.add(" > ".join((*parents, unique_name)), result, message)
        elif not parents:
            collected.add(file, "error" if result == "failed" else result, message)
        else:
            collected.add(collected.test_id(file, " > ".join((*parents[1:], unique_name))), result, message)
    return collected.build()


# --- cargo: the default format of libtest --------------------------------------------------------------------------

_RUNNING_TARGET = re.compile(r"\s*Running (?:unittests )?(\S+) \(.*\)")
_DOC_TEST_TARGET = re.compile(r"\s*Doc-tests (\S+)")
_TEST_COUNT = re.compile(r"running (\d{1,7}) tests?")
_TEST_LINE = re.compile(r"test (.+?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)\b.*")
_RESULT_LINE = re.compile(r"test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored;.*")
_CARGO_RESULTS: dict[str, TestStatus] = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}


def parse_cargo(content: bytes, root: str) -> RunnerReport:
    """Parses the output of `cargo test`. After each line `running n tests`, only the next n outcomes are
    accepted.
    """
    collected = ReportBuilder(root)
    target, expected, counts = "", 0, dict[str, int]()
    for line in content.decode(errors="replace").splitlines():
        if running := _RUNNING_TARGET.fullmatch(line):
            _check_all_finished(expected)
            target = running[1]
        elif doc_target := _DOC_TEST_TARGET.fullmatch(line):
            _check_all_finished(expected)
            target = f"doc {doc_target[1]}"
        elif test_count := _TEST_COUNT.fullmatch(line):
            _check_all_finished(expected)
            expected, counts = int(test_count[1]), dict.fromkeys(_CARGO_RESULTS, 0)
        elif expected and (test := _TEST_LINE.fullmatch(line)):
            expected -= 1
            counts[test[2]] += 1
            collected.add(collected.test_id(target, test[1]), _CARGO_RESULTS[test[2]])
        elif counts and not expected and (result := _RESULT_LINE.fullmatch(line)):
            totals = dict(
                zip(("passes", "failures", "ignored tests"), map(int, result.groups()), strict=True)
            )
            collected.check_totals(totals, dict(zip(totals, counts.values(), strict=True)))
            counts = {}
    if expected or counts:
        raise InvalidReport("the test report ends before the last test")
    return collected.build()


def _check_all_finished(expected: int) -> None:
    if expected:
        raise InvalidReport(f"{expected} of the started tests did not finish")
