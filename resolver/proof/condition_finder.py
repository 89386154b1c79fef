"""Finds the conditions of a verdict: the changes to tests that a person has to agree to."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from patchwright.resolver.conditions import Condition
from patchwright.resolver.domain import Verdict
from patchwright.resolver.proof.diff_parser import FileDiff, Hunk, parse_diff
from patchwright.resolver.proof.run_comparison import get_test_file, get_test_function
from patchwright.resolver.rendering.filters import inline_code, list_names, list_tests

MAX_DIFF_LINES = 12  # maximum lines of a change that a condition shows
MAX_LINE_LENGTH = 160  # maximum characters of such a line

_SKIPS_ONLY = re.compile(r" has (\d+) skips? more\.")  # of `find_weakened_tests`


def find_conditions(verdict: Verdict, diff: bytes) -> tuple[Condition, ...]:
    """Returns the conditions that follow from the lists of tests and files in the verdict. `diff` is the
    patch, which contains the changed lines.
    """
    files = {file.path: file for file in parse_diff(diff)}
    return tuple(_locate(condition, files) for condition in _iter_conditions(verdict, files))


def _iter_conditions(verdict: Verdict, files: Iterable[str]) -> Iterator[Condition]:
    """Yields the conditions without their lines. `files` are the changed files."""
    deleted = frozenset(verdict.deleted_test_files)
    yield from _iter_changed_expectations(verdict, deleted)
    after = verdict.after.results if verdict.after else {}
    skipped: dict[str, int] = {}
    for tests in _group(verdict.missing, get_test_file):
        if (path := get_test_file(tests[0])) in deleted:
            continue
        is_skipped = all(after.get(test) == "skipped" for test in tests)
        if is_skipped:
            skipped[path] = len({get_test_function(test) for test in tests})
        yield Condition(
            kind="tests_not_run",
            sentence=f"{list_tests(tests)} passed before and {'is' if len(tests) == 1 else 'are'} "
            f"{'skipped' if is_skipped else 'not run'} now.",
            tests=tests,
            path=path,
        )
    yield from (_describe_deletion(path, verdict) for path in verdict.deleted_test_files)
    for sentence in verdict.weakened_tests:
        path = next((path for path in (*files, *skipped) if sentence.startswith(f"{path} ")), "")
        if not _is_about_skips(sentence.removeprefix(path), skipped.get(path, 0)):
            yield Condition(kind="weakened_tests", sentence=sentence, path=path)
    for path in verdict.reverted_test_config:
        sentence = f"The repository's tests ran without the change to {inline_code(path)}."
        yield Condition(kind="changed_test_config", sentence=sentence, path=path)
    if packages := verdict.added_packages:
        names = list_names([inline_code(package) for package in packages], 10)
        noun = "a package" if len(packages) == 1 else "packages"
        sentence = f"The tests with the change ran with {noun} that it adds: {names}."
        yield Condition(kind="added_packages", sentence=sentence)
    code = verdict.after.unexplained_exit_code if verdict.after else None
    if code and verdict.before and not verdict.before.unexplained_exit_code:
        sentence = f"The test command exits with {code} with this change, although no test fails."
        yield Condition(kind="failing_command", sentence=sentence)


def _iter_changed_expectations(verdict: Verdict, deleted: frozenset[str]) -> Iterator[Condition]:
    """Yields the conditions for existing tests that the patch changes or removes, outside of `deleted` files."""
    after = verdict.after.results if verdict.after else {}
    for names, effect in (
        (verdict.modified_tests_failing, "fail"),
        (verdict.replaced_failing_tests, "still fail"),
    ):
        remaining = [test for test in names if get_test_file(test) not in deleted]
        for tests in _group(remaining, get_test_function):
            is_single = len(tests) == 1
            is_removed = bool(after) and not any(test in after for test in tests)
            verb = f"{effect}s" if is_single else effect
            yield Condition(
                kind="changed_expectations",
                sentence=f"{list_tests(tests)} {'is' if is_single else 'are'} removed; "
                f"{'it' if is_single else 'they'} {verb} with this change."
                if is_removed
                else f"{list_tests(tests)} now {'expects' if is_single else 'expect'} something else; "
                f"{'its old version' if is_single else 'their old versions'} {verb} with this change.",
                tests=tests,
                path=get_test_file(tests[0]),
                version="base" if is_removed else "patch",
            )


def _describe_deletion(path: str, verdict: Verdict) -> Condition:
    """Returns the condition for a deleted test file. It names the tests of the file that fail with the patch."""

    def in_file(tests: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(test for test in tests if get_test_file(test) == path)

    sentence = f"{inline_code(path)} is deleted"
    groups = (
        (in_file(verdict.modified_tests_failing), "fail"),
        (
            in_file(verdict.replaced_failing_tests),
            "still fail",
        ),
    )
    for tests, verb in groups:
        if tests:
            noun, verb = ("test", f"{verb}s") if len(tests) == 1 else ("tests", verb)
            sentence += f"; its {noun} {list_tests(tests)} {verb} with this change"
    tests = (*in_file(verdict.missing), *groups[0][0], *groups[1][0])
    return Condition(
        kind="deleted_test_file",
        sentence=f"{sentence}.",
        tests=tuple(dict.fromkeys(tests)),
        path=path,
        version="base",
    )


def _is_about_skips(predicate: str, skipped_functions: int) -> bool:
    """Returns True if the predicate of a sentence about weakened tests says only that there are more skips, and if
    the skipped tests are already named.

    One skip can apply to several tests. If there are several skips, each of them must belong to a named test.
    """
    match = _SKIPS_ONLY.fullmatch(predicate)
    return match is not None and skipped_functions > 0 and int(match[1]) in (1, skipped_functions)


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
