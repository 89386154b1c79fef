"""A run that exceeds the context window continues, and its summary stays correct."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from patchwright.demo.api_formats import ApiFormat
from patchwright.demo.recorded_model import (
    ModelFault,
    RecordedModel,
    RecordedTurn,
    context_overflow,
    find_unpaired_call,
)
from patchwright.resolver.agent.messages import build_messages
from patchwright.resolver.domain import Published
from patchwright.resolver.events import AgentStopped, AuxiliaryModelCall, ModelReply, Trajectory
from patchwright.resolver.run_events import Condensation
from patchwright.runtime.actions import RunShell, ViewFile
from tests.end_to_end.conftest import CODE, DONE, FIX, KEY, NEW_TEST, TESTS, Scenario

STEPS = 300
NOTES = (
    "Found: add() in calc.py subtracted. Changed: calc.py and tests/test_calc.py. Open: look around further."
)


class LongRunModel(RecordedModel):
    """Fixes the code, looks around for many steps, and finishes. It counts requests instead of reading the prompt."""

    def __init__(self, *, steps: int = STEPS, takes: int | None = None) -> None:
        super().__init__((), key=KEY)
        self.steps = steps
        self.takes = takes
        """In tokens. Longer prompts are rejected."""
        self.replies = 0
        self.summaries: list[dict[str, Any]] = []

    async def _complete(self, request: dict[str, Any], api_format: ApiFormat) -> ModelFault:
        messages = api_format.parse_messages(request)
        assert find_unpaired_call(messages) is None
        if self.takes is not None and len(json.dumps(messages)) > 4 * self.takes:
            return context_overflow()
        if not request.get("tools"):
            self.summaries.append(request)
            turn = RecordedTurn(NOTES)
        else:
            self.requests.append(request)
            turn = self._next()
            self.replies += 1
        return ModelFault(
            body=json.dumps(
                api_format.format_reply(self._build_reply(request, len(messages), turn, turn.calls))
            )
        )

    def _next(self) -> RecordedTurn:
        match self.replies:
            case 0:
                return RecordedTurn("Fix it.", FIX, NEW_TEST)
            case n if n < self.steps - 1 and n % 25 == 0:
                return RecordedTurn(f"Print {n}.", RunShell(command=f"echo {n}"))
            case n if n < self.steps - 1:
                return RecordedTurn(f"Look {n}.", ViewFile(path="numbers.txt", start=10 * n, end=10 * n + 60))
            case _:
                return RecordedTurn("Done.", DONE)


@pytest.fixture
def scenario(make_scenario: Callable[..., Scenario]) -> Scenario:
    numbers = "".join(f"{n}: {'x' * 30}\n" for n in range(4_000))
    return make_scenario({"calc.py": CODE, "tests/test_calc.py": TESTS, "numbers.txt": numbers})


async def resolve_long_run(scenario: Scenario, endpoint: LongRunModel, **settings: int) -> Trajectory:
    scenario.endpoint = await scenario.stack.enter_async_context(endpoint)
    scenario.environment["PATCHWRIGHT_MODEL_BASE_URL"] = endpoint.base_url
    scenario.environment |= {f"PATCHWRIGHT_{key.upper()}": str(value) for key, value in settings.items()}
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published), outcome
    assert outcome.verdict.kind == "fixed"
    return scenario.trajectory()


def changed_prefixes(requests: list[dict[str, Any]]) -> int:
    """Returns how many requests did not start with the complete previous one."""
    return sum(
        later["messages"][: len(one["messages"])] != one["messages"] for one, later in pairwise(requests)
    )


@pytest.mark.timeout(120)
@pytest.mark.slow
async def test_a_run_of_three_hundred_steps_is_condensed_and_completes(scenario: Scenario) -> None:
    endpoint = LongRunModel()
    run = await resolve_long_run(scenario, endpoint, max_steps=STEPS + 20, max_context_tokens=16_000)
    condensed = [event for event in run if isinstance(event, Condensation)]
    assert len(run.replies()) >= STEPS
    assert sum(event.forgotten_replies > 0 for event in condensed) >= 3
    assert changed_prefixes(endpoint.requests) == len(condensed)
    assert all(event.tokens_after < event.tokens_before for event in condensed)
    assert len(endpoint.summaries) == sum(isinstance(event, AuxiliaryModelCall) for event in run)
    assert len(run) >= 500 and max(reply.usage.prompt_tokens for reply in run.replies()) <= 16_000
    issue, *_ = [
        message["content"] for message in endpoint.requests[-1]["messages"] if message["role"] == "user"
    ]
    assert "add(2, 3) gives -1" in issue
    assert NOTES in str(endpoint.requests[-1]["messages"])
    assert run.usage().prompt_tokens > sum(reply.usage.prompt_tokens for reply in run.replies())


@pytest.mark.slow
async def test_a_smaller_context_window_than_expected_is_learned_once(
    scenario: Scenario,
) -> None:
    endpoint = LongRunModel(steps=40, takes=14_000)
    run = await resolve_long_run(scenario, endpoint)
    condensed = [event for event in run if isinstance(event, Condensation)]
    assert [event.cause for event in condensed].count("overflow") == 1
    assert "length" in [event.cause for event in condensed]
    ended = [event for event in run if isinstance(event, AgentStopped)]
    assert [event.reason for event in ended] == ["finished"]
    assert len([event for event in run if isinstance(event, ModelReply)]) >= 40
    assert build_messages(run) == build_messages(Trajectory(run.entries))
