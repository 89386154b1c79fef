"""Finds the conditions of a verdict: the changes to tests that a person has to agree to."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from patchwright.resolver.conditions import Condition
from patchwright.resolver.domain import Verdict
from patchwright.resolver.proof.diff_parser import FileDiff, Hunk, parse_diff
from patchwright.resolver.proof.run_comparison import get_test_file, get_test_function
from patchwright.resolver.rendering.filters import inline_code, list_tests

MAX_DIFF_LINES = 12  # maximum lines of a change that a condition shows
MAX_LINE_LENGTH = 160  # maximum characters of such a line


def find_conditions(verdict: Verdict, diff: bytes) -> tuple[Condition, ...]:
    """Returns the conditions that follow from the lists of tests and files in the verdict. `diff` is the
    patch, which contains the changed lines.
    """
    files = {file.path: file for file in parse_diff(diff)}
    return tuple(_locate(condition, files) for condition in _iter_conditions(verdict, files))


def _iter_conditions(verdict: Verdict, files: Iterable[str]) -> Iterator[Condition]:
    """Yields the conditions without their lines. `files` are the changed files."""
    after = verdict.after.results if verdict.after else {}
    for names, effect in (
        (verdict.modified_tests_failing, "fails now"),
        (verdict.replaced_failing_tests, "still fails"),
    ):
        for tests in _group(names, get_test_function):
            is_removed = bool(after) and not any(test in after for test in tests)
            yield Condition(
                kind="changed_expectations",
                sentence=f"{list_tests(tests)} {'is removed' if is_removed else 'expects something else'}; "
                f"its original version {effect}.",
                tests=tests,
                path=get_test_file(tests[0]),
                version="base" if is_removed else "patch",
            )
    for tests in _group(verdict.missing, get_test_file):
        if (path := get_test_file(tests[0])) in verdict.deleted_test_files:
            continue
        state = "skipped" if all(after.get(test) == "skipped" for test in tests) else "not run"
        yield Condition(
            kind="tests_not_run",
            sentence=f"{list_tests(tests)} passed before and {'is' if len(tests) == 1 else 'are'} {state} now.",
            tests=tests,
            path=path,
        )
    for path in verdict.deleted_test_files:
        tests = tuple(test for test in verdict.missing if get_test_file(test) == path)
        sentence = f"{inline_code(path)} is deleted."
        yield Condition(kind="deleted_test_file", sentence=sentence, tests=tests, path=path, version="base")
    for sentence in verdict.weakened_tests:
        path = next((path for path in files if sentence.startswith(f"{path} ")), "")
        yield Condition(kind="weakened_tests", sentence=sentence, path=path)
    for path in verdict.reverted_test_config:
        sentence = f"The tests ran without the change to {inline_code(path)}."
        yield Condition(kind="changed_test_config", sentence=sentence, path=path)
    if packages := verdict.added_packages:
        noun = "a package" if len(packages) == 1 else "packages"
        sentence = f"The tests with the change ran with {noun} that it adds: {', '.join(map(inline_code, packages))}."
        yield Condition(kind="added_packages", sentence=sentence)
    code = verdict.after.unexplained_exit_code if verdict.after else None
    if code and verdict.before and not verdict.before.unexplained_exit_code:
        sentence = f"The test command exits with {code} with this change, although no test fails."
        yield Condition(kind="failing_command", sentence=sentence)


def _group(tests: Iterable[str], key: Callable[[str], str]) -> list[tuple[str, ...]]:
    """Groups tests by a key. Keeps their order."""
    groups: dict[str, list[str]] = {}
    for test in tests:
        groups.setdefault(key(test), []).append(test)
    return [tuple(group) for group in groups.values()]


def _locate(condition: Condition, files: dict[str, FileDiff]) -> Condition:
    """Adds the changed lines to a condition. Removes the path if the patch does not change such a file."""
    file = files.get(condition.path)
    if file is None or condition.kind == "deleted_test_file":
        return condition if file else condition.model_copy(update={"path": ""})
    hunk, start = _find_hunk(file, condition.tests)
    if hunk is None:
        return condition
    lines = _changed_line_numbers(hunk, start, condition.version)
    return condition.model_copy(update={"lines": lines, "diff": _format_change(hunk.lines[start:])})


def _find_hunk(file: FileDiff, tests: tuple[str, ...]) -> tuple[Hunk | None, int]:
    """Returns the hunk that changes the first test, and the index of the first line that belongs to the test.

    The test is found by its name or by the name of its class. Without tests, returns the first hunk.
    """
    names = [part for part in reversed(get_test_function(tests[0]).split("::")[1:]) if part] if tests else []
    for name in names:
        for hunk in file.hunks:
            if (start := next((n for n, line in enumerate(hunk.lines) if name in line), None)) is not None:
                return hunk, start
            if name in hunk.context:
                return hunk, 0
    return (file.hunks[0], 0) if file.hunks else (None, 0)


def _changed_line_numbers(
    hunk: Hunk, start: int, version: Literal["base", "patch"]
) -> tuple[int, int] | None:
    """Returns the numbers of the first and last changed line, from the line with index `start` on. If no changed
    line is in this version, returns the number of the line after the change.
    """
    own = "-" if version == "base" else "+"
    number = hunk.old_start if version == "base" else hunk.new_start
    changed: list[int] = []
    elsewhere: list[int] = []
    for index, line in enumerate(hunk.lines):
        if index >= start and line.startswith(("+", "-")):
            (changed if line.startswith(own) else elsewhere).append(number)
        number += line.startswith((own, " "))
    numbers = changed or elsewhere
    return (numbers[0], numbers[-1]) if numbers else None


def _format_change(lines: list[str]) -> str:
    """Returns the changed lines. Leaves out unchanged lines, and shortens a long change."""
    changed = [line for line in lines if line.startswith(("+", "-")) and line[1:].strip()]
    shown = [
        line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]} …"
        for line in changed[:MAX_DIFF_LINES]
    ]
    if len(changed) > MAX_DIFF_LINES:
        shown.append(f"and {len(changed) - MAX_DIFF_LINES} more lines")
    return "\n".join(shown)
