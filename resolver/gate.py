"""The finish gate: what a run that wants to finish has not done yet, read from its log. Pure.

It asks once. What is still missing then is said in the account, for the reviewer to see.
"""

import re
from collections.abc import Iterator, Sequence

from resolver.actions import Finish, Malformed, Plan, PlanItem
from resolver.domain import PullRequest, Thread
from resolver.events import Checkpointed, Decided, Judged, Observed, Told, Trajectory
from resolver.proof.leftovers import leftovers
from resolver.pull.threads import unanswered
from resolver.suites.lacking import NOT_STARTED
from runtime.actions import RunPython, RunShell, SendInput
from runtime.observations import Failed, Ran, RanPython

SHOWN = 5  # points that are named

# Programs that only look; that one of them fails shows nothing about the repository's code.
_LOOKING = frozenset(
    "cd ls cat grep rg egrep fgrep git find sed awk head tail wc which type command echo printf diff test [ [[ pwd "
    "tree stat file less mkdir touch rm cp mv chmod export source . set true false sleep pip uv apt apt-get npx".split()
)
_RUNNERS = re.compile(
    r"\b(pytest|py\.test|unittest|tox|nox|nose2|trial|jest|vitest|mocha|ava|tap|karma|playwright test"
    r"|(npm|pnpm|yarn|bun|deno)( run)? test|node --test|go test|cargo (nextest|test)|mvnw?|gradlew?|rspec|minitest"
    r"|(rake|rails|bundle exec rake) test|phpunit|ctest|make (test|check)|runtests|run_tests|manage\.py test)\b"
)
# As pytest, unittest, jest, mocha, go, cargo, TAP, RSpec and Maven say it.
_FAILURES = re.compile(
    r"\b[1-9]\d* (failed|failing|failures?|errors?)\b|^(FAILED|FAIL|not ok)\b|\btest result: FAILED"
    r"|(Failures|Errors): [1-9]|(failures|errors)=[1-9]",
    re.MULTILINE,
)
# As Python, JavaScript, Java, Rust and Go tell of an error that ended something, also where a script went on.
_RAISED = re.compile(
    r"^Traceback \(most recent call last\)|^(?:Uncaught )?(?:\w{1,80}\.){0,9}[A-Z]\w{0,80}(?:Error|Exception)(?::|$)"
    r"|\b[A-Z]\w{0,80}Error\(['\")]|^Exception in thread |\bpanicked at |^panic: ",
    re.MULTILINE,
)
_HEREDOC = re.compile(r"(<<-?\s*)(['\"]?)(\w+)\2(.*\n)(?:.*\n)*?\s*\3(?=\s|$)")
_TASK = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+\[ \]\s+(?P<point>\S.*)$")
_ITEM = re.compile(r"^\s{0,3}(?:[-*+]|\d+[.)])\s+(?P<point>[^\s\[].*)$")
_WANTED = re.compile(
    r"\b(requirements?|acceptance|criteria|to-?dos?|tasks?|should|must|expected)\b", re.IGNORECASE
)


def missing(trajectory: Trajectory, test_command: str | None, *, runnable: bool = True) -> tuple[str, ...]:
    """One sentence for each thing that a finished run would have done.

    Where nothing was changed, only what waits for an answer, and what was not done beside the account, is missing.
    Not `runnable`: it is known that nothing in the sandbox can run the tests, and they are not asked for.
    """
    thread = trajectory.started.thread if trajectory.started else None
    reviewed = thread if isinstance(thread, PullRequest) else None
    found: list[str] = []
    if reviewed and (silent := unanswered(reviewed, last_account(trajectory))):
        found.append(
            f"These review threads wait, and `answers` says nothing of them: {', '.join(map(str, silent))}."
        )
    if failed := _failed_beside_finish(trajectory):
        found.append(f"In the very reply that ends the work, this was not done: {_listed(failed)}.")
    if (patch := trajectory.checkpoint()) is None or patch.empty:
        return tuple(found)
    if not reviewed and not reproduced(trajectory):
        found.append(
            "Nothing that was run failed before the last edit, so nothing shows that the failure was reproduced."
        )
    if runnable and not ran_tests(trajectory, test_command):
        found.append("The repository's tests were not run after the last edit.")
    if undone := _undone(trajectory):
        found.append(f"These points are not marked as done in the plan: {_listed(undone)}.")
    return (*found, *leftovers(patch))


def reproduced(trajectory: Trajectory) -> bool:
    """Whether the failure was seen before the last edit, or the same command gave something else before and after.

    A failure is an exit code, or what a test runner or an exception prints: behind a pipe, and in a script that
    catches what it shows, the code says nothing. The same command may stand among others.
    """
    seen = _in_order(trajectory)
    edits = [at for at, event in enumerate(seen) if isinstance(event, Checkpointed)]
    first, last = (edits[0], edits[-1]) if edits else (0, 0)
    if any(_is_failure(event) for event in seen[:last] if isinstance(event, tuple)):
        return True
    before, after = dict(_runs(seen[:first])), dict(_runs(seen[last:]))
    return any(
        before[old] != after[new] and (old in new or _programs(old) & _programs(new))
        for old in before
        for new in after
        if not _only_looks(old)
    )


def ran_tests(trajectory: Trajectory, test_command: str | None) -> bool:
    """Whether tests were run after the last edit."""
    for event in reversed(_in_order(trajectory)):
        if isinstance(event, Checkpointed):
            return False
        match event:
            case (RunShell(command=command), Ran()) if _RUNNERS.search(command) or (
                test_command and test_command in command
            ):
                return True
            case (RunPython(code=code), RanPython()) if _RUNNERS.search(code):
                return True
    return False


def was_sent_back(trajectory: Trajectory) -> bool:
    """Whether the gate has spoken since a person last did."""
    finishes: set[str] = set()
    refused = False
    for event in trajectory:
        match event:
            case Decided(calls=calls):
                finishes |= {call.id for call in calls if isinstance(call.action, Finish)}
            case Observed(call=call, observation=Failed(reason="refused")) if call in finishes:
                refused = True
            case Told(source="brief" | "comment"):
                refused = False
            case _:
                continue
    return refused


def points(thread: Thread) -> tuple[str, ...]:
    """What an issue lists as wanted: open task boxes, and lists under a line that says so."""
    found: list[str] = []
    wanted = False
    for line in thread.body.splitlines():
        if task := _TASK.match(line):
            found.append(task["point"].strip())
        elif (item := _ITEM.match(line)) and wanted:
            found.append(item["point"].strip())
        elif line.strip() and not item:
            heading = line.lstrip().startswith("#") or line.rstrip().endswith(":")
            wanted = heading and _WANTED.search(line) is not None
    return tuple(found)


def last_account(trajectory: Trajectory) -> Finish | None:
    """The last account that the agent gave, or wants to give, of the attempt that the run came to."""
    judged = (
        n for n, e in enumerate(trajectory) if isinstance(e, Judged) and e.verdict == trajectory.verdict
    )
    until = Trajectory(trajectory.entries[: next(judged, len(trajectory))])
    for decided in reversed(until.decisions()):
        for call in reversed(decided.calls):
            if isinstance(call.action, Finish):
                return call.action
    return None


def plan(trajectory: Trajectory) -> tuple[PlanItem, ...]:
    """The list that the agent keeps, as it wrote it last; empty where it keeps none."""
    for decided in reversed(trajectory.decisions()):
        for call in reversed(decided.calls):
            if isinstance(call.action, Plan):
                return call.action.items
    return ()


def _failed_beside_finish(trajectory: Trajectory) -> tuple[str, ...]:
    """Calls of the last reply that failed, if it wants to finish: its account was written before that was known."""
    calls = trajectory.decisions()[-1].calls if trajectory.decisions() else ()
    if not any(isinstance(call.action, Finish) for call in calls):
        return ()
    failed = {e.call for e in trajectory if isinstance(e, Observed) and isinstance(e.observation, Failed)}
    beside = (call.action for call in calls if call.id in failed and not isinstance(call.action, Finish))
    return tuple(action.name if isinstance(action, Malformed) else action.kind for action in beside)


def _undone(trajectory: Trajectory) -> tuple[str, ...]:
    """Open points of the last plan; without a plan, those that the issue lists, when there are several."""
    if items := plan(trajectory):
        return tuple(item.text for item in items if item.state in ("open", "doing"))
    listed = points(trajectory.started.thread) if trajectory.started else ()
    return listed if len(listed) > 1 else ()


def _listed(found: tuple[str, ...]) -> str:
    shown = "; ".join(f'"{point[:100]}"' for point in found[:SHOWN])
    return shown if len(found) <= SHOWN else f"{shown} and {len(found) - SHOWN} more"


def _in_order(trajectory: Trajectory) -> list[Checkpointed | tuple[object, object]]:
    """Edits, and calls with their answers."""
    return list(_edits_and_answers(trajectory))


def _edits_and_answers(trajectory: Trajectory) -> Iterator[Checkpointed | tuple[object, object]]:
    actions: dict[str, object] = {}
    for event in trajectory:
        match event:
            case Decided(calls=calls):
                actions.update((call.id, call.action) for call in calls)
            case Observed(call=call, observation=observation):
                yield actions.get(call), observation
            case Checkpointed():
                yield event
            case _:
                continue


def _is_failure(event: tuple[object, object]) -> bool:
    match event:
        case (RunShell(command=command), Ran(exit_code=code, output=output)):
            if _RUNNERS.search(command) and _FAILURES.search(output):
                return True
            failed = code not in (0, *NOT_STARTED) or _RAISED.search(output) is not None
            return failed and not _only_looks(command)
        case (SendInput(), Ran(exit_code=code)):
            return code not in (0, None)
        case (RunPython(), RanPython(ok=ok, output=output)):
            return not ok or _RAISED.search(output) is not None
        case _:
            return False


def _runs(events: Sequence[Checkpointed | tuple[object, object]]) -> Iterator[tuple[str, str]]:
    """Commands and cells with what they printed."""
    for event in events:
        match event:
            case (RunShell(command=text), Ran(output=output)) | (
                RunPython(code=text),
                RanPython(output=output),
            ):
                yield text.strip(), output
            case _:
                continue


def _only_looks(command: str) -> bool:
    """Whether no part of a command runs anything of the repository's."""
    return not _programs(command)


def _programs(command: str) -> set[str]:
    """The parts of a command line that run something of the repository's, each with its arguments.

    What a here-document holds is no part; a program that reads its script from one differs from run to run.
    """
    bare = _HEREDOC.sub(lambda found: f"{found[1]}{hash(found[0])}{found[4]}", command)
    found = set[str]()
    for part in re.split(r"&&|\|\||[;|\n&]", bare):
        words = part.split()
        program = next((word for word in words if "=" not in word), "")
        if program and program not in _LOOKING:
            found.add(" ".join(words))
    return found
