"""An agent whose conversation is refused as too long goes on once, and ends when that was not enough."""

from decimal import Decimal
from pathlib import Path

import pytest

from resolver.agent import begin
from resolver.condenser import InTurn, Listing, Masking, Room, Summarizing
from resolver.domain import RunId
from resolver.errors import ContextOverflow, ModelError
from resolver.events import Condensed, Consulted, Ended, Usage
from resolver.llm.model import Reply
from resolver.log import FileLog, FileLogs
from resolver.rules import Limits
from tests.resolver.agents import FINISH, Box, agent, create, work
from tests.resolver.scripted import Line, Scripted

TOO_LONG = ContextOverflow("Too long.")
LOOKED = tuple(create(f"{n}") for n in range(12))


@pytest.fixture
async def log(tmp_path: Path):
    async with FileLogs(tmp_path).open(RunId("run")) as log:
        yield log


async def condensing(log: FileLog, room: Room, *script: Line, limits: Limits | None = None) -> None:
    """A run of an agent with this room."""
    worker = agent(Scripted(script, usd=Decimal("0.01")), Box(), limits)
    worker.room = room
    await begin(log, "You mend.", "Issue 7", worker.tools)
    await worker.run(log)


def condensed(log: FileLog) -> list[Condensed]:
    return [event for event in log.trajectory if isinstance(event, Condensed)]


async def test_a_prompt_that_is_too_long_is_condensed_and_sent_again(log: FileLog) -> None:
    model = await work(log, *LOOKED, TOO_LONG, FINISH)
    (relief,) = condensed(log)
    assert relief.cause == "overflow"
    assert 0 < relief.forgotten < len(LOOKED)
    assert log.trajectory.ended is not None
    assert log.trajectory.ended.reason == "finished"
    assert len(model.asked[-1]) < len(model.asked[-2])
    assert "6. create 5 -> " in model.asked[-1][2].text


async def test_one_that_is_too_long_right_after_ends_the_run(log: FileLog) -> None:
    await work(log, *LOOKED, TOO_LONG, TOO_LONG)
    assert len(condensed(log)) == 1
    assert log.trajectory.ended == Ended(reason="limit", detail="Too long.")


async def test_after_a_reply_it_may_happen_once_more(log: FileLog) -> None:
    more = [create(f"more {n}") for n in range(8)]
    await work(log, *LOOKED, TOO_LONG, *more, TOO_LONG, FINISH)
    assert [event.cause for event in condensed(log)].count("overflow") == 2
    assert log.trajectory.ended is not None
    assert log.trajectory.ended.reason == "finished"


@pytest.mark.parametrize("failure", [ModelError("down"), TOO_LONG])
async def test_a_summary_that_cannot_be_had_does_not_stop_the_run(log: FileLog, failure: ModelError) -> None:
    room = Room(Summarizing(Scripted([failure])))
    await condensing(log, room, *LOOKED, TOO_LONG, FINISH)
    assert "No summary could be made" in condensed(log)[0].summary
    assert log.trajectory.ended is not None
    assert log.trajectory.ended.reason == "finished"


async def test_what_a_summary_costs_counts_before_the_model_is_asked_again(log: FileLog) -> None:
    dear = Reply(text="Notes.", calls=(), usage=Usage(model="dear", usd=Decimal("5")))
    room = Room(InTurn((Masking(), Summarizing(Scripted([dear])), Listing())))
    await condensing(log, room, *LOOKED, TOO_LONG)
    assert any(isinstance(event, Consulted) for event in log.trajectory)
    assert log.trajectory.ended is not None
    assert log.trajectory.ended.reason == "limit"
    assert "budget" in log.trajectory.ended.detail
