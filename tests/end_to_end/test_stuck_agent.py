"""Runs that go in circles: told once, then ended, with words that a maintainer can use."""

from collections.abc import Callable

import pytest

from patchwright.demo.recorded_model import RecordedTurn, context_overflow
from patchwright.resolver.events import AgentStopped
from patchwright.runtime.actions import RunShell, ViewFile
from tests.end_to_end.conftest import CODE, DONE, FIX, NEW_TEST, RUN_TESTS, Scene
from tests.end_to_end.scripted_models import SEES_IT_FAIL, declined, events, proposed, says, told

pytestmark = pytest.mark.slow

LOOK = ViewFile(path="calc.py")
LIST = RunShell(command="ls")


@pytest.fixture
def quick(a_scene: Callable[..., Scene]) -> Scene:
    """Without tests, since these runs come to nothing that could be tested."""
    return a_scene(files={"calc.py": CODE})


def ending(scene: Scene) -> AgentStopped:
    (ended,) = events(scene, "agent_stopped")
    assert isinstance(ended, AgentStopped)
    return ended


@pytest.mark.parametrize(
    ("turns", "pattern", "shown"),
    [
        ([RecordedTurn("Look.", LOOK)], "same call, 3 times", "`view calc.py`"),
        (
            [RecordedTurn("Look.", LOOK), RecordedTurn("List.", LIST)] * 12,
            "two calls in turn, 3 times",
            "`view calc.py` and `$ ls`",
        ),
        (
            [RecordedTurn("Guess.", ViewFile(path=f"no{n}.py")) for n in range(12)],
            "same error, 4 times",
            "`view no6.py` and `view no7.py`",
        ),
        (
            [RecordedTurn("Try.", RunShell(command=f": {n}; cat nothing.py")) for n in range(12)],
            "same error, 4 times",
            "cat nothing.py",
        ),
        (
            [
                RecordedTurn("Call.", calls=[{"name": "run_shell", "arguments": f'{{"cmd": {n}}}'}])
                for n in range(12)
            ],
            "same error, 4 times",
            "call of run_shell that could not be parsed",
        ),
    ],
    ids=["same call", "two in turn", "guessed names", "same error", "unreadable calls"],
)
async def test_a_circle_is_told_to_the_model_and_then_to_the_thread(
    quick: Scene, turns: list[RecordedTurn], pattern: str, shown: str
) -> None:
    await says(quick, *turns, max_steps=20)
    comment = await declined(quick)
    (nudge,) = told(quick, "nudge")
    assert "Repeating this will not change the result" in nudge
    ended = ending(quick)
    assert ended.reason == "stuck"
    assert "was still stuck after a reminder" in ended.detail
    assert pattern in ended.detail and shown in ended.detail
    assert comment.count(ended.detail) == 1


@pytest.mark.parametrize("words", ["I think about it.", ""])
async def test_a_model_that_only_talks_or_says_nothing_is_reminded_and_then_ended(
    quick: Scene, words: str
) -> None:
    await says(quick, RecordedTurn(words))
    comment = await declined(quick)
    assert len(told(quick, "program")) == 2
    assert "run_shell" in told(quick, "program")[0]
    assert ending(quick).reason == "stuck"
    assert "3 replies in a row without calling a tool" in comment


async def test_a_prompt_that_stays_too_long_ends_the_run_and_says_so(quick: Scene) -> None:
    endpoint = await says(
        quick, RecordedTurn("Look.", LOOK), RecordedTurn("List.", LIST), RecordedTurn("Done.", DONE)
    )
    endpoint.add_faults(*[context_overflow()] * 12)
    comment = await declined(quick)
    assert ending(quick).reason == "limit"
    assert "The conversation exceeds the context window of openai/scripted." in comment
    assert len(endpoint.requests) <= 3


async def test_a_nudge_is_heeded_and_the_run_goes_on_to_its_end(scene: Scene) -> None:
    loop = [RecordedTurn("See it fail.", SEES_IT_FAIL)] * 3
    mended = (
        RecordedTurn("Oh.", FIX, NEW_TEST),
        RecordedTurn("Run them.", RUN_TESTS),
        RecordedTurn("Done.", DONE),
    )
    await says(scene, *loop, *mended)
    assert (await proposed(scene)).startswith("**Fixed:**")
    (nudge,) = told(scene, "nudge")
    assert "the same call 3 times in a row" in nudge and "assert add(2, 3) == 5" in nudge
    assert ending(scene).reason == "finished"
