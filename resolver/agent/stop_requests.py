"""Finds out whether the model's last reply ends the agent's work."""

from collections.abc import Collection

from patchwright.resolver.confirmation import ConfirmationRequest
from patchwright.resolver.events import AgentStopped, Message, ModelReply, ToolResult, Trajectory
from patchwright.resolver.tool_actions.control_actions import MAX_QUESTION, Ask, ProposePlan, Report
from patchwright.runtime.observations import Acknowledgment


def last_message_or_reply(trajectory: Trajectory) -> ModelReply | Message | None:
    """Returns the latest reply or message."""
    events = (entry.event for entry in reversed(trajectory.entries))
    return next((event for event in events if isinstance(event, ModelReply | Message)), None)


def describe_confirmation(request: ConfirmationRequest) -> AgentStopped:
    """Returns the stop of a run that waits until a person approves or rejects a call."""
    reason = f" because {request.reason}" if request.reason else ""
    detail = f"A call needs your approval{reason} (risk: {request.risk})."
    return AgentStopped(reason="input_required", detail=detail, confirmation=request)


def ask_with_text(stopped: AgentStopped, trajectory: Trajectory, tools: Collection[str]) -> AgentStopped:
    """Returns the stop of a run that gets only text from its model. If the agent may ask people, the last text is a
    question to them. Returns every other stop unchanged, and that of a model that has never called a tool.
    """
    last = last_message_or_reply(trajectory)
    if stopped.reason != "stuck" or not isinstance(last, ModelReply) or last.calls or "ask" not in tools:
        return stopped
    if not any(reply.calls for reply in trajectory.replies()):
        return stopped
    text = "" if last.truncated else last.thought.strip()
    return AgentStopped(reason="input_required", detail=text[:MAX_QUESTION]) if text else stopped


def find_requested_stop(trajectory: Trajectory, *, text_ends_turn: bool = False) -> AgentStopped | None:
    """Returns the stop that the last reply requested. Returns None if the reply requested no stop or if the
    request was not accepted. If `text_ends_turn` is True, a reply without a call is an answer to a person, and
    requests a stop, too.
    """
    last = last_message_or_reply(trajectory)
    if not isinstance(last, ModelReply) or trajectory.pending_calls():
        return None
    if text_ends_turn and last.thought and not last.calls and not last.truncated:
        return AgentStopped(reason="finished", detail="The agent answered.")
    final_actions = {call.id: call.action for call in last.calls if call.action.ends_run}
    for entry in reversed(trajectory.entries):
        match entry.event:
            case ToolResult(call_id=call, observation=Acknowledgment()) if call in final_actions:
                action = final_actions[call]
                if isinstance(action, Ask):
                    return AgentStopped(reason="input_required", detail=action.question)
                if isinstance(action, ProposePlan):
                    steps = f"{len(action.steps)} step{'s' * (len(action.steps) != 1)}"
                    return AgentStopped(
                        reason="input_required", detail=f"The plan of {steps} is ready for review."
                    )
                activity = "reported its answer" if isinstance(action, Report) else "finished the work"
                return AgentStopped(reason="finished", detail=f"The agent {activity}.")
            case ModelReply():
                return None
            case _:
                continue
    return None
