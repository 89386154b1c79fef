"""Parses text reports: the Test Anything Protocol (TAP) and the output of cargo."""

import re
from typing import NamedTuple

from patchwright.resolver.run_results import RunnerOutcome, TestStatus
from patchwright.resolver.suites.reports.report_builder import InvalidReport, ReportBuilder
from patchwright.resolver.suites.reports.runner_report import RunnerReport

_TEST_POINT = re.compile(r"(?P<indent> *)(?P<bad>not )?ok\b *(?P<number>\d+)? *(?:- )?(?P<name>.*)")
_DIRECTIVE = re.compile(r"(?P<name>.*?)(?:^|\s)#\s*(?P<what>skip|todo|time=)(?P<why>.*)", re.IGNORECASE)
_SUBTEST = re.compile(r"(?P<indent> *)# Subtest: (?P<name>.*)")
# In the diagnostic of a file: the process was killed, by itself or at the runner's time limit.
_KILLED = re.compile(r"^\s*(?:signal: ['\"]?SIG|expired: )", re.MULTILINE)
_PLAN = re.compile(r"( *)1\.\.(\d+)\b")
# Old versions of tap print the tests of all files at one level, as tape does.
_FLAT = re.compile(rb"^# tests \d+\s*$", re.MULTILINE)
_SUBTEST_HEADING = b"# Subtest: "
_TOTAL = re.compile(r"(?:tests|pass|fail)\s+\d+|ok")
_FILE_NAME = re.compile(r"[^\s:]*[^\s:/]\.\w{1,4}")
SUBTEST_INDENT = 4  # spaces of indentation per level of subtests
MAX_DEPTH = 50
MAX_DIAGNOSTIC_LINES = 400  # maximum lines per diagnostic


def parse_tap(content: bytes, root: str) -> RunnerReport:
    """Parses TAP. For a test with subtests, only the subtests are reported. If such a test fails although no
    subtest fails, the test is reported as well. The assertions of a test are reported as one test, because an
    exception in the test is an assertion of another name. Assertions outside of tests are reported one by one.

    Some runners report a whole file like a test, and the file's tests as subtests. The ids of these tests then
    begin with the file's path, as in `test/a.js::adds > zero`. If a file failed and has no subtests, it could
    not be run. If a test or file ended before all its subtests did, it failed, and the finished subtests count.
    Source: testanything.org, versions 13 and 14.
    """
    if _FLAT.search(content) and _SUBTEST_HEADING not in content:
        return parse_tape(content, root)
    levels = [_TapLevel()]
    diagnostic: list[str] | None = None
    announced = ""
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
        elif heading := _SUBTEST.fullmatch(line):
            announced = heading["name"].strip()
            if not heading["indent"]:
                levels[0].heading = announced
        elif plan := _PLAN.match(line):
            _enter_level(levels, len(plan[1]) // SUBTEST_INDENT)
            levels[-1].planned = int(plan[2][:9])
        elif point := _TEST_POINT.fullmatch(line):
            depth = len(point["indent"]) // SUBTEST_INDENT
            _enter_level(levels, depth if len(levels) < depth + 2 else depth + 1)
            subtests = levels.pop() if len(levels) == depth + 2 else None
            levels[-1].add(point, subtests, announced)
    if len(levels) > 1:
        raise InvalidReport("the test report ends before the last test")
    return _build_report(levels[0], root)


def parse_tape(content: bytes, root: str) -> RunnerReport:
    """Parses the output of the JavaScript runner tape, which prints TAP. A test is a heading together with
    all assertions below this heading. The assertions rarely have names. Test files that use tap print subtests.
    """
    if _SUBTEST_HEADING in content:
        return parse_tap(content, root)
    collected, heading, count, planned = ReportBuilder(root), "", 0, None
    for line in content.decode(errors="replace").splitlines():
        if point := _TEST_POINT.fullmatch(line):
            count += 1
            directive = _DIRECTIVE.fullmatch(point["name"])
            skipped = directive is not None and directive["what"].lower() != "time="
            result: TestStatus = "skipped" if skipped else "failed" if point["bad"] else "passed"
            is_todo = directive is not None and directive["what"].lower() == "todo"
            outcome: RunnerOutcome | None = "todo" if is_todo else None
            collected.add(heading or point["name"] or f"test {count}", result, outcome=outcome)
        elif plan := _PLAN.match(line):
            if planned is not None:
                raise InvalidReport("the test report has two plans")
            planned = int(plan[2][:9])
        elif line.startswith("# ") and planned is None:
            heading = "" if _TOTAL.fullmatch(line[2:].strip()) else line[2:]
        elif line.startswith("Bail out!"):
            raise InvalidReport(f"the tests bailed out ({line[:200]})")
    if planned != count:
        raise InvalidReport(f"the test report plans {planned or 'no'} tests, but contains {count}")
    return collected.build()


class _TapResult(NamedTuple):
    path: tuple[str, ...]
    """The names of the tests that contain it, from the outermost one, and its own name."""
    result: TestStatus
    diagnostic: str
    outcome: RunnerOutcome | None
    """The runner's own name for the result."""
    is_assertion: bool


class _TapLevel:
    """The tests at one level of indentation in a TAP report. They are the subtests of one test at the level
    above.
    """

    def __init__(self) -> None:
        self.points: list[_TapResult] = []
        """The paths start at this level."""
        self.count = 0
        self.planned: int | None = None
        self.heading = ""
        """The name that the report announced for the present test; "" if it announces none."""
        self.is_incomplete = False
        """True if a test at this level began but did not end."""
        self.killed: set[str] = set()
        """The tests at this level whose process was killed."""
        self._last_name = ""
        self._last_has_subtests = False

    def add(self, point: re.Match[str], subtests: "_TapLevel | None", announced: str) -> None:
        """Adds a result. It belongs to an assertion if it has no subtests, another name than the test that the
        report `announced` last, and was not skipped.
        """
        self.count += 1
        name = point["name"]
        result: TestStatus = "failed" if point["bad"] else "passed"
        outcome: RunnerOutcome | None = None
        if directive := _DIRECTIVE.fullmatch(name):
            name, what = directive["name"], directive["what"].lower()
            result = result if what == "time=" else "skipped"
            outcome = "todo" if what == "todo" else None
        name = name.strip().replace("\\#", "#") or f"test {self.count}"
        if name == "timeout!" and self.heading:
            name = self.heading
        self._last_name, self.heading = name, ""
        self._last_has_subtests = subtests is not None and bool(subtests.points)
        if subtests is not None and subtests.points:
            self.points += (each._replace(path=(name, *each.path)) for each in subtests.points)
            is_explained = any(each.result == "failed" for each in subtests.points)
            if subtests.is_unfinished:
                result, outcome = "failed", None
            elif result != "failed" or is_explained:
                return
        is_assertion = subtests is None and name != announced and result != "skipped"
        self.points.append(_TapResult((name,), result, "", outcome, is_assertion))

    def add_diagnostic(self, diagnostic: str) -> None:
        """Adds the diagnostic to the last test. Ignores it if that test has subtests, which have their own."""
        if _KILLED.search(diagnostic):
            self.killed.add(self._last_name)
        if self.points and not self._last_has_subtests:
            self.points[-1] = self.points[-1]._replace(diagnostic=diagnostic)

    @property
    def is_unfinished(self) -> bool:
        return self.is_incomplete or self.planned not in (None, self.count)


def _enter_level(levels: list[_TapLevel], depth: int) -> None:
    """Adds levels until the last one has this depth. Several levels may be added at once, because a report
    may begin with nested subtests. Removes deeper levels: their test did not end. Raises InvalidReport if the
    depth is not valid.
    """
    if depth > MAX_DEPTH:
        raise InvalidReport("the test report has an invalid nesting")
    while len(levels) <= depth:
        levels.append(_TapLevel())
    while len(levels) > depth + 1:
        levels.pop()
        levels[-1].is_incomplete = True


def _build_report(level: _TapLevel, root: str) -> RunnerReport:
    if level.planned not in (None, level.count):
        raise InvalidReport(f"the test report plans {level.planned} tests, but contains {level.count}")
    collected = ReportBuilder(root)
    counts: dict[tuple[str, ...], int] = {}
    for path, result, message, outcome, is_assertion in level.points:
        file = collected.relative_path(path[0])
        is_file = _FILE_NAME.fullmatch(file) is not None
        # Old versions of tap announce a test below its level, and an assertion may have the same name.
        is_assertion = is_assertion or path[-1:] == path[-2:-1]
        if is_assertion and len(path) > 1 + is_file:
            name = " > ".join(path[is_file:-1])  # of the test
        else:
            counts[path] = count = counts.get(path, 0) + 1
            # Assertions may have equal names.
            name = " > ".join(path[is_file:]) + (f" ({count})" if count > 1 else "")
        if not is_file:
            collected.add(name, result, message, outcome)
        elif len(path) == 1:
            collected.add(file, "error" if result == "failed" else result, message)
        else:
            collected.add(collected.test_id(file, name), result, message, outcome)
    for name in sorted(level.killed):
        if _FILE_NAME.fullmatch(file := collected.relative_path(name)):
            collected.add_unfinished_file(file)
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
    accepted. The output may also contain lines that the code under test printed, to look like cargo's.
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
        elif not expected and (result := _RESULT_LINE.fullmatch(line)):
            if not counts:
                raise InvalidReport("the test report has two results for one list of tests")
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
