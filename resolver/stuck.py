"""Detects runs that are stuck in a loop. The model is warned first. If the model continues in the same way,
the run ends.

The literature describes such loops (arXiv:2506.03011, section 5.2) but gives no rule, so the numbers below
are our choice; docs/troubleshooting.md states them.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Literal

from patchwright.resolver.actions import Action, AnyObservation
from patchwright.resolver.descriptions import describe_action
from patchwright.resolver.events import AgentStopped, Message, ModelReply, ToolResult, Trajectory
from patchwright.runtime.actions import SendInput
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ActionFailure, CellResult, PageSnapshot, ShellResult
from patchwright.runtime.output_text import clip_line

MAX_IDENTICAL = 3
"""A run looks stuck after the same call had the same result this many times in a row."""
MAX_ERRORS = 4
"""A run looks stuck after this many different calls in a row failed with the same error."""
MAX_ROUNDS = 3
"""A run looks stuck after two calls alternated this many times, always with the same results."""
MAX_NUDGES = 3
"""Maximum number of nudges, which are warnings to the model. After the last nudge, the next repetition ends
the run, even if other calls are repeated.
"""
MAX_SILENT_REPLIES = 3
"""The run ends after this many consecutive replies without a tool call. After each of these replies except the
last, the model gets a reminder.
"""

# Parts of an output that differ between two runs of the same command: durations, addresses, process ids,
# temporary names.
_NOISE = re.compile(r"\b\d+\.\d+ ?m?s\b|\b0x[0-9a-f]{6,}\b|\bpid \d+\b|/tmp/\S+|\d\d:\d\d:\d\d(\.\d+)?")


PatternKind = Literal["same call", "same error", "two calls in turn"]


class Pattern(FrozenModel):
    """A repetition that shows that a run is stuck."""

    kind: PatternKind
    calls: tuple[str, ...]
    """The repeated calls, one line each, oldest first."""
    times: int
    length: int
    """Number of calls in the pattern, including all repetitions."""


Exchange = tuple[Action, AnyObservation]


def find_pattern(trajectory: Trajectory) -> Pattern | None:
    """Returns the pattern that the model must be warned about now, or None if there is none."""
    exchanges = _exchanges(trajectory)
    pattern = _match_pattern(exchanges)
    return None if pattern is None or _ignores_nudges(trajectory, exchanges, pattern) else pattern


def check_stuck(trajectory: Trajectory) -> AgentStopped | None:
    """Returns the stop event for a run that is still stuck after the model was warned. Returns None if the
    run may continue.
    """
    if count_silent_replies(trajectory) >= MAX_SILENT_REPLIES:
        return AgentStopped(
            reason="stuck",
            detail=f"The model gave {MAX_SILENT_REPLIES} replies in a row without calling a tool. "
            "`patchwright probe` tests whether a model can call tools.",
        )
    exchanges = _exchanges(trajectory)
    pattern = _match_pattern(exchanges)
    if pattern is None or not _ignores_nudges(trajectory, exchanges, pattern):
        return None
    calls = " and ".join(f"`{call}`" for call in pattern.calls[-2:])
    return AgentStopped(
        reason="stuck",
        detail=f"The model was still stuck after a reminder ({pattern.kind}, {pattern.times} times: {calls}).",
    )


def check_stuck_without_nudge(trajectory: Trajectory) -> AgentStopped | None:
    """Returns the stop event for a run as soon as it repeats itself. Returns None if it does not. Used for
    agents that get no warnings.
    """
    if (pattern := _match_pattern(_exchanges(trajectory))) is None:
        return None
    return AgentStopped(
        reason="stuck", detail=f"The agent was stuck ({pattern.kind}, {pattern.times} times)."
    )


def count_silent_replies(trajectory: Trajectory) -> int:
    """Returns the number of consecutive replies without a tool call at the end of the run, since the last
    message that gave the agent new work.
    """
    events = _events_since_instruction(trajectory)
    replies = (event for event in events if isinstance(event, ModelReply))
    return sum(1 for _ in takewhile(lambda reply: not reply.calls, replies))


def _ignores_nudges(trajectory: Trajectory, exchanges: Sequence[Exchange], pattern: Pattern) -> bool:
    """Returns True if the model repeats the pattern after a warning, or has used up its MAX_NUDGES warnings."""
    nudge_count = sum(
        isinstance(event, Message) and event.source == "nudge"
        for event in _events_since_instruction(trajectory)
    )
    return nudge_count >= MAX_NUDGES or (nudge_count > 0 and len(exchanges) == pattern.length)


def _match_pattern(exchanges: Sequence[Exchange]) -> Pattern | None:
    """Returns the pattern at the end of the run, or None if there is none. `exchanges` starts with the
    newest call.
    """
    if not exchanges or _is_wait(exchanges[0][0]):
        return None  # Waiting for a slow command is not a loop. The time limit ends it.
    if _count_identical(exchanges[:MAX_IDENTICAL], MAX_IDENTICAL):
        return _make_pattern("same call", exchanges[:1], MAX_IDENTICAL)
    rounds = exchanges[: 2 * MAX_ROUNDS]
    if (
        _count_identical(rounds[::2], MAX_ROUNDS)
        and _count_identical(rounds[1::2], MAX_ROUNDS)
        and rounds[0] != rounds[1]
    ):
        return _make_pattern("two calls in turn", rounds[:2], MAX_ROUNDS)
    errors = [_normalized_error(action, result) for action, result in exchanges[:MAX_ERRORS]]
    if len(errors) == MAX_ERRORS and errors[0] is not None and len(set(errors)) == 1:
        return _make_pattern("same error", exchanges[:MAX_ERRORS], MAX_ERRORS)
    return None


def _make_pattern(kind: PatternKind, newest: Sequence[Exchange], times: int) -> Pattern:
    calls = tuple(clip_line(describe_action(action)) for action, _ in reversed(newest))
    length = times * len(newest) if kind != "same error" else len(newest)
    return Pattern(kind=kind, calls=calls, times=times, length=length)


def _count_identical(exchanges: Sequence[Exchange], times: int) -> bool:
    return len(exchanges) == times and all(exchange == exchanges[0] for exchange in exchanges)


def _is_wait(action: Action) -> bool:
    return isinstance(action, SendInput) and not action.text and action.key is None


def _exchanges(trajectory: Trajectory) -> list[Exchange]:
    """Returns the latest calls and their results, newest first. Ignores those before the last warning or instruction.

    Returns only as many calls as the checks need. Otherwise, each step of a long run would read the whole run
    again.
    """
    found: list[Exchange] = []
    results: dict[str, AnyObservation] = {}
    for event in _events_since_instruction(trajectory):
        match event:
            case ToolResult(call_id=call, observation=observation):
                results[call] = observation
            case ModelReply(calls=calls):
                answered = (call for call in reversed(calls) if call.id in results)
                found += [(call.action, _normalize_observation(results[call.id])) for call in answered]
            case Message(source="nudge"):
                break
            case _:
                continue
        if len(found) > 2 * MAX_ROUNDS:
            break
    return found


def _events_since_instruction(trajectory: Trajectory) -> Iterator[object]:
    """Yields the events after the last message that gave the agent new work, newest first."""
    for entry in reversed(trajectory.entries):
        if isinstance(entry.event, Message) and entry.event.source in ("initial_prompt", "comment", "resume"):
            return
        yield entry.event


def _normalized_error(action: Action, result: AnyObservation) -> str | None:
    """Returns the error message without its variable parts, or None if the call did not fail."""
    match result:
        case ActionFailure(reason="lost"):
            return None  # The sandbox caused the failure, not the model.
        case ActionFailure(message=message):
            path = getattr(action, "path", "")
            return message.replace(path, "it") if path else message
        case ShellResult(exit_code=code, output=output) if code != 0:
            return "\n".join(output.strip().splitlines()[-3:]) or None
        case CellResult(ok=False, output=output):
            return "\n".join(output.strip().splitlines()[-1:]) or None
        case PageSnapshot(error=str(error)):
            return error
        case _:
            return None


def _normalize_observation(observation: AnyObservation) -> AnyObservation:
    """Returns the observation without the parts that differ between two runs of the same command."""
    match observation:
        case ShellResult() | CellResult():
            output = _NOISE.sub("", observation.output)
            return observation.model_copy(update={"seconds": 0.0, "output": output})
        case PageSnapshot():
            return observation.model_copy(update={"screenshot": None})
        case _:
            return observation
