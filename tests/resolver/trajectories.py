"""Trajectories for tests."""

from datetime import UTC, datetime

from patchwright.resolver.actions import Action, AnyObservation
from patchwright.resolver.events import Entry, Event, ModelReply, ReplyUsage, ToolCall, ToolResult, Trajectory


def run(*exchanges: tuple[Action, AnyObservation] | Event) -> Trajectory:
    """Returns the trajectory of an agent that did these actions, one per reply, with these results."""
    events: list[Event] = []
    for number, each in enumerate(exchanges):
        if not isinstance(each, tuple):
            events.append(each)
            continue
        action, result = each
        call = ToolCall(id=f"c{number}", action=action)
        events.append(ModelReply(thought="", calls=(call,), usage=ReplyUsage(model="m")))
        events.append(ToolResult(call_id=call.id, observation=result))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Trajectory(tuple(Entry(seq=n, timestamp=at, event=event) for n, event in enumerate(events)))
