"""The agent loop (CodeAct). The log alone determines the next step, so a new process can continue the run
after a crash.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from patchwright.resolver import run_limits, stuck
from patchwright.resolver.actions import AnyObservation
from patchwright.resolver.activity.finish_checks import was_sent_back
from patchwright.resolver.agent.condenser import DEFAULT_CONTEXT_POLICY, CondenserEvents, ContextPolicy
from patchwright.resolver.agent.messages import Conversation
from patchwright.resolver.agent.stop_requests import (
    ask_with_text,
    describe_confirmation,
    find_requested_stop,
    last_message_or_reply,
)
from patchwright.resolver.confirmation import ConfirmationRequest, ConfirmationRequired
from patchwright.resolver.domain import Patch
from patchwright.resolver.errors import ChangeTooLarge, ContextOverflow, ModelAccessDenied, ModelError
from patchwright.resolver.events import (
    AgentStopped,
    AuxiliaryModelCall,
    Checkpoint,
    Message,
    ModelReply,
    SystemPrompt,
    ToolCall,
    ToolResult,
    Trajectory,
)
from patchwright.resolver.llm.model import Model, Reply
from patchwright.resolver.llm.prompt_fingerprint import PromptFingerprinter, tool_schemas
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.run_calls import CallIds, find_unstarted_call, get_confirmation
from patchwright.resolver.run_events import Condensation
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.resolver.tool_actions.unchecked_actions import MalformedCall
from patchwright.resolver.tools.sandbox_tools import add_note
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.runtime.observations import ActionFailure, ImageData
from patchwright.runtime.sandbox import call_context

logger = logging.getLogger(__name__)

# Maximum number of tool calls per reply. A model that sends more calls is confused, and every call makes the
# log longer.
MAX_CALLS = 32
NOT_SAVED = (
    "Your changes are not saved while they are too large: delete the large files, or move them elsewhere"
)
# Maximum characters of a reply's text. The rest is cut, because every later prompt contains the text again.
MAX_THOUGHT = 100_000


async def record_prompts(
    log: RunLog,
    system: str,
    initial_prompt: str,
    tools: ToolRegistry,
    images: tuple[ImageData, ...] = (),
    author: str = "",
) -> None:
    """Appends the system prompt and the initial prompt to the log, unless the log already contains them. `author` is
    the login of the thread's author.
    """
    events = tuple(log.trajectory)
    if not any(isinstance(event, SystemPrompt) for event in events):
        await log.append(SystemPrompt(text=system, tools=tool_schemas(tools.specs)))
    if not any(isinstance(event, Message) and event.source == "initial_prompt" for event in events):
        await log.append(Message(text=initial_prompt, source="initial_prompt", images=images, author=author))


async def unknown_fingerprint() -> None:
    """Returns None: the fingerprint of the work tree is unknown. An agent uses this function by default."""


async def leave_undecided(request: ConfirmationRequest) -> Message | None:
    """Returns None: nobody decides now. An agent uses this function by default."""


async def no_new_messages() -> tuple[Message, ...]:
    """Returns no messages. An agent uses this function by default."""
    return ()


@dataclass
class Agent:
    """Works on one run in one sandbox. A new sandbox needs a new agent."""

    model: Model
    tools: ToolRegistry
    limits: Limits
    take_patch: Callable[[], Awaitable[Patch]]
    """Returns the current work tree of the sandbox as a diff against the base."""
    scratch: str
    """Absolute path of the sandbox's directory for temporary files."""
    fingerprint_tree: Callable[[], Awaitable[str | None]] = unknown_fingerprint
    """Returns a fingerprint of the work tree, or None if it is unknown. While the fingerprint stays the same,
    no new checkpoint is needed.
    """
    is_same_sandbox: bool = False
    """True if the run continues in its previous sandbox, with the files and processes of that sandbox."""
    sandbox_loss_reason: str | None = None
    """Why the previous sandbox was lost, if that is known."""
    context_policy: ContextPolicy = DEFAULT_CONTEXT_POLICY
    """Decides when the conversation is shortened, and how."""
    recover_result: Callable[[ToolCall], Awaitable[AnyObservation | None]] | None = None
    """Recovers the result of an interrupted call that wrote a log of its own, such as a call of a subagent. None
    if no tool of the agent writes such a log.
    """
    planning_interval: int = 0
    """Number of replies after which the model is asked to review and plan. 0 means never."""
    get_new_messages: Callable[[], Awaitable[tuple[Message, ...]]] = no_new_messages
    """Returns messages from Patchwright and from people. The agent adds each message to the log once, before
    the next model call. Messages with the same `trigger_id` count as one message. Without a `trigger_id`,
    messages with the same `source` count as one.
    """
    final_tool: Literal["finish", "propose_plan", "report"] | None = None
    """The tool that ends the work. If None, it is derived from the list of tools."""
    text_ends_turn: bool = False
    """True if a reply without a tool call ends the turn, because a person reads it. Otherwise, the model is told that
    only tool calls have an effect.
    """
    is_uninterrupted: bool = False
    """True if an earlier agent of this process ended between two steps, so that nothing has to be recovered."""
    ask_person: Callable[[ConfirmationRequest], Awaitable[Message | None]] = leave_undecided
    """Asks a person at once whether a call may run. Returns the message with the decision. If it returns None, the
    agent stops and the call waits.
    """
    finish_checks: Callable[[Trajectory], tuple[str, ...]] = lambda trajectory: ()
    """Returns one sentence for each thing that is still missing when the agent wants to finish. The agent is
    reminded only once.
    """
    _has_taken_over: bool = field(default=False, init=False)
    _conversation: Conversation = field(default_factory=Conversation, init=False)
    _call_ids: CallIds = field(default_factory=CallIds, init=False)
    _saved_fingerprint: str | None = field(default=None, init=False)
    """Fingerprint of the work tree at the last checkpoint."""

    @property
    def _tool_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.tools.specs)

    @cached_property
    def _fingerprints(self) -> PromptFingerprinter:
        return PromptFingerprinter(tool_schemas(self.tools.specs))

    async def run(self, log: RunLog) -> AgentStopped:
        """Works until the run stops. If the run has already stopped and no new message restarts it, returns at once.

        If this call is canceled, another agent can continue the run from its log. The same is true if the
        call raises ModelAccessDenied (an operator must act) or SandboxError (the machine failed).
        """
        stopped = await self._work(log)
        while stopped.confirmation and (decision := await self.ask_person(stopped.confirmation)):
            await log.append(decision)
            stopped = await self._work(log)
        return stopped

    async def _work(self, log: RunLog) -> AgentStopped:
        waits = get_confirmation(log.trajectory) is not None
        if not (self._has_taken_over or self.is_uninterrupted or waits):
            self._has_taken_over = True
            await self._resume_calls(log)
        while (stopped := log.trajectory.agent_stopped) is None:
            _raise_if_canceled()
            await self._step(log)
        return stopped

    async def _resume_calls(self, log: RunLog) -> None:
        """Handles the tool calls that were interrupted when an earlier process stopped.

        Tells the model whether its sandbox is still the same. Calls that the sandbox can safely repeat stay
        pending. Each other call gets a result in the log, such as a note that the call was interrupted.
        """
        trajectory = log.trajectory
        if trajectory.agent_stopped or not trajectory.replies() or find_requested_stop(trajectory):
            return
        is_saved, unstarted = _is_first_call_checkpointed(trajectory), find_unstarted_call(trajectory)
        text = (
            render_prompt("same_sandbox.md.j2")
            if self.is_same_sandbox
            else render_prompt("new_sandbox.md.j2", scratch=self.scratch, reason=self.sandbox_loss_reason)
        )
        await log.append(Message(text=text, source="resume", new_sandbox=not self.is_same_sandbox))
        calls = _execution_order(trajectory.pending_calls())
        repeatable = [call for call in calls if self.is_same_sandbox and call.action.is_repeatable]
        if self.is_same_sandbox and not repeatable:
            # If the change is too large, the next call that changes a file reports this error.
            with contextlib.suppress(ChangeTooLarge):
                await self._save_checkpoint(log)
        for number, call in enumerate(calls):
            if call in repeatable or call == unstarted:
                continue  # Sending the call again is safe: the sandbox runs each call only once.
            observation = await self.recover_result(call) if self.recover_result else None
            if observation is None:
                message = render_prompt(
                    "unstarted_call.md.j2" if unstarted else "lost_call.md.j2",
                    is_saved=is_saved and number == 0,
                    is_same_sandbox=self.is_same_sandbox,
                )
                observation = ActionFailure(reason="lost", message=message)
            await log.append(ToolResult(call_id=call.id, observation=observation))

    async def _step(self, log: RunLog) -> None:
        trajectory = log.trajectory
        if calls := trajectory.pending_calls():
            await self._run_call(_execution_order(calls)[0], log)
        elif stopped := find_requested_stop(trajectory, text_ends_turn=self.text_ends_turn):
            await self._stop(stopped, log)
        elif limit := run_limits.check_limits(trajectory, self.limits):
            await self._stop(ask_with_text(limit, trajectory, self._tool_names), log)
        elif message := await self._next_message(trajectory):
            await log.append(message)
        else:
            await self._request_reply(log)

    async def _run_call(self, call: ToolCall, log: RunLog) -> None:
        try:
            observation = self._finish_objection(call, log.trajectory) or await self._call_tool(call)
        except ConfirmationRequired as exc:
            await self._stop(describe_confirmation(exc.request), log)
            return
        if call.action.may_change_files and not isinstance(observation, ActionFailure):
            try:
                await self._save_checkpoint(log)
            except ChangeTooLarge as exc:
                # The change stays in the sandbox, so that the model can undo the part that is too large.
                observation = add_note(observation, f"{exc} {NOT_SAVED}")
        await log.append(ToolResult(call_id=call.id, observation=observation))

    async def _call_tool(self, call: ToolCall) -> AnyObservation:
        with call_context(call.id):
            return await self.tools.execute(call.action)

    def _finish_objection(self, call: ToolCall, trajectory: Trajectory) -> ActionFailure | None:
        """Returns why a finish call is rejected, or None if the call is accepted.

        Only the first finish call is rejected. The second one is accepted, and the summary lists what is missing.
        """
        if not isinstance(call.action, Finish) or was_sent_back(trajectory):
            return None
        if not (missing := self.finish_checks(trajectory)):
            return None
        return ActionFailure(
            reason="refused", message=render_prompt("finish_rejected.md.j2", missing=missing)
        )

    async def _save_checkpoint(self, log: RunLog, *, force: bool = False) -> None:
        """Appends the work tree to the log if the tree changed since the last checkpoint. Raises ChangeTooLarge.

        If `force` is True, the tree is compared even if its fingerprint is unchanged. A program that writes
        to a memory-mapped file does not change the fingerprint.
        """
        # The fingerprint is taken before the patch. If the tree changes after the fingerprint, the next
        # fingerprint differs, and the tree is saved again.
        fingerprint = None if force else await self.fingerprint_tree()
        if fingerprint is not None and fingerprint == self._saved_fingerprint:
            return
        patch = await self.take_patch()
        if patch != (log.trajectory.last_checkpoint() or Patch(base_sha=patch.base_sha, diff=b"")):
            await log.append(Checkpoint(patch=patch))
        self._saved_fingerprint = fingerprint

    async def _stop(self, stopped: AgentStopped, log: RunLog) -> None:
        """Saves a last checkpoint and appends the stop to the log. The checkpoint includes the changes of
        background processes.
        """
        # If the change is too large, the previous checkpoint remains the last one.
        with contextlib.suppress(ChangeTooLarge):
            await self._save_checkpoint(log, force=True)
        await log.append(stopped)

    async def _next_message(self, trajectory: Trajectory) -> Message | None:
        """Returns the message to send before the next model call, or None if there is none."""
        last = last_message_or_reply(trajectory)
        names = self._tool_names
        final_tool = self.final_tool or ("finish" if "finish" in names else "report")
        if isinstance(last, ModelReply) and not last.calls:
            text = (
                render_prompt("truncated.md.j2", tool=None)
                if last.truncated
                else render_prompt("no_call.md.j2", tools=names, final_tool=final_tool)
            )
            return Message(text=text, source="program")
        if pattern := stuck.find_pattern(trajectory):
            text = render_prompt("nudge.md.j2", pattern=pattern, final_tool=final_tool)
            return Message(text=text, source="nudge")
        for message in await self.get_new_messages():
            if not _is_delivered(message, trajectory):
                return message
        if run_limits.is_planning_due(trajectory, self.planning_interval):
            return Message(text=render_prompt("planning.md.j2", has_list="plan" in names), source="planning")
        if (steps_left := run_limits.steps_left_notice(trajectory, self.limits)) is not None:
            text = render_prompt("steps_left.md.j2", steps=steps_left, final_tool=final_tool)
            notice = Message(text=text, source="program")
            return None if last == notice else notice
        return None

    async def _request_reply(self, log: RunLog) -> None:
        before = log.trajectory
        if condensation := await self.context_policy.condense_if_needed(before):
            await self._append_all(condensation, log)
            return  # The cost of the condensation counts against the limits before the model is called.
        try:
            prompt = self._conversation.build_messages(before)
            reply = await self.model.reply(prompt, self.tools.specs)
        except ModelError as exc:
            if exc.usage is not None:  # The provider billed the failed call.
                await log.append(AuxiliaryModelCall(purpose="failed", usage=exc.usage))
            await self._handle_model_error(exc, before, log)
            return
        fingerprint = self._fingerprints.fingerprint(prompt)
        await log.append(
            self._record_reply(reply, before).model_copy(update={"prompt_fingerprint": fingerprint})
        )
        if log.trajectory.usage().unpriced and not before.usage().unpriced:
            logger.warning("price unknown, dollar limit not enforced", extra={"model": reply.usage.model})

    async def _handle_model_error(self, exc: ModelError, before: Trajectory, log: RunLog) -> None:
        if isinstance(exc, ModelAccessDenied):
            raise exc  # Every other run would fail, too, so the operator must see the error.
        if not isinstance(exc, ContextOverflow):
            await self._stop(AgentStopped(reason="error", detail=str(exc)), log)
            return
        condensation = await self.context_policy.condense_after_overflow(before)
        await self._append_all(condensation, log)
        if not any(isinstance(event, Condensation) for event in condensation):
            await self._stop(AgentStopped(reason="limit", detail=str(exc)), log)

    async def _append_all(self, events: CondenserEvents, log: RunLog) -> None:
        for event in events:
            await log.append(event)

    def _record_reply(self, reply: Reply, before: Trajectory) -> ModelReply:
        self._call_ids.add_replies(before.replies())
        calls: list[ToolCall] = []
        for number, raw_call in enumerate(reply.tool_calls[:MAX_CALLS], start=1):
            action = self.tools.parse(raw_call)
            if number == MAX_CALLS and len(reply.tool_calls) > MAX_CALLS:
                problem = render_prompt("too_many_calls.md.j2", count=len(reply.tool_calls), limit=MAX_CALLS)
                action = MalformedCall(name=raw_call.name[:100], arguments="{}", problem=problem)
            elif reply.truncated and number == len(reply.tool_calls) and isinstance(action, MalformedCall):
                problem = render_prompt("truncated.md.j2", tool=action.name)
                action = action.model_copy(update={"problem": problem})
            calls.append(ToolCall(id=self._call_ids.make_unique(raw_call.id), action=action))
        return ModelReply(
            thought=reply.text[:MAX_THOUGHT],
            calls=tuple(calls),
            usage=reply.usage,
            reasoning=reply.reasoning,
            truncated=reply.truncated,
        )


def _raise_if_canceled() -> None:
    """Raises CancelledError if the task was canceled but the awaited call ignored the cancellation.

    In Python 3.11, `wait_for` ignores a cancellation if the result arrives at the same moment. The model's client uses
    `wait_for`, so a canceled run could continue for hours. Source: github.com/python/cpython/issues/86296
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _is_first_call_checkpointed(trajectory: Trajectory) -> bool:
    """Returns True if the first pending call was executed and the new sandbox contains its changes.

    A checkpoint is written before the result of its call. If the log ends with a checkpoint, the call's
    result is therefore still missing.
    """
    events = (entry.event for entry in reversed(trajectory.entries))
    last = next(event for event in events if isinstance(event, ModelReply | Checkpoint | ToolResult))
    return isinstance(last, Checkpoint)


def _execution_order(calls: tuple[ToolCall, ...]) -> list[ToolCall]:
    """Returns the calls in the model's order. A call that ends the run is moved to the end."""
    return sorted(calls, key=lambda call: call.action.ends_run)


def _is_delivered(message: Message, trajectory: Trajectory) -> bool:
    messages = (event for event in trajectory if isinstance(event, Message))
    if message.trigger_id is not None:
        return any(event.trigger_id == message.trigger_id for event in messages)
    return any(event.source == message.source for event in messages)
