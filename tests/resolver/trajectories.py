"""Trajectories made by hand."""

from datetime import UTC, datetime

from resolver.actions import Action, Result
from resolver.events import Call, Decided, Entry, Event, Observed, Trajectory, Usage


def run(*exchanges: tuple[Action, Result] | Event) -> Trajectory:
    """The trajectory of an agent that did these actions, each as a step of its own, with what came of them."""
    events: list[Event] = []
    for number, each in enumerate(exchanges):
        if not isinstance(each, tuple):
            events.append(each)
            continue
        action, result = each
        call = Call(id=f"c{number}", action=action)
        events.append(Decided(thought="", calls=(call,), usage=Usage(model="m")))
        events.append(Observed(call=call.id, observation=result))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Trajectory(tuple(Entry(seq=n, at=at, event=event) for n, event in enumerate(events)))
