"""Finds the agent's own test runs in a run's log, and the agent's edits after these test runs. All functions
are pure.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from patchwright.resolver.actions import Action
from patchwright.resolver.domain import Patch
from patchwright.resolver.events import Checkpoint, ModelReply, ToolResult, Trajectory
from patchwright.resolver.proof.runner_output import describe_useless_run
from patchwright.runtime.actions import RunPython, RunShell
from patchwright.runtime.observations import CellResult, ShellResult

NO_TEST_RUN = "The repository's tests were not run after the last edit"
"""Start of the sentence that says why no test run of the agent covers its last edit."""
MAX_SHOWN_COMMAND = 80  # maximum characters of a command that a message quotes

TEST_COMMANDS = re.compile(
    r"\b(pytest|py\.test|unittest|tox|nox|nose2|trial|jest|vitest|mocha|ava|tap|karma|playwright test"
    r"|(npm|pnpm|yarn|bun|deno)( run)? test|node --test|go test|cargo (nextest|test)|mvnw?|gradlew?|rspec|minitest"
    r"|(rake|rails|bundle exec rake) test|phpunit|ctest|make (test|check)|runtests|run_tests|manage\.py test)\b"
)
_SELECTED_TESTS = re.compile(
    r"(?<!\S)['\"]?(?:-k(?!\s*['\"]?not\b)|-t|-g|-run|--lf|--last-failed|--grep|--filter|--tests|--test-?name-?pattern"
    r"|-Dtest)\b[\s=,'\"]*(?P<names>(?<=')[^']*|(?<=\")[^\"]*|\S*)|\.\w+::(?P<id>\S+)",
    re.IGNORECASE,
)
"""Matches arguments that select tests by name: options of pytest and other runners, and node ids of pytest."""
_NARROW_RUN = "runs only selected tests, and its arguments name no changed file or test"


def has_run_tests(trajectory: Trajectory, test_command: str | None) -> bool:
    """Returns True if the agent ran tests and then left the code unchanged.

    A run in which no test passed does not count, because it may have run no test at all. A run of tests that
    were selected by name counts only if its arguments name a changed file or test. If a test run changed a
    file and the agent restored it, that does not count as an edit.
    """
    runs = _list_test_runs(trajectory, test_command)
    return any(not run.problem and not _list_untested_files(trajectory, run, runs) for run in runs)


def describe_missing_test_run(trajectory: Trajectory, test_command: str | None) -> str:
    """Returns a sentence that says why no test run covers the agent's last edit. Either no test run followed
    that edit, or the last one does not count, for example because it ran no test.
    """
    runs = _list_test_runs(trajectory, test_command)
    untested = _list_untested_files(trajectory, runs[-1], runs) if runs else None
    if runs and runs[-1].problem and not untested:
        command = _clip_command(runs[-1].command)
        advice = f" Run `{test_command}`." if test_command and runs[-1].problem == _NARROW_RUN else ""
        return f"{NO_TEST_RUN}: `{command}` {runs[-1].problem}.{advice}"
    edit = _find_last_edit(trajectory, untested)
    if not runs:
        return f"{NO_TEST_RUN}{f' (`{edit}`)' if edit else ''}."
    return (
        f"{NO_TEST_RUN}: "
        f"`{_clip_command(runs[-1].command)}` ran before {f'`{edit}`' if edit else 'that edit'}."
    )


class _TestRun(NamedTuple):
    """A command that ran tests, with the changed files before and after the command."""

    command: str
    problem: str
    """Why the run does not count, such as "ran no test"; "" if it counts."""
    files_before: dict[bytes, bytes]
    files_after: dict[bytes, bytes]


def _list_test_runs(trajectory: Trajectory, test_command: str | None) -> tuple[_TestRun, ...]:
    runs: list[_TestRun] = []
    actions: dict[str, object] = {}
    before: Patch | None = None
    after: Patch | None = None
    for event in trajectory:
        match event:
            case ModelReply(calls=calls):
                actions.update((call.id, call.action) for call in calls)
            case Checkpoint(patch=patch):
                after = patch
            case ToolResult(call_id=call, observation=ShellResult() | CellResult() as result):
                # The log contains the checkpoint of a call before the result of the call.
                if command := _get_test_command(actions.get(call), test_command):
                    exit_code = result.exit_code if isinstance(result, ShellResult) else int(not result.ok)
                    files_before, files_after = _split_files(before), _split_files(after)
                    problem = describe_useless_run(result.output, exit_code)
                    if not problem and _is_narrow(command, test_command, {**files_before, **files_after}):
                        problem = _NARROW_RUN
                    runs.append(_TestRun(command, problem, files_before, files_after))
                before = after
            case ToolResult():
                before = after
            case _:
                continue
    return tuple(runs)


def _get_test_command(action: object, test_command: str | None) -> str:
    match action:
        case RunShell(command=command) if TEST_COMMANDS.search(command) or (
            test_command and test_command in command
        ):
            return command
        case RunPython(code=code) if TEST_COMMANDS.search(code):
            return code
        case _:
            return ""


def _is_narrow(command: str, test_command: str | None, files: Mapping[bytes, bytes]) -> bool:
    """Returns True if the command runs only tests that were selected by name, and names no changed file and no
    changed test. `files` contains the changed files (see `_split_files`).

    A command names the file `calc.py` if its arguments contain the word `calc`, as in
    `tests/test_calc.py::test_add`. For a file such as `calc/__init__.py`, the name of the directory counts instead.
    """
    if test_command and test_command in command and _SELECTED_TESTS.search(test_command):
        return False  # the repository's own command selects tests
    parts = re.split(r"&&|\|\||[;|\n]", command)
    arguments = [part[match.end() :] for part in parts if (match := TEST_COMMANDS.search(part))]
    selections = [list(_SELECTED_TESTS.finditer(part)) for part in arguments]
    if not selections or not all(selections):
        return False
    words = f"_{_to_words(' '.join(arguments))}_"
    if any(f"_{_to_words(name)}_" in words for name in map(_get_module_name, files) if name):
        return False
    selected = " ".join(match["names"] or match["id"] or "" for matches in selections for match in matches)
    changed_lines = b"\n".join(re.findall(rb"^\+.*", b"".join(files.values()), re.MULTILINE))
    return not any(name.encode() in changed_lines for name in re.findall(r"\w{4,}", selected))


def _get_module_name(header: bytes) -> str:
    """Returns the name of a changed file without suffixes. For a directory's main module, such as `__init__.py`,
    returns the name of the directory.
    """
    path = PurePosixPath(header.decode(errors="replace").rpartition(" b/")[2])
    name = path.name.partition(".")[0]
    return path.parent.name if name in ("__init__", "index", "mod", "lib", "main") else name


def _to_words(text: str) -> str:
    """Returns the words of a text in lowercase, separated by underscores."""
    separated = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text)
    return re.sub(r"[^a-z0-9]+", "_", separated.lower()).strip("_")


def _split_files(patch: Patch | None) -> dict[bytes, bytes]:
    """Splits a patch into one diff per changed file. The keys are the first lines of these diffs."""
    parts = re.split(rb"^(?=diff --git )", patch.diff if patch else b"", flags=re.MULTILINE)
    return {part.split(b"\n", 1)[0]: part for part in parts if part}


def _list_untested_files(trajectory: Trajectory, run: _TestRun, runs: Sequence[_TestRun]) -> frozenset[bytes]:
    """Returns the files that were edited after the test run `run`.

    A file is left out if its present content is the same as directly before or after `run`. It is also left out
    if another of the `runs` changed the file and the agent then restored it.
    """
    present = _split_files(trajectory.last_checkpoint())
    return frozenset(
        name
        for name in {*present, *run.files_before, *run.files_after}
        if present.get(name) not in (run.files_before.get(name), run.files_after.get(name))
        and not any(
            present.get(name) == other.files_before.get(name) != other.files_after.get(name) for other in runs
        )
    )


def _find_last_edit(trajectory: Trajectory, files: frozenset[bytes] | None) -> str:
    """Returns a short description of the call that last changed one of these files, or "" if it is unknown.
    If `files` is None, all files count.
    """
    actions: dict[str, Action] = {}
    before: dict[bytes, bytes] = {}
    is_edited, found = False, ""
    for event in trajectory:
        match event:
            case ModelReply(calls=calls):
                actions.update((call.id, call.action) for call in calls)
            case Checkpoint(patch=patch):
                after = _split_files(patch)
                changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
                is_edited, before = bool(changed if files is None else changed & files), after
            case ToolResult(call_id=call):
                if is_edited and call in actions:
                    found = _describe_call(actions[call])
                is_edited = False
            case _:
                continue
    return found


def _clip_command(command: str) -> str:
    line = " ".join(command.replace("`", "'").split())
    return line if len(line) <= MAX_SHOWN_COMMAND else line[:MAX_SHOWN_COMMAND] + "..."


def _describe_call(action: Action) -> str:
    call = action.describe()
    return _clip_command(call.code or f"{action.kind} {call.written_path}".rstrip())
