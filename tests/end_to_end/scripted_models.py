"""Models for the stories of the mind: they say their turns one after the other, whatever they are asked."""

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
from tests.end_to_end.conftest import KEY, Scene

SEES_IT_FAIL = RunShell(command='python3 -c "from calc import add; assert add(2, 3) == 5"')
PRICES = '{"openai/scripted": {"input": 1, "output": 10}, "openai/second": {"input": 2, "output": 20}}'


class InOrder(RecordedModel):
    """Each turn once, in order, and the last one again and again. A fault takes the place of no turn."""

    def __init__(self, turns: Sequence[RecordedTurn], *, on_request: RequestHook | None = None) -> None:
        super().__init__(turns, key=KEY, on_request=on_request)
        self.said = 0

    async def _complete(self, request: dict[str, Any], api_format: ApiFormat) -> ModelFault:
        asked = api_format.parse_messages(request)
        assert find_unpaired_call(asked) is None
        self.requests.append(request)
        if self._on_request and inspect.isawaitable(waiting := self._on_request(self.said, request)):
            await waiting
        if self._faults:
            return self._faults.popleft()
        turn = self._turns[min(self.said, len(self._turns) - 1)]
        self.said += 1
        return ModelFault(
            body=json.dumps(api_format.format_reply(self._build_reply(request, len(asked), turn, turn.calls)))
        )


async def says(
    scene: Scene, *turns: RecordedTurn, on_request: RequestHook | None = None, **settings: object
) -> InOrder:
    """Give the scene a model that says these turns in order, and these settings."""
    endpoint = await scene.stack.enter_async_context(InOrder(turns, on_request=on_request))
    scene.endpoint = endpoint
    scene.environment["PATCHWRIGHT_MODEL_BASE_URL"] = endpoint.base_url
    scene.environment |= {f"PATCHWRIGHT_{key.upper()}": str(value) for key, value in settings.items()}
    return endpoint


async def proposed(scene: Scene, **how: Any) -> str:
    """The body of the pull request that the run comes to."""
    outcome = await scene.resolve(**how)
    assert isinstance(outcome, Published), outcome
    assert scene.pull.body is not None
    return scene.pull.body


async def declined(scene: Scene) -> str:
    """The comment of a run that comes to no pull request."""
    outcome = await scene.resolve()
    assert isinstance(outcome, Reported), outcome
    assert scene.repo.pulls == ()
    (comment,) = scene.comments
    return comment


def events(scene: Scene, kind: str) -> list[Event]:
    return [event for event in scene.trajectory() if event.kind == kind]


def told(scene: Scene, source: str, run: str | None = None) -> list[str]:
    """What the run was told by this source."""
    said = (event for event in scene.trajectory(run) if isinstance(event, Message))
    return [event.text for event in said if event.source == source]


def answers(scene: Scene, run: str | None = None) -> Iterator[tuple[FrozenModel, FrozenModel]]:
    """The calls of a run with what came of them."""
    actions: dict[str, FrozenModel] = {}
    for event in scene.trajectory(run):
        match event:
            case ModelReply(calls=calls):
                actions.update((call.id, call.action) for call in calls)
            case ToolResult(call_id=call, observation=observation):
                yield actions[call], observation
