"""Adds tool calling to models without function calling. The prompt describes the tools, and the calls are
parsed from the model's text.
"""

from collections.abc import Iterator, Mapping, Sequence

from patchwright.resolver.llm.model import (
    AssistantMessage,
    ChatMessage,
    Reply,
    SystemMessage,
    ToolMessage,
    ToolSpec,
    UserMessage,
    WrapperModel,
)
from patchwright.resolver.llm.text_tool_calls import RESULT_PREFIX, format_text_call, parse_text_calls
from patchwright.resolver.rendering.template_renderer import render


class TextToolModel(WrapperModel):
    """Describes the tools in the system prompt and reads the calls from the model's text.

    Tool results are sent as user messages. Neighboring user messages are merged, since some of these models
    only accept alternating turns. New messages do not change earlier messages, so the provider's prompt cache
    works.
    """

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        if not tools:
            return await self._model.reply(messages, tools)
        reply = await self._model.reply(to_text_conversation(messages, tools), ())
        turn = sum(isinstance(message, AssistantMessage) for message in messages)
        text, calls = parse_text_calls(reply.text, tools, f"text-{turn}", truncated=reply.truncated)
        return reply.model_copy(update={"text": text, "tool_calls": (*reply.tool_calls, *calls)})


def to_text_conversation(
    messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]
) -> tuple[ChatMessage, ...]:
    """Converts a conversation to plain text. Tool calls and results become text, and the system prompt
    describes the tools.
    """
    specs = {tool.name: tool for tool in tools}
    tool_texts = render("prompts/text_tools.md.j2", tools=tools)
    first = messages[0] if messages else None
    system = SystemMessage(
        text=f"{first.text}\n\n{tool_texts}" if isinstance(first, SystemMessage) else tool_texts
    )
    rest = messages[1:] if isinstance(first, SystemMessage) else messages
    return (system, *_merge_user_messages(_convert_messages(rest, specs)))


def _convert_messages(
    messages: Sequence[ChatMessage], specs: Mapping[str, ToolSpec]
) -> Iterator[ChatMessage]:
    names: dict[str, str] = {}
    for message in messages:
        match message:
            case AssistantMessage(text=text, tool_calls=calls):
                names |= {call.id: call.name for call in calls}
                call_texts = "\n".join(format_text_call(call, specs) for call in calls)
                full_text = "\n\n".join(part for part in (text, call_texts) if part)
                yield message.model_copy(update={"text": full_text, "tool_calls": ()})
            case ToolMessage(tool_call_id=call, text=text):
                yield UserMessage(text=f"{RESULT_PREFIX}{names.get(call, 'a call')}]\n{text}")
            case _:
                yield message


def _merge_user_messages(messages: Iterator[ChatMessage]) -> Iterator[ChatMessage]:
    """Merges neighboring user messages."""
    pending: UserMessage | None = None
    for message in messages:
        if isinstance(message, UserMessage):
            pending = message if pending is None else _merge(pending, message)
            continue
        if pending is not None:
            yield pending
            pending = None
        yield message
    if pending is not None:
        yield pending


def _merge(first: UserMessage, second: UserMessage) -> UserMessage:
    return UserMessage(text=f"{first.text}\n\n{second.text}", images=first.images + second.images)
