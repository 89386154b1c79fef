"""The tool calls of a run with their results, from its log. What shows or examines the calls starts from here."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count

from patchwright.resolver.actions import Action, AnyObservation
from patchwright.resolver.confirmation import ConfirmationRequest, make_call_code
from patchwright.resolver.events import AgentStopped, Message, ModelReply, ToolCall, ToolResult, Trajectory
from patchwright.resolver.tool_actions.control_actions import Plan
from patchwright.runtime.tool_action import PlanItem


class CallIds:
    """The ids of the calls of a growing run. Reads each reply once."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._reply_count = 0

    def add_replies(self, replies: Sequence[ModelReply]) -> None:
        """Adds the ids of all replies so far."""
        self._used.update(call.id for reply in replies[self._reply_count :] for call in reply.calls)
        self._reply_count = len(replies)

    def make_unique(self, id: str) -> str:
        """Returns an id that no other call of this run has and that every provider accepts. Adds this id."""
        stem = re.sub(r"[^A-Za-z0-9_-]", "_", id)[:48] or "call"
        names = chain([stem], (f"{stem}-{n}" for n in count(2)))
        unique_id = next(name for name in names if name not in self._used)
        self._used.add(unique_id)
        return unique_id


@dataclass(frozen=True, slots=True)
class RunCall:
    """One tool call of a run."""

    step: int
    """Number of the reply that contains the call. The first reply is 1."""
    reply: ModelReply
    action: Action
    observation: AnyObservation | None
    """The result of the call; None if it has no result yet."""
    is_first_in_new_sandbox: bool
    """True if the run continued in a new sandbox before this call."""


def iter_calls(trajectory: Trajectory) -> Iterator[RunCall]:
    """Yields the calls of a run in order."""
    results = {event.call_id: event.observation for event in trajectory if isinstance(event, ToolResult)}
    step, is_new_sandbox = 0, False
    for event in trajectory:
        if isinstance(event, Message):
            is_new_sandbox = is_new_sandbox or event.new_sandbox
        if isinstance(event, ModelReply):
            step += 1
            for call in event.calls:
                yield RunCall(step, event, call.action, results.get(call.id), is_new_sandbox)
                is_new_sandbox = False


def get_confirmation(trajectory: Trajectory) -> ConfirmationRequest | None:
    """Returns the call that the stopped run waits for; None if it waits for no approval."""
    return trajectory.agent_stopped.confirmation if trajectory.agent_stopped else None


def find_unstarted_call(trajectory: Trajectory) -> ToolCall | None:
    """Returns the call that waited for approval when the last process ended, and that no process has started since."""
    for entry in reversed(trajectory.entries):
        match entry.event:
            case AgentStopped(confirmation=ConfirmationRequest(code=code)):
                calls = trajectory.pending_calls()
                return next((call for call in calls if make_call_code(call.id, call.action) == code), None)
            case ModelReply() | ToolResult() | Message(source="resume"):
                return None
            case _:
                continue
    return None


def latest_plan(trajectory: Trajectory) -> tuple[PlanItem, ...]:
    """Returns the items of the agent's latest plan. The result is empty if the agent wrote no plan."""
    for reply in reversed(trajectory.replies()):
        for call in reversed(reply.calls):
            if isinstance(call.action, Plan):
                return call.action.items
    return ()
