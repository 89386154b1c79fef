"""Decides from the log alone when and how to shorten a conversation. Each decision is logged as a
`Condensation`.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, Protocol

from patchwright.resolver.activity.summary import list_steps
from patchwright.resolver.agent.messages import (
    build_messages,
    get_images,
    is_maskable,
    merge_condensations,
    render_observation,
)
from patchwright.resolver.errors import ModelError
from patchwright.resolver.events import (
    AuxiliaryModelCall,
    Entry,
    Event,
    Message,
    ModelReply,
    SystemPrompt,
    ToolResult,
    Trajectory,
)
from patchwright.resolver.llm import token_estimate
from patchwright.resolver.llm.model import ChatMessage, Model, SystemMessage, UserMessage
from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.run_events import Condensation
from patchwright.resolver.tool_actions.control_actions import Plan
from patchwright.runtime.output_text import clip

logger = logging.getLogger(__name__)

KEEP_REPLIES = 6  # Number of latest replies that stay unchanged.
MIN_MASKED_LENGTH = 1_000  # Characters. Masking a shorter result saves almost nothing.
# Minimum number of replies between two condensations. Each condensation invalidates the provider's prompt
# cache.
MIN_INTERVAL = 4
TARGET_SHARE = 0.6  # Length that a condensation aims for, as a share of the limit.
# Maximum ratio of actual tokens to our estimate. For code and English text, no tokenizer exceeds this ratio.
MAX_TOKEN_RATIO = 1.8
OVERFLOW_SHARE = 0.8  # Target length after an overflow, as a share of the length that the provider rejected.
MAX_SUMMARY = 12_000  # Characters.
SUMMARY_TOKENS = 3_000  # Tokens reserved for a summary.
MAX_SUMMARY_INPUT = 120_000  # Maximum characters of the text from which a summary is written.
MAX_LISTED_CALLS = 60  # Number of the latest calls that are listed if no summary is available.

CondensationCause = Literal["length", "overflow"]
CondenserEvents = tuple[AuxiliaryModelCall | Condensation, ...]
"""Events to append to the log; empty if there is nothing to do."""


class Condenser(Protocol):
    """Shortens a conversation."""

    async def condense(self, trajectory: Trajectory, goal: int) -> CondenserEvents:
        """Returns the events that shorten the conversation to `goal` tokens (as `context_tokens` counts
        them), or as close to `goal` as possible.
        """


@dataclass(frozen=True)
class MaskingCondenser:
    """Replaces each large tool result with one line. The results of the latest `keep` replies stay."""

    keep: int = KEEP_REPLIES
    min_length: int = MIN_MASKED_LENGTH

    async def condense(self, trajectory: Trajectory, goal: int) -> CondenserEvents:
        earlier = merge_condensations(trajectory)
        replies = trajectory.replies()
        masked_replies = replies[earlier.forgotten_replies : max(len(replies) - self.keep, 0)]
        calls = {call.id for reply in masked_replies for call in reply.calls}
        large_results = tuple(
            event.call_id
            for event in trajectory
            if isinstance(event, ToolResult)
            and event.call_id in calls
            and event.call_id not in earlier.masked_calls
            and is_maskable(event.observation)
            and (
                len(render_observation(event.observation)) > self.min_length or get_images(event.observation)
            )
        )
        return (Condensation(masked_calls=tuple(dict.fromkeys(large_results))),) if large_results else ()


@dataclass(frozen=True)
class ListingCondenser:
    """Replaces all but the latest replies with one line per call."""

    keep: int = KEEP_REPLIES

    async def condense(self, trajectory: Trajectory, goal: int) -> CondenserEvents:
        if (forgotten := count_forgettable_replies(trajectory, self.keep, goal)) is None:
            return ()
        return (_forget_replies(trajectory, forgotten, None),)


@dataclass(frozen=True)
class SummarizingCondenser:
    """Replaces all but the latest replies with a summary that a model writes.

    If the model fails or writes nothing, one line per call replaces the old replies.
    """

    model: Model
    keep: int = KEEP_REPLIES

    async def condense(self, trajectory: Trajectory, goal: int) -> CondenserEvents:
        if (forgotten := count_forgettable_replies(trajectory, self.keep, goal)) is None:
            return ()
        removed = _removed_messages(trajectory, forgotten)
        record = render("prompts/condense_request.md.j2", messages=removed)
        messages: list[ChatMessage] = [
            SystemMessage(text=render("prompts/condense_system.md.j2")),
            UserMessage(text=clip(record, MAX_SUMMARY_INPUT)),
        ]
        try:
            reply = await self.model.reply(messages, ())
        except ModelError as exc:
            logger.warning("summary failed", extra={"model": self.model.name, "error": str(exc)})
            failed_call = (
                () if exc.usage is None else (AuxiliaryModelCall(purpose="condense", usage=exc.usage),)
            )
            return (*failed_call, _forget_replies(trajectory, forgotten, None))
        call = AuxiliaryModelCall(purpose="condense", usage=reply.usage)
        return (call, _forget_replies(trajectory, forgotten, reply.text.strip()[:MAX_SUMMARY] or None))


@dataclass(frozen=True)
class PipelineCondenser:
    """Applies several condensers, one after the other, until the conversation is short enough."""

    condensers: tuple[Condenser, ...]

    async def condense(self, trajectory: Trajectory, goal: int) -> CondenserEvents:
        events: CondenserEvents = ()
        for condenser in self.condensers:
            condensed = extend_trajectory(trajectory, events)
            if events and token_estimate.estimate_tokens(build_messages(condensed)) <= goal:
                break
            events += await condenser.condense(condensed, goal)
        return events


MASKING_THEN_LISTING = PipelineCondenser((MaskingCondenser(), ListingCondenser()))


@dataclass(frozen=True)
class ContextPolicy:
    """The maximum length of a conversation, and the condenser that enforces it."""

    condenser: Condenser = MASKING_THEN_LISTING
    max_tokens: int = token_estimate.MAX_CONTEXT_TOKENS

    async def condense_if_needed(self, trajectory: Trajectory) -> CondenserEvents:
        """Returns the events to append before the next model call. Returns no events if the conversation is
        short enough, or if it was shortened only a few replies ago.
        """
        overflows = (event for event in trajectory.condensations() if event.cause == "overflow")
        limit = min([self.max_tokens, *(int(OVERFLOW_SHARE * event.tokens_before) for event in overflows)])
        # The new messages may have more tokens than estimated, and the prompt must stay below the limit.
        tokens = context_tokens(trajectory, MAX_TOKEN_RATIO)
        if tokens <= limit or _replies_since_condensed(trajectory) < MIN_INTERVAL:
            return ()
        # The tokens are counted only now, because counting takes as long as building the whole prompt.
        if (tokens := _check_tokens(tokens, trajectory)) <= limit:
            return ()
        return await self._condense(trajectory, self.condenser, "length", tokens, int(TARGET_SHARE * limit))

    async def condense_after_overflow(self, trajectory: Trajectory) -> CondenserEvents:
        """Returns the events to append after the provider rejected the prompt as too long. Returns no events
        if the conversation was already condensed for this reason and the model has not replied since.
        """
        last = next(
            (e for e in _reversed_events(trajectory) if isinstance(e, ModelReply | Condensation)), None
        )
        if isinstance(last, Condensation) and last.cause == "overflow":
            return ()
        tokens = _check_tokens(context_tokens(trajectory), trajectory)
        # As a last resort, all results are masked, because a single result may be larger than the context
        # window.
        condenser = PipelineCondenser((self.condenser, MaskingCondenser(keep=0)))
        return await self._condense(trajectory, condenser, "overflow", tokens, tokens // 2)

    async def _condense(
        self, trajectory: Trajectory, condenser: Condenser, cause: CondensationCause, tokens: int, goal: int
    ) -> CondenserEvents:
        """Applies the condenser and returns its events. The lengths in these events are our estimates, scaled
        to the provider's token count.
        """
        estimated = token_estimate.estimate_tokens(build_messages(trajectory)) or 1
        ratio = min(max(tokens / estimated, 0.25), 4.0)
        events = await condenser.condense(trajectory, int(goal / ratio))
        tokens_after = int(
            ratio * token_estimate.estimate_tokens(build_messages(extend_trajectory(trajectory, events)))
        )
        update = {"cause": cause, "tokens_before": tokens, "tokens_after": tokens_after}
        model_calls = tuple(event for event in events if isinstance(event, AuxiliaryModelCall))
        if tokens_after < tokens:
            return (*model_calls, merge_condensations(events).model_copy(update=update))
        if not events or cause == "overflow":
            return model_calls
        # Condensing would make the prompt longer. The attempt is recorded, so that it is not repeated before
        # each model call.
        return (*model_calls, Condensation(cause=cause, tokens_before=tokens, tokens_after=tokens))


DEFAULT_CONTEXT_POLICY = ContextPolicy()
"""Decides by default when and how an agent shortens its conversation. Needs no second model for summaries."""


def context_tokens(trajectory: Trajectory, ratio: float = 1.0) -> int:
    """Returns the tokens of the conversation that would be sent now.

    The tokens up to the last reply are the provider's count, and the tokens after it are our estimate, multiplied by
    `ratio`. If there is no count since the last condensation, all tokens are estimated.
    """
    added = 0
    for event in _reversed_events(trajectory):
        if isinstance(event, Condensation):
            break
        if isinstance(event, ModelReply):
            if event.usage.prompt_tokens:
                return event.usage.prompt_tokens + event.usage.completion_tokens + int(ratio * added)
            break
        added += _event_tokens(event)
    return _estimate_tokens(trajectory)


def _check_tokens(reported: int, trajectory: Trajectory) -> int:
    """Returns the provider's count of tokens. A provider that tried several times to produce a reply may
    report the sum of all tries. If the count is implausibly high for this reason, returns our estimate
    instead.
    """
    estimated = _estimate_tokens(trajectory)
    return reported if reported <= MAX_TOKEN_RATIO * estimated else estimated


def _estimate_tokens(trajectory: Trajectory) -> int:
    system_prompt = next((event for event in trajectory if isinstance(event, SystemPrompt)), None)
    tools = token_estimate.estimate_text_tokens(str(system_prompt.tools)) if system_prompt else 0
    return tools + token_estimate.estimate_tokens(build_messages(trajectory))


def count_forgettable_replies(trajectory: Trajectory, keep: int, goal: int) -> int | None:
    """Returns how many of the first replies to drop, so that the other replies and a summary fit into `goal`
    tokens. If they cannot fit, returns the number of all replies except the latest one.

    Returns None if no further reply can be dropped. The latest reply is never dropped, because providers
    require its calls, results and reasoning.
    """
    replies = len(trajectory.replies())
    dropped = merge_condensations(trajectory).forgotten_replies
    for kept in range(max(keep, 1), 0, -1):
        forgotten = replies - kept
        if forgotten <= dropped:
            continue
        rest = build_messages(
            extend_trajectory(trajectory, (Condensation(forgotten_replies=forgotten, summary="-"),))
        )
        if kept == 1 or token_estimate.estimate_tokens(rest) <= max(goal // 2, goal - SUMMARY_TOKENS):
            return forgotten
    return None


def extend_trajectory(trajectory: Trajectory, events: tuple[Event, ...]) -> Trajectory:
    """Returns the trajectory with these events added."""
    if not events:
        return trajectory
    at = trajectory.entries[-1].timestamp
    added = (Entry(seq=len(trajectory) + n, timestamp=at, event=event) for n, event in enumerate(events))
    return Trajectory((*trajectory.entries, *added))


def _forget_replies(trajectory: Trajectory, count: int, summary: str | None) -> Condensation:
    calls = None
    if summary is None:
        calls = [step for step in list_steps(trajectory) if step.number <= count][-MAX_LISTED_CALLS:]
    plan = _forgotten_plan(trajectory, count)
    return Condensation(
        forgotten_replies=count,
        summary=render("prompts/condensation.md.j2", replies=count, summary=summary, steps=calls, plan=plan),
    )


def _forgotten_plan(trajectory: Trajectory, forgotten: int) -> Plan | None:
    """Returns the latest plan if one of the dropped replies contains it, or None otherwise."""
    plans = [
        (number, call.action)
        for number, reply in enumerate(trajectory.replies(), start=1)
        for call in reply.calls
        if isinstance(call.action, Plan)
    ]
    return plans[-1][1] if plans and plans[-1][0] <= forgotten else None


def _removed_messages(trajectory: Trajectory, forgotten: int) -> tuple[ChatMessage, ...]:
    """Returns the messages that are sent now and would no longer be sent after the condensation."""
    current = build_messages(trajectory)
    remaining = build_messages(
        extend_trajectory(trajectory, (Condensation(forgotten_replies=forgotten, summary="-"),))
    )
    unchanged = sum(
        1
        for _ in takewhile(lambda pair: pair[0] == pair[1], zip(current[::-1], remaining[::-1], strict=False))
    )
    return tuple(
        message for message in current[: len(current) - unchanged] if not isinstance(message, SystemMessage)
    )


def _replies_since_condensed(trajectory: Trajectory) -> int:
    """Returns the number of replies since the last condensation. If there was no condensation, the result is
    at least MIN_INTERVAL.
    """
    count = 0
    for event in _reversed_events(trajectory):
        match event:
            case Condensation():
                return count
            case ModelReply():
                count += 1
            case _:
                continue
    return max(count, MIN_INTERVAL)


def _reversed_events(trajectory: Trajectory) -> Iterator[Event]:
    return (entry.event for entry in reversed(trajectory.entries))


def _event_tokens(event: Event) -> int:
    match event:
        case ToolResult(observation=observation):
            image_tokens = token_estimate.TOKENS_PER_IMAGE * len(get_images(observation))
            return (
                token_estimate.estimate_text_tokens(render_observation(observation))
                + token_estimate.TOKENS_PER_MESSAGE
                + image_tokens
            )
        case Message(text=text, images=images):
            return (
                token_estimate.estimate_text_tokens(text)
                + token_estimate.TOKENS_PER_MESSAGE
                + token_estimate.TOKENS_PER_IMAGE * len(images)
            )
        case _:
            return 0
