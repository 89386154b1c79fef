"""GitHub that does not answer at all: it is said once that it is away, and once that it is back."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from bot.github.rest import Rest, TokenAccess
from bot.reconcile.reconcile import Reconcile
from demo.world import Issue
from tests.bot.reconcile.lookouts import AT_ONCE, NOBODY, QUICK, SAMPLE, Place, a_place, access
from tests.page.browsing import Between

pytestmark = pytest.mark.redis

TOLD = ("cannot look at github", "can look at github again")


def labelled(place: Place) -> Issue:
    thread = place.world.issue(place.repo, title="T", body="B", by="stranger")
    place.world.labelled(thread, "fix-me", by="maintainer")
    return thread


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not done():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("redelivers", [False, True])
async def test_that_github_is_away_is_told_once_and_so_is_that_it_is_back(
    short_tmp: Path, caplog: pytest.LogCaptureFixture, redelivers: bool
) -> None:
    caplog.set_level(logging.INFO, "bot.reconcile.reconcile")

    def told(message: str) -> list[logging.LogRecord]:
        return [one for one in caplog.records if one.getMessage() == message]

    async with a_place(short_tmp) as place, Between(place.world.server_url) as way:
        url = place.world.api_url.replace(place.world.server_url, way.url)
        async with aclosing(Rest(access(place.app), url, None, QUICK)) as rest:
            looker = replace(place, rest=rest).looker(AT_ONCE, redelivers=redelivers)
            running = asyncio.create_task(looker.run())
            labelled(place)
            await until(lambda: "job found" in caplog.messages)
            assert await place.lookout.trouble() is None
            await way.cut()
            await until(lambda: bool(told(TOLD[0])))
            labelled(place)
            await asyncio.sleep(1)  # ten looks
            trouble = await place.lookout.trouble()
            await way.mend()
            await until(lambda: len(told("job found")) == 2)
            await until(lambda: bool(told(TOLD[1])))
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert await place.lookout.trouble() is None
    assert trouble is not None and "no answer from GitHub" in trouble.reason
    assert [len(told(each)) for each in TOLD] == [1, 1]
    assert vars(told(TOLD[0])[0])["again_seconds"] == 0
    assert "left out" not in caplog.messages


async def test_one_repository_that_does_not_answer_is_not_github_that_is_away(
    short_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_place(short_tmp) as place:
        place.world.refuse_next("GET", "/acme/sample/issues", status=502, times=4)
        await place.looker()._turn()
        assert await place.lookout.trouble() is None
    assert caplog.messages == ["left out"]


@asynccontextmanager
async def named(place: Place, way: Between, late: Callable[[], timedelta]) -> AsyncIterator[Reconcile]:
    """Looks by a person's token at the one repository and its webhook, at all of it once."""
    url = place.world.api_url.replace(place.world.server_url, way.url)
    token = TokenAccess(SecretStr(place.world.token("maintainer")))
    async with aclosing(Rest(token, url, None, QUICK)) as rest:
        yield Reconcile(
            *(rest, place.us, place.lookout, place.desk, "one"),
            repositories=(SAMPLE,),
            webhook_url=NOBODY,
            rhythm=replace(AT_ONCE, all=1e6),
            clock=lambda: place.world.now() + late(),
        )


@pytest.mark.parametrize("hours", [0, 2], ids=["asked", "listed again"])
async def test_webhooks_that_cannot_be_reached_tell_it_though_repositories_are_not_looked_at(
    short_tmp: Path, hours: int
) -> None:
    late = timedelta()
    async with (
        a_place(short_tmp) as place,
        Between(place.world.server_url) as way,
        named(place, way, lambda: late) as looker,
    ):
        place.world.permit(place.repo, "maintainer", "admin")
        place.world.hook(NOBODY, "s3cret", repo=place.repo)
        await place.world.label(labelled(place), "bug", by="maintainer")  # of which it is told
        await looker._turn()
        assert await place.lookout.trouble() is None
        await way.cut()
        late = timedelta(hours=hours)
        await looker._turn()
        assert await place.lookout.trouble() is not None


async def test_github_that_is_away_from_the_beginning_is_told(short_tmp: Path) -> None:
    async with a_place(short_tmp) as place, Between(place.world.server_url) as way:
        await way.cut()
        async with named(place, way, timedelta) as looker:
            looker._redelivers = False
            await looker._turn()
        assert await place.lookout.trouble() is not None
