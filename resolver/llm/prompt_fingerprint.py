"""Computes fingerprints of prompts, so that a replay can compare the rebuilt prompts with the prompts sent."""

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

from patchwright.resolver.llm.model import (
    AssistantMessage,
    ChatMessage,
    SystemMessage,
    ToolMessage,
    ToolSpec,
    UserMessage,
)


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
    for text in (message.role, *list_message_texts(message)):
        part = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(part))
        digest.update(part)
    if isinstance(message, UserMessage):
        for image in message.images:
            digest.update(blake2b(image.data).digest())


def tool_schemas(specs: Sequence[ToolSpec]) -> tuple[dict[str, Any], ...]:
    """Returns the tool definitions in the form in which they are logged and sent to providers."""
    return tuple(spec.to_openai_tool() for spec in specs)


def list_message_texts(message: ChatMessage) -> Iterator[str]:
    """Yields all texts of a message, in a fixed order."""
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
