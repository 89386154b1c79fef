"""Whether a run goes in circles: patterns over its log, told to the model once, then the end of the run. Pure.

The papers name the loops (arXiv:2506.03011, section 5.2) but give no rule; the counts are ours.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Literal

from resolver.actions import Action, Result
from resolver.events import Decided, Ended, Observed, Told, Trajectory
from resolver.summary import clip, did
from runtime.actions import SendInput
from runtime.frozen import Frozen
from runtime.observations import Failed, Page, Ran, RanPython

SAME = 3
"""The same call with the same result so many times in a row."""
ERRORS = 4
"""Different calls in a row that are all answered by the same error."""
ROUNDS = 3
"""Two calls in turn, with the same results each, so many times."""
NUDGES = 3
"""Times that a run is told before it is ended whatever it did in between."""
SILENT = 3
"""Replies in a row without any call; each of them is answered by a reminder, so the last one ends the run."""

# What differs between two runs of the same command: durations, addresses, process ids, temporary names.
_NOISE = re.compile(r"\b\d+\.\d+ ?m?s\b|\b0x[0-9a-f]{6,}\b|\bpid \d+\b|/tmp/\S+|\d\d:\d\d:\d\d(\.\d+)?")


Kind = Literal["same call", "same error", "two calls in turn"]


class Pattern(Frozen):
    """A sign that a run goes in circles."""

    kind: Kind
    calls: tuple[str, ...]
    """The calls it consists of, a line each, the oldest first."""
    times: int
    length: int
    """Calls that it takes up."""


Exchange = tuple[Action, Result]


def nudge(trajectory: Trajectory) -> Pattern | None:
    """What the model is to be told now: that it goes in circles, and how."""
    exchanges = _exchanges(trajectory)
    found = _pattern(exchanges)
    return None if found is None or _is_deaf(trajectory, exchanges, found) else found


def ending(trajectory: Trajectory) -> Ended | None:
    """The end of a run that goes on in circles although it was told."""
    if silent_replies(trajectory) >= SILENT:
        return Ended(
            reason="stuck", detail=f"The model gave {SILENT} replies in a row without calling a tool."
        )
    exchanges = _exchanges(trajectory)
    found = _pattern(exchanges)
    if found is None or not _is_deaf(trajectory, exchanges, found):
        return None
    shown = " and ".join(f"`{call}`" for call in found.calls[-2:])
    return Ended(
        reason="stuck",
        detail=f"The model went in circles after it was told so ({found.kind}, {found.times} times: {shown}).",
    )


def ending_at_once(trajectory: Trajectory) -> Ended | None:
    """The end of a run that nobody tells anything, at the first pattern."""
    if (found := _pattern(_exchanges(trajectory))) is None:
        return None
    return Ended(reason="stuck", detail=f"It went in circles ({found.kind}, {found.times} times).")


def silent_replies(trajectory: Trajectory) -> int:
    """How many replies at the end of the run made no call."""
    return sum(1 for _ in takewhile(lambda reply: not reply.calls, reversed(trajectory.decisions())))


def _is_deaf(trajectory: Trajectory, exchanges: Sequence[Exchange], found: Pattern) -> bool:
    """Whether it was told and did nothing else since, or was told too often already."""
    told = sum(
        isinstance(event, Told) and event.source == "nudge" for event in _since_somebody_spoke(trajectory)
    )
    return told >= NUDGES or (told > 0 and len(exchanges) == found.length)


def _pattern(exchanges: Sequence[Exchange]) -> Pattern | None:
    """The pattern in which the exchanges end, the newest first; None: they get on."""
    if not exchanges or _only_waits(exchanges[0][0]):
        return None  # for a command that takes its time; the limits count that
    if _alike(exchanges[:SAME], SAME):
        return _named("same call", exchanges[:1], SAME)
    turn = exchanges[: 2 * ROUNDS]
    if _alike(turn[::2], ROUNDS) and _alike(turn[1::2], ROUNDS) and turn[0] != turn[1]:
        return _named("two calls in turn", turn[:2], ROUNDS)
    errors = [_error(action, result) for action, result in exchanges[:ERRORS]]
    if len(errors) == ERRORS and errors[0] is not None and len(set(errors)) == 1:
        return _named("same error", exchanges[:ERRORS], ERRORS)
    return None


def _named(kind: Kind, newest: Sequence[Exchange], times: int) -> Pattern:
    shown = tuple(clip(did(action)) for action, _ in reversed(newest))
    length = times * len(newest) if kind != "same error" else len(newest)
    return Pattern(kind=kind, calls=shown, times=times, length=length)


def _alike(exchanges: Sequence[Exchange], times: int) -> bool:
    return len(exchanges) == times and all(exchange == exchanges[0] for exchange in exchanges)


def _only_waits(action: Action) -> bool:
    return isinstance(action, SendInput) and not action.text and action.key is None


def _exchanges(trajectory: Trajectory) -> list[Exchange]:
    """Calls with their results, the newest first, down to the last nudge or word of a person.

    No more than a pattern can take up and one: the outputs of a long run are not read again at each step.
    """
    found: list[Exchange] = []
    results: dict[str, Result] = {}
    for event in _since_somebody_spoke(trajectory):
        match event:
            case Observed(call=call, observation=observation):
                results[call] = observation
            case Decided(calls=calls):
                answered = (call for call in reversed(calls) if call.id in results)
                found += [(call.action, _essence(results[call.id])) for call in answered]
            case Told(source="nudge"):
                break
            case _:
                continue
        if len(found) > 2 * ROUNDS:
            break
    return found


def _since_somebody_spoke(trajectory: Trajectory) -> Iterator[object]:
    """Events, the newest first, down to the last word of somebody who gave new work."""
    for entry in reversed(trajectory.entries):
        if isinstance(entry.event, Told) and entry.event.source in ("brief", "comment", "resume"):
            return
        yield entry.event


def _error(action: Action, result: Result) -> str | None:
    """What failed, without what differs between two calls; None: nothing did."""
    match result:
        case Failed(reason="lost"):
            return None  # the sandbox's fault; the run goes on
        case Failed(message=message):
            path = getattr(action, "path", "")
            return message.replace(path, "it") if path else message
        case Ran(exit_code=code, output=output) if code != 0:
            return "\n".join(output.strip().splitlines()[-3:]) or None
        case RanPython(ok=False, output=output):
            return "\n".join(output.strip().splitlines()[-1:]) or None
        case Page(error=str(error)):
            return error
        case _:
            return None


def _essence(observation: Result) -> Result:
    """An observation without what differs between two runs of the same command."""
    match observation:
        case Ran() | RanPython():
            output = _NOISE.sub("", observation.output)
            return observation.model_copy(update={"seconds": 0.0, "output": output})
        case Page():
            return observation.model_copy(update={"screenshot": None})
        case _:
            return observation
