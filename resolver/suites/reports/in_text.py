"""Reports as text: the Test Anything Protocol, and what cargo prints."""

import re

from resolver.domain import Result
from resolver.suites.reports.collected import Collected, Unfit
from resolver.suites.testreport import Report

_POINT = re.compile(r"(?P<indent> *)(?P<bad>not )?ok\b *(?P<number>\d+)? *(?:- )?(?P<name>.*)")
_DIRECTIVE = re.compile(r"(?P<name>.*?)(?:^|\s)#\s*(?P<what>skip|todo|time=)(?P<why>.*)", re.IGNORECASE)
_PLAN = re.compile(r"( *)1\.\.(\d+)\b")
_FILE = re.compile(r"[^\s:]*[^\s:/]\.\w{1,4}")
STEP = 4  # spaces by which a subtest is indented
DEEPEST = 50
MOST_LINES = 400  # of one diagnosis


def tap(content: bytes, root: str) -> Report:
    """A test with parts counts by its parts, unless it fails and none of them does.

    A file at the top level becomes the start of the ids, as in `test/a.js::adds > zero`; one without parts that
    is not ok could not be run. Source: testanything.org, versions 13 and 14.
    """
    levels = [_Level()]
    diagnosis: list[str] | None = None
    for line in content.decode(errors="replace").splitlines():
        said = line.strip()
        if diagnosis is not None:
            if said == "...":
                levels[-1].diagnose("\n".join(diagnosis))
                diagnosis = None
            elif len(diagnosis) < MOST_LINES:
                diagnosis.append(line)
        elif said == "---":
            diagnosis = []
        elif said.startswith("Bail out!"):
            raise Unfit(f"the tests bailed out ({said[:200]})")
        elif plan := _PLAN.match(line):
            _go_to(levels, len(plan[1]) // STEP)
            levels[-1].planned = int(plan[2][:9])
        elif point := _POINT.fullmatch(line):
            depth = len(point["indent"]) // STEP
            parts = levels.pop() if len(levels) == depth + 2 else None
            _go_to(levels, depth)
            levels[-1].add(point, parts)
    if len(levels) > 1:
        raise Unfit("the test report ends before the tests did")
    return _collected(levels[0], root)


def tape(content: bytes, root: str) -> Report:
    """TAP as tape prints it: a test is a heading, and the assertions below it, which are seldom named, are one."""
    collected, heading, count, planned = Collected(root), "", 0, None
    for line in content.decode(errors="replace").splitlines():
        if point := _POINT.fullmatch(line):
            count += 1
            directive = _DIRECTIVE.fullmatch(point["name"])
            skipped = directive is not None and directive["what"].lower() != "time="
            result: Result = "skipped" if skipped else "failed" if point["bad"] else "passed"
            collected.add(heading or point["name"] or f"test {count}", result)
        elif plan := _PLAN.match(line):
            if planned is not None:
                raise Unfit("the test report has two plans")
            planned = int(plan[2][:9])
        elif line.startswith("# ") and planned is None:
            heading = line[2:]
        elif line.startswith("Bail out!"):
            raise Unfit(f"the tests bailed out ({line[:200]})")
    if planned != count:
        raise Unfit(f"the test report plans {planned or 'no'} tests and shows {count}")
    return collected.report()


class _Level:
    """The test points at one depth, until the point that sums them up."""

    def __init__(self) -> None:
        self.points: list[tuple[tuple[str, ...], Result, str]] = []
        """Path of names from this level, outcome, diagnosis."""
        self.count = 0
        self.planned: int | None = None
        self._last_has_parts = False

    def add(self, point: re.Match[str], parts: "_Level | None") -> None:
        self.count += 1
        name = point["name"]
        result: Result = "failed" if point["bad"] else "passed"
        if directive := _DIRECTIVE.fullmatch(name):
            name = directive["name"]
            result = result if directive["what"].lower() == "time=" else "skipped"
        name = name.strip().replace("\\#", "#") or f"test {self.count}"
        self._last_has_parts = parts is not None and bool(parts.points)
        if parts is not None and parts.points:
            parts.hold_to_plan()
            self.points += (((name, *path), each, said) for path, each, said in parts.points)
            if result != "failed" or any(each == "failed" for _, each, _ in parts.points):
                return
        self.points.append(((name,), result, ""))

    def diagnose(self, said: str) -> None:
        """What followed the last point; one with parts has theirs."""
        if self.points and not self._last_has_parts:
            path, result, _ = self.points[-1]
            self.points[-1] = path, result, said

    def hold_to_plan(self) -> None:
        if self.planned not in (None, self.count):
            raise Unfit(f"the test report plans {self.planned} tests and shows {self.count}")


def _go_to(levels: list[_Level], depth: int) -> None:
    """Be at this depth; a file may begin with a test in a test."""
    while len(levels) <= depth <= DEEPEST:
        levels.append(_Level())
    if depth != len(levels) - 1:
        raise Unfit("the test report is nested in a way that cannot be read")


def _collected(level: _Level, root: str) -> Report:
    level.hold_to_plan()
    collected = Collected(root)
    seen: dict[tuple[str, ...], int] = {}
    for path, result, said in level.points:
        seen[path] = times = seen.get(path, 0) + 1
        *parents, name = path
        last = f"{name} ({times})" if times > 1 else name  # assertions have no name of their own
        file = collected.inside(path[0])
        if _FILE.fullmatch(file) is None:
            collected.add(" > ".join((*parents, last)), result, said)
        elif not parents:
            collected.add(file, "error" if result == "failed" else result, said)
        else:
            collected.add(collected.named(file, " > ".join((*parents[1:], last))), result, said)
    return collected.report()


# --- cargo: the default format of libtest --------------------------------------------------------------------------

_RUNNING = re.compile(r"\s*Running (?:unittests )?(\S+) \(.*\)")
_DOC_TESTS = re.compile(r"\s*Doc-tests (\S+)")
_BEGINS = re.compile(r"running (\d{1,7}) tests?")
_TEST = re.compile(r"test (.+?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)\b.*")
_RESULT = re.compile(r"test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored;.*")
_CARGO: dict[str, Result] = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}


def cargo(content: bytes, root: str) -> Report:
    """What `cargo test` prints: between `running n tests` and the first n outcomes nothing else is believed."""
    collected = Collected(root)
    target, expected, counts = "", 0, dict[str, int]()
    for line in content.decode(errors="replace").splitlines():
        if running := _RUNNING.fullmatch(line):
            _all_ended(expected)
            target = running[1]
        elif doc := _DOC_TESTS.fullmatch(line):
            _all_ended(expected)
            target = f"doc {doc[1]}"
        elif begins := _BEGINS.fullmatch(line):
            _all_ended(expected)
            expected, counts = int(begins[1]), dict.fromkeys(_CARGO, 0)
        elif expected and (test := _TEST.fullmatch(line)):
            expected -= 1
            counts[test[2]] += 1
            collected.add(collected.named(target, test[1]), _CARGO[test[2]])
        elif counts and not expected and (result := _RESULT.fullmatch(line)):
            claims = dict(
                zip(("passes", "failures", "ignored tests"), map(int, result.groups()), strict=True)
            )
            collected.check(claims, dict(zip(claims, counts.values(), strict=True)))
            counts = {}
    if expected or counts:
        raise Unfit("the test report ends before the tests did")
    return collected.report()


def _all_ended(expected: int) -> None:
    if expected:
        raise Unfit(f"{expected} of the tests that had begun did not end")
