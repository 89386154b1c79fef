"""Replays recorded conversations with a model from a file, looked up by the exact prompt."""

import difflib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import SecretStr, TypeAdapter

from patchwright.resolver.llm.litellm import LitellmModel
from patchwright.resolver.llm.model import (
    AssistantMessage,
    ChatMessage,
    Model,
    ProviderConnection,
    Reply,
    ToolSpec,
    WrapperModel,
)
from patchwright.runtime.frozen_model import FrozenModel

CONTEXT = 3  # Lines around each difference.
TOKEN = re.compile(r"\w+|\W")
MIN_SIMILARITY = 0.75  # of the words of two texts, where one is a rewording of the other
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

    Raises AssertionError with the difference to the nearest recorded prompt if a prompt was not recorded.
    """

    name = "recorded"
    supports_vision = False
    context_window: int | None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self._prompts: list[Prompt] = []
        self._replies: dict[str, Reply] = {}
        for prompt, exchange in _read(path):
            self._prompts.append(prompt)
            self._replies[exchange.key] = exchange.reply

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        prompt = Prompt(tuple(messages), tuple(tools))
        found = self._replies.get(prompt.key)
        assert found is not None, self._describe_difference(prompt)
        return found

    def _describe_difference(self, prompt: "Prompt") -> str:
        recorded = self._prompts or [Prompt((), ())]
        nearest = max(recorded, key=lambda one: _similarity(one.lines, prompt.lines))
        return (
            f"the prompt is not in {self._path.name}; if it should change, run script/regenerate:\n"
            f"{_render_difference(nearest, prompt)}"
        )


class RecordingModel(WrapperModel):
    """Records the prompts and the replies of another model. `save` writes them to the file."""

    def __init__(self, path: Path, model: Model) -> None:
        super().__init__(model)
        self._path = path
        self._exchanges: list[Exchange] = []
        self._previous = Prompt((), None)

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        reply = await self._model.reply(messages, tools)
        prompt, before = Prompt(tuple(messages), tuple(tools)), self._previous
        pairs = zip(before.messages, prompt.messages, strict=False)
        kept = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._exchanges.append(
            Exchange(
                key=prompt.key,
                kept=kept,
                added=prompt.messages[kept:],
                tools=None if prompt.tools == before.tools else prompt.tools,
                reply=reply,
            )
        )
        self._previous = prompt
        return reply

    def save(self) -> None:
        lines = (exchange.model_dump_json() + "\n" for exchange in self._exchanges)
        self._path.write_text("".join(lines), encoding="utf-8")


class ReusingModel:
    """Returns the recorded replies in their order for prompts that changed only in their wording.

    Raises AssertionError that says how to ask a live model if a prompt changed in more than that.
    """

    name = "recorded"
    supports_vision = False
    context_window: int | None = None

    def __init__(self, path: Path) -> None:
        self._recorded = _read(path)

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        prompt = Prompt(tuple(messages), tuple(tools))
        recorded, exchange = next(self._recorded, (Prompt((), ()), None))
        assert exchange is not None and prompt.is_rewording_of(recorded), (
            f"a prompt changed in more than its wording, so a model must reply to it: {ASK}\n"
            f"{_render_difference(recorded, prompt)}"
        )
        return exchange.reply


ASK = "PATCHWRIGHT_MODEL=anthropic/claude-sonnet-5 PATCHWRIGHT_MODEL_API_KEY=... script/regenerate"


@contextmanager
def open_recording(path: Path) -> Iterator[Model]:
    """Yields the recorded model. script/regenerate sets PATCHWRIGHT_REGENERATE: then, the prompts are recorded again,
    with the recorded replies (`keep`) or with those of the model that it names. The file is written after the block.
    """
    name = os.environ.get("PATCHWRIGHT_REGENERATE")
    if not name:
        yield ReplayModel(path)
        return
    recording = RecordingModel(path, ReusingModel(path) if name == "keep" else _build_live_model(name))
    yield recording
    recording.save()


def _build_live_model(name: str) -> Model:
    key = os.environ.get("PATCHWRIGHT_MODEL_API_KEY")
    base_url = os.environ.get("PATCHWRIGHT_MODEL_BASE_URL")
    return LitellmModel(name, ProviderConnection(base_url=base_url, api_key=SecretStr(key) if key else None))


def read_replies(path: Path) -> list[Reply]:
    """Returns the replies of a recording in their order."""
    return [exchange.reply for _, exchange in _read(path)]


@dataclass(frozen=True)
class Prompt:
    """What a model is sent."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...] | None

    @cached_property
    def key(self) -> str:
        tools = json.dumps([tool.to_openai_tool() for tool in self.tools or ()])
        return hashlib.sha256(MESSAGES.dump_json(self.messages) + tools.encode()).hexdigest()

    @cached_property
    def lines(self) -> list[str]:
        """The prompt in a form that people can compare."""
        return list(_lines(self.messages, self.tools or ()))

    def is_rewording_of(self, other: "Prompt") -> bool:
        """True if both have the same tools, and messages of the same kinds with the same calls and similar texts."""
        return self._structure == other._structure and all(
            _similarity(TOKEN.findall(one.text), TOKEN.findall(two.text)) >= MIN_SIMILARITY
            for one, two in zip(self.messages, other.messages, strict=True)
        )

    @property
    def _structure(self) -> object:
        calls = (
            message.tool_calls if isinstance(message, AssistantMessage) else () for message in self.messages
        )
        tools = [(tool.name, _without_descriptions(tool.parameters)) for tool in self.tools or ()]
        return [message.role for message in self.messages], list(calls), tools


def _without_descriptions(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_descriptions(part)
        for name, part in schema.items()
        if not (name == "description" and isinstance(part, str))
    }


def _similarity(one: Sequence[str], two: Sequence[str]) -> float:
    return difflib.SequenceMatcher(None, one, two, autojunk=False).ratio()


def _render_difference(recorded: Prompt, prompt: Prompt) -> str:
    names = ("the recorded prompt", "the prompt now")
    return "\n".join(difflib.unified_diff(recorded.lines, prompt.lines, *names, lineterm="", n=CONTEXT))


def _read(path: Path) -> Iterator[tuple[Prompt, Exchange]]:
    messages: tuple[ChatMessage, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        exchange = Exchange.model_validate_json(line)
        messages = messages[: exchange.kept] + exchange.added
        tools = tools if exchange.tools is None else exchange.tools
        yield Prompt(messages, tools), exchange


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
