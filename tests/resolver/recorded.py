"""Conversations with a model, kept in a file and found again by the exact prompt: for tests of the whole way."""

import difflib
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from resolver.llm.model import FromModel, Message, Model, Reply, ToolSpec
from runtime.frozen import Frozen
from tests.resolver.scripted import Scripted

CONTEXT = 3  # lines around each difference that are shown
MESSAGES: TypeAdapter[tuple[Message, ...]] = TypeAdapter(tuple[Message, ...])


class Exchange(Frozen):
    """One line of a recording. What a prompt has in common with the one before is not written again."""

    key: str
    kept: int
    """How many messages are those of the prompt before."""
    added: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] | None
    """None: those of the prompt before."""
    reply: Reply


class Recorded:
    """Gives the reply that was recorded for a prompt; each byte of the prompt counts, tools included.

    `renewed_by`: the model that is asked for every reply instead; the file is written anew, as the requests come.
    Without it, a prompt that is not in the recording is an error of the test: AssertionError with the difference to
    the prompt that was recorded in its place.
    """

    def __init__(self, path: Path, renewed_by: Model | None = None) -> None:
        self._path = path
        self._renewed_by = renewed_by
        self._prompts: list[tuple[tuple[Message, ...], tuple[ToolSpec, ...]]] = []
        self._replies: dict[str, Reply] = {}
        if renewed_by is None:
            for messages, tools, exchange in _read(path):
                self._prompts.append((messages, tools))
                self._replies[exchange.key] = exchange.reply
        else:
            path.write_text("", encoding="utf-8")

    @property
    def name(self) -> str:
        return "recorded" if self._renewed_by is None else self._renewed_by.name

    @property
    def sees(self) -> bool:
        return self._renewed_by is not None and self._renewed_by.sees

    @property
    def window(self) -> int | None:
        return None if self._renewed_by is None else self._renewed_by.window

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        if self._renewed_by is not None:
            reply = await self._renewed_by.reply(messages, tools)
            self._write(tuple(messages), tuple(tools), reply)
            return reply
        found = self._replies.get(_key(messages, tools))
        assert found is not None, self._difference(messages, tools)
        return found

    def _write(self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...], reply: Reply) -> None:
        before, known = self._prompts[-1] if self._prompts else ((), None)
        kept = next(
            (n for n, (one, other) in enumerate(zip(before, messages, strict=False)) if one != other),
            min(len(before), len(messages)),
        )
        exchange = Exchange(
            key=_key(messages, tools),
            kept=kept,
            added=messages[kept:],
            tools=None if tools == known else tools,
            reply=reply,
        )
        self._prompts.append((messages, tools))
        with self._path.open("a", encoding="utf-8") as file:
            file.write(exchange.model_dump_json() + "\n")

    def _difference(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        turn = _turn(messages)
        there = next((prompt for prompt in self._prompts if _turn(prompt[0]) == turn), None)
        if there is None:
            return f"{self._path.name} has {len(self._prompts)} replies, and none for turn {turn + 1}"
        lines = difflib.unified_diff(
            list(_lines(*there)),
            list(_lines(messages, tools)),
            f"{self._path.name}, turn {turn + 1}",
            "the prompt now",
            lineterm="",
            n=CONTEXT,
        )
        shown = "\n".join(lines)
        return f"the prompt is not the recorded one (script/regenerate makes it so):\n{shown}"


def keeping(path: Path) -> Scripted:
    """The recorded replies in their order, whatever the prompts: to renew a recording without a model."""
    return Scripted([exchange.reply for *_, exchange in _read(path)], name="recorded")


def _read(path: Path) -> Iterator[tuple[tuple[Message, ...], tuple[ToolSpec, ...], Exchange]]:
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    for line in path.read_text(encoding="utf-8").splitlines():
        exchange = Exchange.model_validate_json(line)
        messages = messages[: exchange.kept] + exchange.added
        tools = tools if exchange.tools is None else exchange.tools
        yield messages, tools, exchange


def _turn(messages: Sequence[Message]) -> int:
    return sum(isinstance(message, FromModel) for message in messages)


def _key(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
    prompt = MESSAGES.dump_json(tuple(messages)) + json.dumps([tool.as_openai() for tool in tools]).encode()
    return hashlib.sha256(prompt).hexdigest()


def _lines(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Iterator[str]:
    """A prompt as people compare it."""
    for tool in tools:
        yield f"tool {tool.name}"
        yield from tool.description.splitlines()
        yield from json.dumps(tool.parameters, indent=1).splitlines()
    for message in messages:
        yield f"--- {message.role}"
        yield from message.text.splitlines()
        rest: dict[str, Any] = message.model_dump(
            mode="json", exclude={"role", "text"}, exclude_defaults=True
        )
        yield from (f"{name}: {json.dumps(value)}" for name, value in rest.items())
