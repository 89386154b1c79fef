"""A scripted model over HTTP that several agents talk with at the same time: each is known by what it was asked."""

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from demo.dialects import Dialect
from demo.model import Endpoint, Fault, Turn, next_calls
from tests.stories.conftest import KEY, Scene

Says = Callable[[str], str]
"""What the browsing agent replies to a prompt."""


class Voices(Endpoint):
    """The agent has the turns, each investigator those of its question, the browsing agent one reply for each step."""

    def __init__(
        self,
        turns: Sequence[Turn],
        others: Mapping[str, Sequence[Turn]],
        browsing: Sequence[Says],
        **more: Any,
    ) -> None:
        super().__init__(turns, key=KEY, **more)
        self._others = others
        self._browsing = browsing
        self._speaking = 0
        self.most_at_once = 0
        self.heard: dict[str, list[dict[str, Any]]] = {}
        """The requests of each, by question; those of the agent itself by ""."""
        self.prompts: list[str] = []
        """Of the browsing agent."""

    async def _complete(self, request: dict[str, Any], dialect: Dialect) -> Fault:
        self._speaking += 1
        self.most_at_once = max(self.most_at_once, self._speaking)
        try:
            return await self._said(request, dialect)
        finally:
            self._speaking -= 1

    async def _said(self, request: dict[str, Any], dialect: Dialect) -> Fault:
        messages = dialect.read(request)
        first = _text(next(message["content"] for message in messages if message["role"] == "user"))
        if first.startswith("# Instructions"):
            (step,) = re.findall(r"You are at step (\d+) of", first)
            self.prompts.append(first)
            turn, calls, said = int(step), (), Turn(self._browsing[int(step) - 1](first))
        else:
            question = first.strip() if first.strip() in self._others else ""
            turns = self._others.get(question, self._turns)
            turn, calls = next_calls(messages, turns)
            self.heard.setdefault(question, []).append(request)
            said = turns[turn]
        if self._on_request is not None and inspect.isawaitable(waiting := self._on_request(turn, request)):
            await waiting
        await asyncio.sleep(self._delay)
        return Fault(body=json.dumps(dialect.write(self._reply(request, len(messages), said, calls))))


async def heard(
    scene: Scene,
    *turns: Turn,
    others: Mapping[str, Sequence[Turn]] | None = None,
    browsing: Sequence[Says] = (),
    **more: Any,
) -> Voices:
    """Give the scene this model."""
    voices = await scene.stack.enter_async_context(Voices(turns, others or {}, browsing, **more))
    scene.endpoint = voices
    scene.environment["PATCHWRIGHT_MODEL_BASE_URL"] = voices.base_url
    return voices


def _text(content: str | list[dict[str, Any]]) -> str:
    parts = [{"text": content}] if isinstance(content, str) else content
    return "".join(part.get("text", "") for part in parts)
