"""Replays recorded conversations with a model from a file, looked up by the exact prompt."""

import difflib
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from patchwright.resolver.llm.model import AssistantMessage, ChatMessage, Model, Reply, ToolSpec
from patchwright.runtime.frozen_model import FrozenModel
from tests.resolver.scripted_model import ScriptedModel

CONTEXT = 3  # Lines around each difference.
MESSAGES: TypeAdapter[tuple[ChatMessage, ...]] = TypeAdapter(tuple[ChatMessage, ...])


class Exchange(FrozenModel):
    """One line of a recording. It stores only what differs from the previous prompt."""

    key: str
    kept: int
    """Number of messages at the start that are the same as in the previous prompt."""
    added: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...] | None
    """None if they are the same as in the previous prompt."""
    reply: Reply


class ReplayModel:
    """Returns the reply that was recorded for a prompt. Every byte of the prompt counts, including the tools.

    With `renewed_by`, that model answers every request, and the file is written again. Without it, a prompt
    that is not in the recording raises AssertionError with the difference to the recorded prompt of that
    turn.
    """

    def __init__(self, path: Path, renewed_by: Model | None = None) -> None:
        self._path = path
        self._renewed_by = renewed_by
        self._prompts: list[tuple[tuple[ChatMessage, ...], tuple[ToolSpec, ...]]] = []
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
    def supports_vision(self) -> bool:
        return self._renewed_by is not None and self._renewed_by.supports_vision

    @property
    def context_window(self) -> int | None:
        return None if self._renewed_by is None else self._renewed_by.context_window

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        if self._renewed_by is not None:
            reply = await self._renewed_by.reply(messages, tools)
            self._write(tuple(messages), tuple(tools), reply)
            return reply
        found = self._replies.get(_key(messages, tools))
        assert found is not None, self._difference(messages, tools)
        return found

    def _write(self, messages: tuple[ChatMessage, ...], tools: tuple[ToolSpec, ...], reply: Reply) -> None:
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

    def _difference(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> str:
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


def replay_recorded_replies(path: Path) -> ScriptedModel:
    """Returns the recorded replies in their order for any prompts, to renew a recording without a model."""
    return ScriptedModel([exchange.reply for *_, exchange in _read(path)], name="recorded")


def _read(path: Path) -> Iterator[tuple[tuple[ChatMessage, ...], tuple[ToolSpec, ...], Exchange]]:
    messages: tuple[ChatMessage, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    for line in path.read_text(encoding="utf-8").splitlines():
        exchange = Exchange.model_validate_json(line)
        messages = messages[: exchange.kept] + exchange.added
        tools = tools if exchange.tools is None else exchange.tools
        yield messages, tools, exchange


def _turn(messages: Sequence[ChatMessage]) -> int:
    return sum(isinstance(message, AssistantMessage) for message in messages)


def _key(messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> str:
    prompt = (
        MESSAGES.dump_json(tuple(messages)) + json.dumps([tool.to_openai_tool() for tool in tools]).encode()
    )
    return hashlib.sha256(prompt).hexdigest()


def _lines(messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Iterator[str]:
    """Yields a prompt in a form that people can compare."""
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
