"""Scripted models that reply in a fixed order, whatever the request is."""

import inspect
import json
from collections.abc import Iterator, Sequence
from typing import Any

from patchwright.demo.api_formats import ApiFormat
from patchwright.demo.recorded_model import (
    ModelFault,
    RecordedModel,
    RecordedTurn,
    RequestHook,
    find_unpaired_call,
)
from patchwright.resolver.domain import Published, Reported
from patchwright.resolver.events import Event, Message, ModelReply, ToolResult
from patchwright.runtime.actions import RunShell
from patchwright.runtime.frozen_model import FrozenModel
from tests.end_to_end.conftest import KEY, Scenario

SHOW_FAILURE = RunShell(command='python3 -c "from calc import add; assert add(2, 3) == 5"')
PRICES = '{"openai/scripted": {"input": 1, "output": 10}, "openai/second": {"input": 2, "output": 20}}'


class OrderedModel(RecordedModel):
    """Replies with each turn once, in order, and then repeats the last one. A fault consumes no turn."""

    def __init__(self, turns: Sequence[RecordedTurn], *, on_request: RequestHook | None = None) -> None:
        super().__init__(turns, key=KEY, on_request=on_request)
        self.replies = 0

    async def _complete(self, request: dict[str, Any], api_format: ApiFormat) -> ModelFault:
        messages = api_format.parse_messages(request)
        assert find_unpaired_call(messages) is None
        self.requests.append(request)
        if self._on_request and inspect.isawaitable(waiting := self._on_request(self.replies, request)):
            await waiting
        if self._faults:
            return self._faults.popleft()
        turn = self._turns[min(self.replies, len(self._turns) - 1)]
        self.replies += 1
        return ModelFault(
            body=json.dumps(
                api_format.format_reply(self._build_reply(request, len(messages), turn, turn.calls))
            )
        )


async def use_ordered_model(
    scenario: Scenario, *turns: RecordedTurn, on_request: RequestHook | None = None, **settings: object
) -> OrderedModel:
    """Starts a model with these turns in order, and applies these settings."""
    endpoint = await scenario.stack.enter_async_context(OrderedModel(turns, on_request=on_request))
    scenario.endpoint = endpoint
    scenario.environment["PATCHWRIGHT_MODEL_BASE_URL"] = endpoint.base_url
    scenario.environment |= {f"PATCHWRIGHT_{key.upper()}": str(value) for key, value in settings.items()}
    return endpoint


async def resolve_to_pull_request(scenario: Scenario, **how: Any) -> str:
    """Resolves the issue and returns the body of the resulting pull request."""
    outcome = await scenario.resolve(**how)
    assert isinstance(outcome, Published), outcome
    assert scenario.pull.body is not None
    return scenario.pull.body


async def resolve_to_report(scenario: Scenario) -> str:
    """Resolves the issue without a pull request and returns the resulting comment."""
    outcome = await scenario.resolve()
    assert isinstance(outcome, Reported), outcome
    assert scenario.repo.pulls == ()
    (comment,) = scenario.comments
    return comment


def events_of_kind(scenario: Scenario, kind: str) -> list[Event]:
    return [event for event in scenario.trajectory() if event.kind == kind]


def messages_from(scenario: Scenario, source: str, run: str | None = None) -> list[str]:
    """Returns the messages that the agent received from this source."""
    events = (event for event in scenario.trajectory(run) if isinstance(event, Message))
    return [event.text for event in events if event.source == source]


def call_results(scenario: Scenario, run: str | None = None) -> Iterator[tuple[FrozenModel, FrozenModel]]:
    """Yields each call of a run with its result."""
    actions: dict[str, FrozenModel] = {}
    for event in scenario.trajectory(run):
        match event:
            case ModelReply(calls=calls):
                actions.update((call.id, call.action) for call in calls)
            case ToolResult(call_id=call, observation=observation):
                yield actions[call], observation
