"""Converts conversations to and from OpenAI's Responses API.

The provider stores nothing: every request carries the whole conversation, including the encrypted reasoning
items, which are sent back unchanged.

Source: platform.openai.com/docs/guides/reasoning#keeping-reasoning-items-in-context
"""

from collections.abc import Iterator, Sequence
from typing import Any

from patchwright.resolver.llm.chat_completions import encode_data_url
from patchwright.resolver.llm.model import (
    AssistantMessage,
    ChatMessage,
    RawToolCall,
    SystemMessage,
    ToolMessage,
    UserMessage,
    render_omitted_images,
)

Json = dict[str, Any]

REQUEST_OPTIONS: Json = {"store": False, "include": ["reasoning.encrypted_content"]}
"""Options of every request."""


def to_input_items(messages: Sequence[ChatMessage], *, model_name: str, supports_vision: bool) -> list[Json]:
    """Converts messages to input items for the model `model_name`."""
    return [item for message in messages for item in _message_to_items(message, model_name, supports_vision)]


def _message_to_items(message: ChatMessage, model_name: str, supports_vision: bool) -> Iterator[Json]:
    match message:
        case UserMessage(text=text, images=images) if images and supports_vision:
            image_parts = [{"type": "input_image", "image_url": encode_data_url(image)} for image in images]
            yield {"role": "user", "content": [{"type": "input_text", "text": text}, *image_parts]}
        case UserMessage(text=text, images=images) if images:
            yield {"role": "user", "content": f"{text}\n{render_omitted_images(len(images))}"}
        case SystemMessage(text=text) | UserMessage(text=text):
            yield {"role": message.role, "content": text}
        case ToolMessage(tool_call_id=call, text=text):
            yield {"type": "function_call_output", "call_id": call, "output": text}
        case AssistantMessage():
            yield from _assistant_to_items(message, model_name)


def _assistant_to_items(message: AssistantMessage, model_name: str) -> Iterator[Json]:
    """Yields an assistant message as input items. Each reasoning item precedes the call that resulted from
    it, as in the original response.
    """
    pending_reasoning = [
        block for block in message.get_reasoning_for(model_name) if block.get("type") == "reasoning"
    ]
    pending_text = message.text
    for number, call in enumerate(message.tool_calls):
        while pending_reasoning and pending_reasoning[0].get("before", 0) <= number:
            yield _drop_position(pending_reasoning.pop(0))
        if pending_text:
            yield {"role": "assistant", "content": pending_text}
            pending_text = ""
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }
    # The API rejects a reasoning item that no other item follows. Reasoning after the last item is therefore
    # dropped.
    if pending_text:
        yield from map(_drop_position, pending_reasoning)
        yield {"role": "assistant", "content": pending_text}


def _drop_position(block: Json) -> Json:
    return {key: value for key, value in block.items() if key != "before"}


class ParsedResponse:
    """The text, refusal, tool calls and reasoning of a response."""

    def __init__(self, response: Any) -> None:
        self.text = ""
        self.refusal = ""
        self.tool_calls: list[RawToolCall] = []
        self.reasoning: list[Json] = []
        for item in getattr(response, "output", None) or ():
            self._add_item(item if isinstance(item, dict) else item.model_dump(exclude_none=True))
        details = getattr(response, "incomplete_details", None)
        self.incomplete_reason: str | None = getattr(details, "reason", None) if details else None
        """`max_output_tokens`, `content_filter`, or None."""

    def _add_item(self, item: Json) -> None:
        match item:
            case {"type": "message", "content": list(parts)}:
                for part in parts:
                    self.text += part.get("text") or ""
                    self.refusal += part.get("refusal") or ""
            case {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}:
                self.tool_calls.append(RawToolCall(id=id, name=name, arguments=arguments))
            case {"type": "reasoning"}:
                self.reasoning.append({**item, "before": len(self.tool_calls)})
