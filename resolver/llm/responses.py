"""A conversation in the form of OpenAI's Responses API, and its replies.

Nothing is kept at the provider: every request carries the whole conversation, reasoning included, which comes
encrypted and goes back as it came.

Source: platform.openai.com/docs/guides/reasoning#keeping-reasoning-items-in-context
"""

from collections.abc import Iterator, Sequence
from typing import Any

from resolver.llm.chat import data_url
from resolver.llm.model import FromModel, FromTool, FromUser, Message, System, ToolCall, ToolSpec, unseen

Json = dict[str, Any]

ALWAYS: Json = {"store": False, "include": ["reasoning.encrypted_content"]}
"""What every request says beside the conversation."""


def written(messages: Sequence[Message], *, reader: str, sees: bool) -> list[Json]:
    """The input items as they are sent to the model `reader`."""
    return [item for message in messages for item in _items(message, reader, sees)]


def tools(specs: Sequence[ToolSpec]) -> list[Json]:
    return [{"type": "function", **spec.as_openai()["function"], "strict": False} for spec in specs]


def _items(message: Message, reader: str, sees: bool) -> Iterator[Json]:
    match message:
        case FromUser(text=text, pictures=pictures) if pictures and sees:
            shown = [{"type": "input_image", "image_url": data_url(picture)} for picture in pictures]
            yield {"role": "user", "content": [{"type": "input_text", "text": text}, *shown]}
        case FromUser(text=text, pictures=pictures) if pictures:
            yield {"role": "user", "content": f"{text}\n{unseen(len(pictures))}"}
        case System(text=text) | FromUser(text=text):
            yield {"role": message.role, "content": text}
        case FromTool(call=call, text=text):
            yield {"type": "function_call_output", "call_id": call, "output": text}
        case FromModel():
            yield from _reply(message, reader)


def _reply(message: FromModel, reader: str) -> Iterator[Json]:
    """Reasoning stands before what it led to, as it did in the reply."""
    waiting = [block for block in message.reasoning_for(reader) if block.get("type") == "reasoning"]
    said = message.text
    for number, call in enumerate(message.calls):
        while waiting and waiting[0].get("before", 0) <= number:
            yield _bare(waiting.pop(0))
        if said:
            yield {"role": "assistant", "content": said}
            said = ""
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }
    if said:  # reasoning after the last call led to nothing that is sent back, and would be refused alone
        yield from map(_bare, waiting)
        yield {"role": "assistant", "content": said}


def _bare(block: Json) -> Json:
    return {key: value for key, value in block.items() if key != "before"}


class Read:
    """What a response holds."""

    def __init__(self, answer: Any) -> None:
        self.text = ""
        self.refusal = ""
        self.calls: list[ToolCall] = []
        self.reasoning: list[Json] = []
        for item in getattr(answer, "output", None) or ():
            self._take(item if isinstance(item, dict) else item.model_dump(exclude_none=True))
        details = getattr(answer, "incomplete_details", None)
        self.incomplete: str | None = getattr(details, "reason", None) if details else None
        """`max_output_tokens`, `content_filter`, or None."""

    def _take(self, item: Json) -> None:
        match item:
            case {"type": "message", "content": list(parts)}:
                for part in parts:
                    self.text += part.get("text") or ""
                    self.refusal += part.get("refusal") or ""
            case {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}:
                self.calls.append(ToolCall(id=id, name=name, arguments=arguments))
            case {"type": "reasoning"}:
                self.reasoning.append({**item, "before": len(self.calls)})
