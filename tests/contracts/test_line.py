"""What every line of writes does: they keep their distance, and what somebody waits for goes first."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bot.embedded import embedded_redis
from bot.errors import Crowded
from bot.pacing import Line, OwnLine, Urgency, turn, writing
from bot.redis.pacing import SharedLine
from resolver.errors import RateLimited

GAP = 0.2  # seconds

Open = Callable[[], Line]


@pytest.fixture(params=["own", pytest.param("shared", marks=pytest.mark.redis)])
async def another(request: pytest.FixtureRequest, short_tmp: Path) -> AsyncIterator[Open]:
    """The line as one more of those that write sees it: another process, where they share one."""
    if request.param == "own":
        own = OwnLine()
        yield lambda: own
        return
    async with embedded_redis(short_tmp) as url:
        made: list[SharedLine] = []

        def open_one() -> SharedLine:
            made.append(SharedLine(url))
            return made[-1]

        yield open_one
        for one in made:
            await one.close()


async def in_turn(lines: dict[str, tuple[Line, Urgency]]) -> list[str]:
    """In which order these get their turns, who all ask again and again."""
    served, began = list[str](), time.monotonic()
    while len(served) < len(lines):
        assert time.monotonic() - began < 30
        for ticket, (line, urgency) in lines.items():
            if ticket not in served and await line.claim("us", ticket, urgency, GAP) == 0:
                served.append(ticket)
        await asyncio.sleep(0.01)
    return served


async def test_writes_keep_their_distance_whoever_makes_them(another: Open) -> None:
    began = time.monotonic()
    await asyncio.gather(*(turn(another(), "us", GAP) for _ in range(5)))
    assert time.monotonic() - began >= 4 * GAP - 0.02


async def test_those_of_another_installation_do_not_wait(another: Open) -> None:
    line = another()
    await line.hold("others", 60)
    await turn(line, "us", 60)
    with pytest.raises(RateLimited):
        await turn(line, "others", GAP)
    assert await line.claim("third", "ticket", Urgency.WORK, 60) == 0


async def test_an_acknowledgement_goes_before_what_waited_longer(another: Open) -> None:
    await turn(another(), "us", GAP)
    waiting = {f"work {n}": (another(), Urgency.WORK) for n in range(3)}
    for ticket, (line, urgency) in waiting.items():
        assert await line.claim("us", ticket, urgency, GAP) > 0
        await asyncio.sleep(0.002)  # as fine as the clock of the line is
    waiting["heard"] = (another(), Urgency.ACKNOWLEDGEMENT)
    assert await waiting["heard"][0].claim("us", "heard", Urgency.ACKNOWLEDGEMENT, GAP) > 0
    assert await in_turn(waiting) == ["heard", "work 0", "work 1", "work 2"]


async def test_progress_never_waits_in_the_line(another: Open) -> None:
    line = another()
    with writing(Urgency.PROGRESS):
        await turn(line, "us", 60)
        with pytest.raises(Crowded) as refused:
            await turn(another(), "us", 60)
    assert 0 < refused.value.seconds <= 60


async def test_progress_goes_when_nobody_else_has_anything_to_write(another: Open) -> None:
    await turn(another(), "us", GAP)
    work = (another(), Urgency.WORK)
    assert await work[0].claim("us", "work", Urgency.WORK, GAP) > 0
    assert await in_turn({"news": (another(), Urgency.PROGRESS), "work": work}) == ["work", "news"]


async def test_who_stops_waiting_stands_in_nobodys_way(another: Open) -> None:
    await turn(another(), "us", GAP)
    with writing(Urgency.ACKNOWLEDGEMENT):
        gone = asyncio.create_task(turn(another(), "us", GAP))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await asyncio.wait_for(turn(another(), "us", GAP), 20)


async def test_one_is_told_to_wait_and_all_do(another: Open) -> None:
    line = another()
    assert await another().held("us") == 0
    await line.hold("us", 1.0)
    await line.hold("us", 0.1)  # a later word does not shorten it
    assert 0.5 < await another().held("us") <= 1.0
    with pytest.raises(RateLimited):
        await turn(another(), "us", GAP)
    waited = time.monotonic()
    while await line.held("us"):
        assert time.monotonic() - waited < 20
        await asyncio.sleep(0.05)
    await turn(another(), "us", GAP)
