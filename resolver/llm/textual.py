"""Tools for models that know no function calling: described in the prompt, and called in text."""

from collections.abc import Iterator, Mapping, Sequence

from resolver import prose
from resolver.llm.model import Around, FromModel, FromTool, FromUser, Message, Reply, System, ToolSpec
from resolver.llm.written_calls import RESULT, read, write


class Textual(Around):
    """A model that gets the tools as text, and whose calls are read from what it writes.

    Results come back as what the user says; neighbouring messages of the user are one, since some of these models
    know only turns that alternate. A longer conversation begins with the same bytes as a shorter one.
    """

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        if not tools:
            return await self._model.reply(messages, tools)
        reply = await self._model.reply(as_text(messages, tools), ())
        turn = sum(isinstance(message, FromModel) for message in messages)
        text, calls = read(reply.text, tools, f"text-{turn}", truncated=reply.truncated)
        return reply.model_copy(update={"text": text, "calls": (*reply.calls, *calls)})


def as_text(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[Message, ...]:
    """The conversation without calls, results or tools."""
    specs = {tool.name: tool for tool in tools}
    told = prose.text_tools(tools)
    first = messages[0] if messages else None
    system = System(text=f"{first.text}\n\n{told}" if isinstance(first, System) else told)
    rest = messages[1:] if isinstance(first, System) else messages
    return (system, *_joined(_plain(rest, specs)))


def _plain(messages: Sequence[Message], specs: Mapping[str, ToolSpec]) -> Iterator[Message]:
    names: dict[str, str] = {}
    for message in messages:
        match message:
            case FromModel(text=text, calls=calls):
                names |= {call.id: call.name for call in calls}
                written = "\n".join(write(call, specs) for call in calls)
                said = "\n\n".join(part for part in (text, written) if part)
                yield message.model_copy(update={"text": said, "calls": ()})
            case FromTool(call=call, text=text):
                yield FromUser(text=f"{RESULT}{names.get(call, 'a call')}]\n{text}")
            case _:
                yield message


def _joined(messages: Iterator[Message]) -> Iterator[Message]:
    """Neighbouring messages of the user as one."""
    waiting: FromUser | None = None
    for message in messages:
        if isinstance(message, FromUser):
            waiting = message if waiting is None else _both(waiting, message)
            continue
        if waiting is not None:
            yield waiting
            waiting = None
        yield message
    if waiting is not None:
        yield waiting


def _both(one: FromUser, other: FromUser) -> FromUser:
    return FromUser(text=f"{one.text}\n\n{other.text}", pictures=one.pictures + other.pictures)
