"""Checks which steps are still missing when an agent wants to finish. Only the log is read.

The agent is reminded only once. If steps are still missing afterwards, the summary lists them for the reviewer.
"""

import re
from collections.abc import Iterator, Sequence

from patchwright.resolver.activity.agent_test_runs import (
    NO_TEST_RUN,
    TEST_COMMANDS,
    describe_missing_test_run,
    has_run_tests,
)
from patchwright.resolver.domain import PullRequest, Thread, Verdict
from patchwright.resolver.events import (
    Checkpoint,
    Entry,
    Message,
    ModelReply,
    ToolResult,
    Trajectory,
    VerificationCompleted,
)
from patchwright.resolver.proof.diff_lint import lint_diff
from patchwright.resolver.proof.diff_parser import parse_diff
from patchwright.resolver.proof.runner_output import FAILED_TESTS
from patchwright.resolver.review_threads import list_unanswered_threads
from patchwright.resolver.run_calls import iter_calls, latest_plan
from patchwright.resolver.suites.file_classifier import is_test_related
from patchwright.resolver.suites.missing_program import NOT_STARTED_EXIT_CODES, is_runner_missing
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.resolver.tool_actions.unchecked_actions import MalformedCall
from patchwright.runtime.actions import RunPython, RunShell, SendInput
from patchwright.runtime.observations import ActionFailure, CellResult, ShellResult
from patchwright.runtime.output_text import clip

MAX_SHOWN_POINTS = 5  # Maximum number of points that one sentence lists.
NOT_MARKED = "Not marked as done by the agent: "
"""Start of the sentence that lists the open points of the plan or the issue. They may be done all the same."""
NOT_DONE = "Not done:"
"""Start of a sentence in `to_check`, with which the agent says that it left out a part of the issue."""
NOT_REPRODUCED = (
    "Nothing shows the failure: no command failed before the last edit, "
    "and no command had different output before and after the edits."
)

# Programs that run no code of the repository, so their failures say nothing about that code.
_COMMANDS_WITHOUT_REPOSITORY_CODE = frozenset(
    "cd ls cat grep rg egrep fgrep git find sed awk head tail wc which type command echo printf diff test [ [[ pwd "
    "tree stat file less mkdir touch rm cp mv chmod export source . set true false sleep pip uv apt apt-get npx".split()
)
# Uncaught errors of Python, JavaScript, Java, Rust and Go. The script may have continued after the error.
_EXCEPTION_OUTPUT = re.compile(
    r"^Traceback \(most recent call last\)|^(?:Uncaught )?(?:\w{1,80}\.){0,9}[A-Z]\w{0,80}(?:Error|Exception)(?::|$)"
    r"|\b[A-Z]\w{0,80}Error\(['\")]|^Exception in thread |\bpanicked at |^panic: ",
    re.MULTILINE,
)
_HEREDOC = re.compile(r"(<<-?\s*)(['\"]?)(\w+)\2(.*\n)(?:.*\n)*?\s*\3(?=\s|$)")
_TASK_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+\[ \]\s+(?P<point>\S.*)$")
_LIST_ITEM = re.compile(r"^\s{0,3}(?:[-*+]|\d+[.)])\s+(?P<point>[^\s\[].*)$")
_REQUIREMENTS_HEADING = re.compile(
    r"\b(requirements?|acceptance|criteria|to-?dos?|tasks?|should|must|expected)\b", re.IGNORECASE
)


def find_missing_steps(
    trajectory: Trajectory, test_command: str | None, *, can_run_tests: bool = True
) -> tuple[str, ...]:
    """Returns one sentence for each step that is still missing.

    If the agent changed nothing, two checks remain: every waiting review thread must have a reply, and all
    calls that the model sent together with the finish call must have succeeded. If `can_run_tests` is False,
    the repository has no known tests or the sandbox cannot run them, so no test run is required. A patch that
    changes tests needs no reproduction: the verification shows whether they fail without the fix.
    """
    thread = trajectory.run_started.thread if trajectory.run_started else None
    pull_request = thread if isinstance(thread, PullRequest) else None
    found: list[str] = []
    if pull_request and (unanswered := list_unanswered_threads(pull_request, last_finish(trajectory))):
        found.append(
            "These review threads wait for a reply, but `thread_replies` contains none for them: "
            f"{', '.join(map(str, unanswered))}."
        )
    if failed := _failures_alongside_finish(trajectory):
        names = ", ".join(f"`{name}`" for name in failed[:MAX_SHOWN_POINTS])
        found.append(f"`finish` was called in the same reply as {names}, which failed.")
    if (patch := trajectory.last_checkpoint()) is None or patch.is_empty:
        return tuple(found)
    has_new_test = can_run_tests and any(is_test_related(file.path) for file in parse_diff(patch.diff))
    if not (pull_request or has_new_test or has_reproduced(trajectory)):
        found.append(NOT_REPRODUCED)
    if can_run_tests and not has_run_tests(trajectory, test_command):
        found.append(describe_missing_test_run(trajectory, test_command))
    if open_points := _open_points(trajectory):
        found.append(f"{NOT_MARKED}{_format_points(open_points)}.")
    return (*found, *lint_diff(patch))


def describe_open_points(points: Sequence[str], verdict: Verdict) -> tuple[str, ...]:
    """Rewords the sentences of `find_missing_steps` for people, who also see the verdict.

    Leaves out that the agent did not reproduce the failure if the tests show it. If the agent did not run the tests
    after its last edit, says whether Patchwright did.
    """
    is_shown_by_tests = verdict.kind in ("fixed", "conditional")
    not_run = "The agent did not run the repository's tests after its last edit" + (
        ", but Patchwright ran them."
        if verdict.before and verdict.after and verdict.kind != "untested"
        else "."
    )
    return tuple(
        not_run if point.startswith(NO_TEST_RUN) else point
        for point in points
        if not (is_shown_by_tests and point == NOT_REPRODUCED)
    )


def has_reproduced(trajectory: Trajectory) -> bool:
    """Returns True if the agent saw a failure before its last edit, or if its edits changed the output of a command.

    A failure is a non-zero exit code, or output that shows a failed test or an exception. The output is
    checked because the exit code can be lost, for example in a pipe. Two command lines count as the same
    command if one contains the other, or if they share a part that runs code.
    """
    events = list(_iter_edits_and_results(trajectory))
    edits = [at for at, event in enumerate(events) if isinstance(event, Checkpoint)]
    first, last = (edits[0], edits[-1]) if edits else (0, 0)
    if any(_is_failure(event) for event in events[:last] if isinstance(event, tuple)):
        return True
    before, after = dict(_list_command_runs(events[:first])), dict(_list_command_runs(events[last:]))
    return any(
        before[old] != after[new] and (old in new or _split_programs(old) & _split_programs(new))
        for old in before
        for new in after
        if not _is_read_only(old)
    )


def was_sent_back(trajectory: Trajectory) -> bool:
    """Returns True if a finish call has been rejected since the last message from a person.

    A finish call in the same reply as a failed call does not count. The model had not seen that failure, so its
    next finish call may be rejected for another reason.
    """
    other_calls: dict[str, set[str]] = {}  # For each finish call, the other calls of its reply.
    actions: dict[str, object] = {}
    failed: set[str] = set()
    was_rejected = False
    for event in trajectory:
        match event:
            case ModelReply(calls=calls):
                actions.update((call.id, call.action) for call in calls)
                others = {call.id for call in calls if not isinstance(call.action, Finish)}
                other_calls |= {call.id: others for call in calls if isinstance(call.action, Finish)}
            case ToolResult(call_id=call, observation=ActionFailure(reason="refused")) if call in other_calls:
                was_rejected |= other_calls[call].isdisjoint(failed)
            case ToolResult(call_id=call, observation=observation) if _has_failed(
                actions.get(call), observation
            ):
                failed.add(call)
            case Message(source="initial_prompt" | "comment"):
                was_rejected = False
            case _:
                continue
    return was_rejected


def has_left_out(finish: Finish | None) -> bool:
    """Returns True if the agent says that it left out a part of the issue.

    A point of its plan that is still open does not say so: agents often forget to mark it as done.
    """
    points = finish.to_check if finish else ()
    return any(point.lstrip().casefold().startswith(NOT_DONE.casefold()) for point in points)


def parse_requirements(thread: Thread) -> tuple[str, ...]:
    """Returns the requirements that an issue lists: the unchecked items of task lists, and the list items
    below a heading such as "Requirements".
    """
    found: list[str] = []
    in_requirements = False
    for line in thread.body.splitlines():
        if task := _TASK_ITEM.match(line):
            found.append(task["point"].strip())
        elif (item := _LIST_ITEM.match(line)) and in_requirements:
            found.append(item["point"].strip())
        elif line.strip() and not item:
            is_heading = line.lstrip().startswith("#") or line.rstrip().endswith(":")
            in_requirements = is_heading and _REQUIREMENTS_HEADING.search(line) is not None
    return tuple(found)


def last_finish(trajectory: Trajectory) -> Finish | None:
    """Returns the latest finish call before the current verdict. If there is no verdict, returns the latest
    finish call of the run. Returns None if there is no finish call.
    """
    # If a person continues a run, its new verdict may be equal to an earlier one.
    messages = [
        n
        for n, e in enumerate(trajectory)
        if isinstance(e, Message) and e.source in ("initial_prompt", "comment")
    ]
    last_message = messages[-1] if messages else 0
    verified_at = [
        n
        for n, e in enumerate(trajectory)
        if n >= last_message and isinstance(e, VerificationCompleted) and e.verdict == trajectory.verdict
    ]
    if not verified_at:
        return _find_last_finish(trajectory.entries)
    # An equal verdict is logged again if the agent finished again without a change, or if an earlier attempt was
    # the best one. Only in the first case, there is a finish call since the verification before it.
    for end in reversed(verified_at):
        start = next(
            (
                n
                for n in range(end - 1, -1, -1)
                if isinstance(e := trajectory.entries[n].event, VerificationCompleted)
                and not e.verdict.partial
            ),
            0,
        )
        if finish := _find_last_finish(trajectory.entries[start:end]):
            return finish
    return _find_last_finish(trajectory.entries[: verified_at[0]])


def _find_last_finish(entries: Sequence[Entry]) -> Finish | None:
    for reply in reversed(Trajectory(tuple(entries)).replies()):
        for call in reversed(reply.calls):
            if isinstance(call.action, Finish):
                return call.action
    return None


def _failures_alongside_finish(trajectory: Trajectory) -> tuple[str, ...]:
    """Returns the failed calls that the model sent together with a finish call. The model could not see these
    failures before it sent the finish call.
    """
    last = [call for call in iter_calls(trajectory) if call.step == len(trajectory.replies())]
    if not any(isinstance(call.action, Finish) for call in last):
        return ()
    failed = (call.action for call in last if _has_failed(call.action, call.observation))
    return tuple(
        action.name if isinstance(action, MalformedCall) else action.kind
        for action in failed
        if not isinstance(action, Finish)
    )


def _has_failed(action: object, observation: object) -> bool:
    """Returns True if a call was refused, or if its program failed or shows a failed test."""
    match action, observation:
        case RunShell(command=command), ShellResult(exit_code=code, output=output):
            return (code != 0 and not _is_read_only(command)) or _has_failed_test(command, output)
        case _, CellResult(ok=ok):
            return not ok
        case _:
            return isinstance(observation, ActionFailure)


def _has_failed_test(command: str, output: str) -> bool:
    return TEST_COMMANDS.search(command) is not None and FAILED_TESTS.search(output) is not None


def _open_points(trajectory: Trajectory) -> tuple[str, ...]:
    """Returns the open items of the latest plan. Without a plan, returns the requirements that the issue
    lists, or nothing if it lists only one.
    """
    if items := latest_plan(trajectory):
        return tuple(item.text for item in items if item.status in ("open", "doing"))
    listed = parse_requirements(trajectory.run_started.thread) if trajectory.run_started else ()
    return listed if len(listed) > 1 else ()


def _format_points(points: tuple[str, ...]) -> str:
    shown = "; ".join(f'"{point[:100]}"' for point in points[:MAX_SHOWN_POINTS])
    return shown if len(points) <= MAX_SHOWN_POINTS else f"{shown} and {len(points) - MAX_SHOWN_POINTS} more"


def _iter_edits_and_results(trajectory: Trajectory) -> Iterator[Checkpoint | tuple[object, object]]:
    """Yields the edits and the executed calls in order, each call with its result."""
    actions: dict[str, object] = {}
    for event in trajectory:
        match event:
            case ModelReply(calls=calls):
                actions.update((call.id, call.action) for call in calls)
            case ToolResult(call_id=call, observation=observation):
                yield actions.get(call), observation
            case Checkpoint():
                yield event
            case _:
                continue


def _is_failure(event: tuple[object, object]) -> bool:
    match event:
        case (RunShell(command=command), ShellResult(exit_code=code, output=output)):
            if _has_failed_test(command, output):
                return True
            failed = code not in (0, *NOT_STARTED_EXIT_CODES) or _EXCEPTION_OUTPUT.search(output) is not None
            return failed and not _is_read_only(command)
        case (SendInput(), ShellResult(exit_code=code)):
            return code not in (0, None)
        case (RunPython(), CellResult(ok=ok, output=output)):
            return not ok or _EXCEPTION_OUTPUT.search(output) is not None
        case _:
            return False


def _list_command_runs(events: Sequence[Checkpoint | tuple[object, object]]) -> Iterator[tuple[str, str]]:
    """Yields each shell command or Python cell together with its output."""
    for event in events:
        match event:
            case (RunShell(command=text), ShellResult(output=output)) | (
                RunPython(code=text),
                CellResult(output=output),
            ):
                yield text.strip(), output
            case _:
                continue


def _is_read_only(command: str) -> bool:
    """Returns True if no part of the command can run code of the repository."""
    return not _split_programs(command)


def _split_programs(command: str) -> set[str]:
    """Returns the parts of a command line that may run code of the repository. Each part includes its arguments.

    A here-document belongs to the part that reads it. Two parts with different here-documents count as different.
    """
    without_heredocs = _HEREDOC.sub(lambda found: f"{found[1]}{hash(found[0])}{found[4]}", command)
    found = set[str]()
    for part in re.split(r"&&|\|\||[;|\n&]", without_heredocs):
        words = part.split()
        program = next((word for word in words if "=" not in word), "")
        if program and program not in _COMMANDS_WITHOUT_REPOSITORY_CODE:
            found.add(" ".join(words))
    return found


def list_points_to_check(
    trajectory: Trajectory, verdict: Verdict | None, max_text_length: int
) -> tuple[str, ...]:
    """Returns the agent's points for people, and then the steps that are still missing. Each is clipped to about
    `max_text_length` characters. Returns nothing before the verdict.
    """
    if verdict is None:
        return ()
    finish, test_run = last_finish(trajectory), verdict.before or verdict.after
    missing = find_missing_steps(
        trajectory,
        test_run.command if test_run else None,
        can_run_tests=test_run is not None and not is_runner_missing(verdict.before),
    )
    points = (*(finish.to_check if finish else ()), *describe_open_points(missing, verdict))
    return tuple(clip(point, max_text_length) for point in points)
