"""A scripted model over HTTP that several agents talk with at the same time: each is known by what it was asked."""

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from patchwright.demo.api_formats import ApiFormat
from patchwright.demo.recorded_model import ModelFault, RecordedModel, RecordedTurn, find_next_calls
from tests.end_to_end.conftest import KEY, Scene

Says = Callable[[str], str]
"""What the browsing agent replies to a prompt."""


class Voices(RecordedModel):
    """The agent has the turns, each investigator those of its question, the browsing agent one reply for each step."""

    def __init__(
        self,
        turns: Sequence[RecordedTurn],
        others: Mapping[str, Sequence[RecordedTurn]],
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

    async def _complete(self, request: dict[str, Any], api_format: ApiFormat) -> ModelFault:
        self._speaking += 1
        self.most_at_once = max(self.most_at_once, self._speaking)
        try:
            return await self._said(request, api_format)
        finally:
            self._speaking -= 1

    async def _said(self, request: dict[str, Any], api_format: ApiFormat) -> ModelFault:
        messages = api_format.parse_messages(request)
        first = _text(next(message["content"] for message in messages if message["role"] == "user"))
        if first.startswith("# Instructions"):
            (step,) = re.findall(r"You are at step (\d+) of", first)
            self.prompts.append(first)
            turn, calls, said = int(step), (), RecordedTurn(self._browsing[int(step) - 1](first))
        else:
            question = first.strip() if first.strip() in self._others else ""
            turns = self._others.get(question, self._turns)
            turn, calls = find_next_calls(messages, turns)
            self.heard.setdefault(question, []).append(request)
            said = turns[turn]
        if self._on_request is not None and inspect.isawaitable(waiting := self._on_request(turn, request)):
            await waiting
        await asyncio.sleep(self._delay)
        return ModelFault(
            body=json.dumps(api_format.format_reply(self._build_reply(request, len(messages), said, calls)))
        )


async def heard(
    scene: Scene,
    *turns: RecordedTurn,
    others: Mapping[str, Sequence[RecordedTurn]] | None = None,
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
