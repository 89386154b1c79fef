"""Converts conversations to and from OpenAI's chat completions format, which litellm translates for each
provider.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from patchwright.resolver.llm.model import (
    AssistantMessage,
    ChatMessage,
    RawToolCall,
    SystemMessage,
    ToolMessage,
    UserMessage,
    render_omitted_images,
)
from patchwright.runtime.observations import ImageData

Json = dict[str, Any]

CACHE_CONTROL = {"type": "ephemeral"}
"""Marks a content block as a cache breakpoint: the provider caches the prompt up to this block. The cached
prompt does not include the mark itself.

Source: platform.claude.com/docs/en/build-with-claude/prompt-caching
"""


def to_chat_messages(
    messages: Sequence[ChatMessage], *, model_name: str, supports_vision: bool, cache_control: bool = False
) -> list[Json]:
    """Converts messages to chat completion messages for the model `model_name`.

    If `cache_control` is True, the request has three cache breakpoints. The first follows the system prompt.
    The second follows the last message of the previous request, because the provider has cached the prompt up
    to that message. The third follows the last message of this request.
    """
    sent = [_to_chat_message(message, model_name, supports_vision) for message in messages]
    if cache_control:
        for index in _find_cache_breakpoints(messages):
            _add_cache_control(sent[index])
    return sent


def _to_chat_message(message: ChatMessage, model_name: str, supports_vision: bool) -> Json:
    match message:
        case ToolMessage(tool_call_id=call, text=text):
            return {"role": "tool", "tool_call_id": call, "content": text}
        case AssistantMessage(text=text, tool_calls=calls):
            sent: Json = {"role": "assistant", "content": text or None}
            if calls:
                sent["tool_calls"] = [_to_tool_call(call) for call in calls]
            for block in message.get_reasoning_for(model_name):
                _restore_reasoning(sent, block)
            return sent
        case UserMessage(text=text, images=images) if images and supports_vision:
            return {
                "role": "user",
                "content": [{"type": "text", "text": text}, *map(_to_image_part, images)],
            }
        case UserMessage(text=text, images=images) if images:
            return {"role": "user", "content": f"{text}\n{render_omitted_images(len(images))}"}
        case SystemMessage(text=text) | UserMessage(text=text):
            return {"role": message.role, "content": text}


def _to_image_part(image: ImageData) -> Json:
    return {"type": "image_url", "image_url": {"url": encode_data_url(image)}}


def encode_data_url(image: ImageData) -> str:
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode('ascii')}"


def _to_tool_call(call: RawToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


# Reasoning is stored as blocks with a `type`. Anthropic's blocks are stored unchanged. Other providers send
# reasoning in separate fields of the message. Each such field is stored as a block whose `type` is the
# field's name.

_REASONING_FIELDS = ("reasoning_content", "reasoning_details")
"""Message fields with reasoning that DeepSeek and OpenRouter expect unchanged in later requests."""


def extract_reasoning(message: Any) -> tuple[Json, ...]:
    """Returns the reasoning blocks of a message that litellm parsed."""
    if thinking_blocks := getattr(message, "thinking_blocks", None):
        return tuple(dict(block) for block in thinking_blocks)
    extra = getattr(message, "provider_specific_fields", None) or {}
    blocks: list[Json] = []
    for name in _REASONING_FIELDS:
        if value := getattr(message, name, None) or extra.get(name):
            blocks.append({"type": name, "value": value})
    if signatures := extra.get("thought_signatures"):
        blocks.append({"type": "thought_signatures", "value": list(signatures)})
    for number, call in enumerate(getattr(message, "tool_calls", None) or ()):
        fields = getattr(call, "provider_specific_fields", None) or {}
        if signature := fields.get("thought_signature"):
            blocks.append({"type": "thought_signature", "call": number, "value": signature})
    return tuple(blocks)


def _restore_reasoning(sent: Json, block: Mapping[str, Any]) -> None:
    """Puts a reasoning block back into the message field from which it was read."""
    match block:
        case {"type": str(name), "value": value} if name in _REASONING_FIELDS:
            sent[name] = value
        case {"type": "thought_signatures", "value": value}:
            sent["provider_specific_fields"] = {"thought_signatures": value}
        case {"type": "thought_signature", "call": int(number), "value": value}:
            if number < len(calls := sent.get("tool_calls", [])):
                calls[number]["provider_specific_fields"] = {"thought_signature": value}
        case {"type": "thinking" | "redacted_thinking"}:
            sent.setdefault("thinking_blocks", []).append(dict(block))


# --- cache breakpoints
# ----------------------------------------------------------------------------------------


def _find_cache_breakpoints(messages: Sequence[ChatMessage]) -> set[int]:
    reply_indexes = [index for index, message in enumerate(messages) if isinstance(message, AssistantMessage)]
    indexes = {len(messages) - 1}
    if messages and isinstance(messages[0], SystemMessage):
        indexes.add(0)
    if reply_indexes:
        indexes.add(reply_indexes[-1] - 1)
    return {index for index in indexes if index >= 0 and not isinstance(messages[index], AssistantMessage)}


def _add_cache_control(sent: Json) -> None:
    if sent["role"] == "tool":
        sent["cache_control"] = CACHE_CONTROL
        return
    content = sent["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    sent["content"] = [*blocks[:-1], {**blocks[-1], "cache_control": CACHE_CONTROL}]
