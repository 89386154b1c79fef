"""A conversation in the form of chat completions, which litellm turns into each provider's own."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from resolver.llm.model import FromModel, FromTool, FromUser, Message, System, ToolCall, unseen
from runtime.observations import Picture

Json = dict[str, Any]

MARK = {"type": "ephemeral"}
"""Up to here the prompt is kept by the provider, and cheap the next time; the mark is no part of what is kept.

Source: platform.claude.com/docs/en/build-with-claude/prompt-caching
"""


def written(messages: Sequence[Message], *, reader: str, sees: bool, marked: bool = False) -> list[Json]:
    """The messages as they are sent to the model `reader`.

    `marked`: with cache marks. They stand after the system prompt, after what was last when the model was asked
    before, so that it is found again however much came since, and after what is last now.
    """
    sent = [_message(message, reader, sees) for message in messages]
    if marked:
        for index in _marks(messages):
            _mark(sent[index])
    return sent


def _message(message: Message, reader: str, sees: bool) -> Json:
    match message:
        case FromTool(call=call, text=text):
            return {"role": "tool", "tool_call_id": call, "content": text}
        case FromModel(text=text, calls=calls):
            sent: Json = {"role": "assistant", "content": text or None}
            if calls:
                sent["tool_calls"] = [_call(call) for call in calls]
            for block in message.reasoning_for(reader):
                _reason(sent, block)
            return sent
        case FromUser(text=text, pictures=pictures) if pictures and sees:
            return {"role": "user", "content": [{"type": "text", "text": text}, *map(_picture, pictures)]}
        case FromUser(text=text, pictures=pictures) if pictures:
            return {"role": "user", "content": f"{text}\n{unseen(len(pictures))}"}
        case System(text=text) | FromUser(text=text):
            return {"role": message.role, "content": text}


def _picture(picture: Picture) -> Json:
    return {"type": "image_url", "image_url": {"url": data_url(picture)}}


def data_url(picture: Picture) -> str:
    return f"data:{picture.media};base64,{base64.b64encode(picture.data).decode('ascii')}"


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


# --- reasoning ----------------------------------------------------------------------------------------------
# Kept as blocks with a `type`: Anthropic's own, and ours for what other providers put elsewhere in a message.

_FIELDS = ("reasoning_content", "reasoning_details")
"""Fields of a message that DeepSeek and OpenRouter want back as they were."""


def reasoning(message: Any) -> tuple[Json, ...]:
    """The reasoning in a message that litellm read."""
    if blocks := getattr(message, "thinking_blocks", None):
        return tuple(dict(block) for block in blocks)
    extra = getattr(message, "provider_specific_fields", None) or {}
    found: list[Json] = []
    for name in _FIELDS:
        if value := getattr(message, name, None) or extra.get(name):
            found.append({"type": name, "value": value})
    if signatures := extra.get("thought_signatures"):
        found.append({"type": "thought_signatures", "value": list(signatures)})
    for number, call in enumerate(getattr(message, "tool_calls", None) or ()):
        fields = getattr(call, "provider_specific_fields", None) or {}
        if signature := fields.get("thought_signature"):
            found.append({"type": "thought_signature", "call": number, "value": signature})
    return tuple(found)


def _reason(sent: Json, block: Mapping[str, Any]) -> None:
    """Put a block back to where it was."""
    match block:
        case {"type": str(name), "value": value} if name in _FIELDS:
            sent[name] = value
        case {"type": "thought_signatures", "value": value}:
            sent["provider_specific_fields"] = {"thought_signatures": value}
        case {"type": "thought_signature", "call": int(number), "value": value}:
            if number < len(calls := sent.get("tool_calls", [])):
                calls[number]["provider_specific_fields"] = {"thought_signature": value}
        case {"type": "thinking" | "redacted_thinking"}:
            sent.setdefault("thinking_blocks", []).append(dict(block))


# --- cache marks --------------------------------------------------------------------------------------------


def _marks(messages: Sequence[Message]) -> set[int]:
    replies = [index for index, message in enumerate(messages) if isinstance(message, FromModel)]
    ends = {len(messages) - 1}
    if messages and isinstance(messages[0], System):
        ends.add(0)
    if replies:
        ends.add(replies[-1] - 1)
    return {index for index in ends if index >= 0 and not isinstance(messages[index], FromModel)}


def _mark(sent: Json) -> None:
    if sent["role"] == "tool":
        sent["cache_control"] = MARK
        return
    content = sent["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    sent["content"] = [*blocks[:-1], {**blocks[-1], "cache_control": MARK}]
