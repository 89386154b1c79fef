"""A scripted model over HTTP for several concurrent agents, which it identifies by their first message."""

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from patchwright.demo.api_formats import ApiFormat
from patchwright.demo.recorded_model import ModelFault, RecordedModel, RecordedTurn, find_next_calls
from tests.end_to_end.conftest import KEY, Scenario

BrowsingReply = Callable[[str], str]
"""Returns the reply of the browsing agent to a prompt."""


class MultiAgentModel(RecordedModel):
    """Has the turns of the agent and of each investigator, and one reply per step of the browsing agent."""

    def __init__(
        self,
        turns: Sequence[RecordedTurn],
        others: Mapping[str, Sequence[RecordedTurn]],
        browsing: Sequence[BrowsingReply],
        **more: Any,
    ) -> None:
        super().__init__(turns, key=KEY, **more)
        self._others = others
        self._browsing = browsing
        self._active = 0
        self.max_concurrent = 0
        self.requests_by_question: dict[str, list[dict[str, Any]]] = {}
        """The requests by question; the main agent's are under ""."""
        self.prompts: list[str] = []
        """The prompts of the browsing agent."""

    async def _complete(self, request: dict[str, Any], api_format: ApiFormat) -> ModelFault:
        self._active += 1
        self.max_concurrent = max(self.max_concurrent, self._active)
        try:
            return await self._build_response(request, api_format)
        finally:
            self._active -= 1

    async def _build_response(self, request: dict[str, Any], api_format: ApiFormat) -> ModelFault:
        messages = api_format.parse_messages(request)
        first = _text(next(message["content"] for message in messages if message["role"] == "user"))
        if first.startswith("# Instructions"):
            (step,) = re.findall(r"This is step (\d+) of", first)
            self.prompts.append(first)
            turn, calls, reply = int(step), (), RecordedTurn(self._browsing[int(step) - 1](first))
        else:
            question = first.strip() if first.strip() in self._others else ""
            turns = self._others.get(question, self._turns)
            turn, calls = find_next_calls(messages, turns)
            self.requests_by_question.setdefault(question, []).append(request)
            reply = turns[turn]
        if self._on_request is not None and inspect.isawaitable(waiting := self._on_request(turn, request)):
            await waiting
        await asyncio.sleep(self._delay)
        return ModelFault(
            body=json.dumps(api_format.format_reply(self._build_reply(request, len(messages), reply, calls)))
        )


async def use_multi_agent_model(
    scenario: Scenario,
    *turns: RecordedTurn,
    others: Mapping[str, Sequence[RecordedTurn]] | None = None,
    browsing: Sequence[BrowsingReply] = (),
    **more: Any,
) -> MultiAgentModel:
    """Starts this model and configures the scenario to use it."""
    model = await scenario.stack.enter_async_context(MultiAgentModel(turns, others or {}, browsing, **more))
    scenario.endpoint = model
    scenario.environment["PATCHWRIGHT_MODEL_BASE_URL"] = model.base_url
    return model


def _text(content: str | list[dict[str, Any]]) -> str:
    parts = [{"text": content}] if isinstance(content, str) else content
    return "".join(part.get("text", "") for part in parts)
