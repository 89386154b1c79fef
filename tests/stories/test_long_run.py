"""A run that outgrows what the model takes goes on, and its account is still true."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from demo.dialects import Dialect
from demo.model import Endpoint, Fault, Turn, context_overflow, unpaired
from resolver.domain import Delivered
from resolver.events import Condensed, Consulted, Decided, Ended, Trajectory
from resolver.render import messages
from runtime.actions import RunShell, ViewFile
from tests.stories.conftest import CODE, DONE, FIX, KEY, NEW_TEST, TESTS, Scene

STEPS = 300
NOTES = (
    "Found: add() in calc.py subtracted. Changed: calc.py and tests/test_calc.py. Open: look around further."
)


class Tireless(Endpoint):
    """Mends the code, looks around for very long, and finishes; it goes by what it was asked, not by the prompt."""

    def __init__(self, *, steps: int = STEPS, takes: int | None = None) -> None:
        super().__init__((), key=KEY)
        self.steps = steps
        self.takes = takes
        """Tokens; a longer prompt is refused."""
        self.replies = 0
        self.summaries: list[dict[str, Any]] = []

    async def _complete(self, request: dict[str, Any], dialect: Dialect) -> Fault:
        asked = dialect.read(request)
        assert unpaired(asked) is None
        if self.takes is not None and len(json.dumps(asked)) > 4 * self.takes:
            return context_overflow()
        if not request.get("tools"):
            self.summaries.append(request)
            turn = Turn(NOTES)
        else:
            self.requests.append(request)
            turn = self._next()
            self.replies += 1
        return Fault(body=json.dumps(dialect.write(self._reply(request, len(asked), turn, turn.calls))))

    def _next(self) -> Turn:
        match self.replies:
            case 0:
                return Turn("Mend it.", FIX, NEW_TEST)
            case n if n < self.steps - 1 and n % 25 == 0:
                return Turn(f"Print {n}.", RunShell(command=f"echo {n}"))
            case n if n < self.steps - 1:
                return Turn(f"Look {n}.", ViewFile(path="numbers.txt", start=10 * n, end=10 * n + 60))
            case _:
                return Turn("Done.", DONE)


@pytest.fixture
def scene(a_scene: Callable[..., Scene]) -> Scene:
    numbers = "".join(f"{n}: {'x' * 30}\n" for n in range(4_000))
    return a_scene({"calc.py": CODE, "tests/test_calc.py": TESTS, "numbers.txt": numbers})


async def told(scene: Scene, endpoint: Tireless, **settings: int) -> Trajectory:
    scene.endpoint = await scene.stack.enter_async_context(endpoint)
    scene.environment["PATCHWRIGHT_MODEL_BASE_URL"] = endpoint.base_url
    scene.environment |= {f"PATCHWRIGHT_{key.upper()}": str(value) for key, value in settings.items()}
    outcome = await scene.resolve()
    assert isinstance(outcome, Delivered), outcome
    assert outcome.verdict.kind == "fixed"
    return scene.trajectory()


def changed_prefixes(requests: list[dict[str, Any]]) -> int:
    """How often a request did not begin with the whole of the one before."""
    return sum(
        later["messages"][: len(one["messages"])] != one["messages"] for one, later in pairwise(requests)
    )


@pytest.mark.timeout(120)
@pytest.mark.slow
async def test_a_run_of_three_hundred_steps_is_condensed_and_ends(scene: Scene) -> None:
    endpoint = Tireless()
    run = await told(scene, endpoint, max_steps=STEPS + 20, context_tokens=16_000)
    condensed = [event for event in run if isinstance(event, Condensed)]
    assert len(run.decisions()) >= STEPS
    assert sum(event.forgotten > 0 for event in condensed) >= 3
    assert changed_prefixes(endpoint.requests) == len(condensed)
    assert all(event.after < event.before for event in condensed)
    assert len(endpoint.summaries) == sum(isinstance(event, Consulted) for event in run)
    assert max(reply.usage.prompt_tokens for reply in run.decisions()) < 16_000 * 1.1
    issue, *_ = [
        message["content"] for message in endpoint.requests[-1]["messages"] if message["role"] == "user"
    ]
    assert "add(2, 3) gives -1" in issue
    assert NOTES in str(endpoint.requests[-1]["messages"])
    assert run.spent().prompt_tokens > sum(reply.usage.prompt_tokens for reply in run.decisions())


@pytest.mark.slow
async def test_a_model_that_takes_less_than_was_thought_is_sent_less_once_and_for_all(scene: Scene) -> None:
    endpoint = Tireless(steps=40, takes=14_000)
    run = await told(scene, endpoint)
    condensed = [event for event in run if isinstance(event, Condensed)]
    assert [event.cause for event in condensed].count("overflow") == 1
    assert "length" in [event.cause for event in condensed]
    ended = [event for event in run if isinstance(event, Ended)]
    assert [event.reason for event in ended] == ["finished"]
    assert len([event for event in run if isinstance(event, Decided)]) >= 40
    assert messages(run) == messages(Trajectory(run.entries))
