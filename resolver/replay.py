"""Rebuilds the prompt of each step of a run from the run's log, without a model or a sandbox. Compares each
rebuilt prompt with the prompt that was sent.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from patchwright.resolver import messages
from patchwright.resolver.browsing import prompt as browsing_prompt
from patchwright.resolver.events import ModelReply, SystemPrompt, Trajectory
from patchwright.resolver.llm.model import (
    AssistantMessage,
    ChatMessage,
    SystemMessage,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from patchwright.runtime.frozen_model import FrozenModel


class ReplayedStep(FrozenModel):
    """One rebuilt step of a run."""

    number: int
    """Number of the model's reply. The first reply is 1."""
    messages: int
    characters: int
    """Number of characters in the messages, without images."""
    cached_messages: int
    """Number of messages at the start of the prompt that are the same as in the previous step."""
    sent_fingerprint: str
    """Fingerprint of the prompt that was sent; "" in a log of an older version."""
    rebuilt_fingerprint: str
    """Fingerprint of the rebuilt prompt."""

    @property
    def is_identical(self) -> bool:
        return self.sent_fingerprint in ("", self.rebuilt_fingerprint)


def replay_run(trajectory: Trajectory) -> Iterator[ReplayedStep]:
    """Yields each step of a run, in order."""
    number, previous = 0, tuple[ChatMessage, ...]()
    for position, entry in enumerate(trajectory.entries):
        if not isinstance(entry.event, ModelReply):
            continue
        number += 1
        prompt = messages_at(trajectory, position)
        yield ReplayedStep(
            number=number,
            messages=len(prompt),
            characters=sum(len(text) for message in prompt for text in _message_texts(message)),
            cached_messages=_common_prefix_length(previous, prompt),
            sent_fingerprint=entry.event.prompt_fingerprint,
            rebuilt_fingerprint=fingerprint(prompt, _recorded_tools(trajectory)),
        )
        previous = prompt


def messages_at(trajectory: Trajectory, entry: int) -> tuple[ChatMessage, ...]:
    """Returns the messages that were sent to the model before its reply. `entry` is the position of this reply
    in the log.
    """
    earlier = Trajectory(trajectory.entries[:entry])
    build: Callable[[Trajectory], tuple[ChatMessage, ...]] = messages.build_messages
    if trajectory.subagent_started is not None and trajectory.subagent_started.role == "browse":
        build = browsing_prompt.build_prompt
    return build(earlier)


def fingerprint(messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]]) -> str:
    """Returns the fingerprint of a prompt: 32 hexadecimal digits. Prompts with the same fingerprint are
    identical, byte for byte.
    """
    return PromptFingerprinter(tools).fingerprint(tuple(messages))


class PromptFingerprinter:
    """Computes fingerprints of the prompts in a growing conversation. Each call processes only the new
    messages.
    """

    def __init__(self, tools: Sequence[dict[str, Any]]) -> None:
        self._tools = blake2b(json.dumps(list(tools), sort_keys=True).encode(), digest_size=16)
        self._read: tuple[ChatMessage, ...] = ()
        self._digest = self._tools.copy()

    def fingerprint(self, messages: tuple[ChatMessage, ...]) -> str:
        """Returns the fingerprint of the prompt. The result does not depend on earlier calls."""
        known = len(self._read)
        if messages[:known] != self._read:
            known, self._digest = 0, self._tools.copy()
        for message in messages[known:]:
            _update_digest(self._digest, message)
        self._read = messages
        return self._digest.hexdigest()


def _update_digest(digest: blake2b, message: ChatMessage) -> None:
    for text in (message.role, *_message_texts(message)):
        part = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(part))
        digest.update(part)
    if isinstance(message, UserMessage):
        for image in message.images:
            digest.update(blake2b(image.data).digest())


def tool_schemas(specs: Sequence[ToolSpec]) -> tuple[dict[str, Any], ...]:
    """Returns the tool definitions in the form in which they are logged and sent to providers."""
    return tuple(spec.to_openai() for spec in specs)


def _recorded_tools(trajectory: Trajectory) -> tuple[dict[str, Any], ...]:
    return next((event.tools for event in trajectory if isinstance(event, SystemPrompt)), ())


def _message_texts(message: ChatMessage) -> Iterator[str]:
    match message:
        case SystemMessage(text=text) | UserMessage(text=text):
            yield text
        case ToolMessage(tool_call_id=call_id, text=text):
            yield from (call_id, text)
        case AssistantMessage(text=text, tool_calls=calls, reasoning=reasoning):
            yield text
            for call in calls:
                yield from (call.id, call.name, call.arguments)
            for block in reasoning:
                yield json.dumps(block, sort_keys=True)


def _common_prefix_length(before: Sequence[ChatMessage], after: Sequence[ChatMessage]) -> int:
    pairs = enumerate(zip(before, after, strict=False))
    return next((position for position, (old, new) in pairs if old != new), min(len(before), len(after)))
