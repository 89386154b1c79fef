"""A worker whose sandboxes are made ready while it hears already what is asked for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.embedded import embedded_redis
from bot.redis.inbox import Inbox
from bot.redis.presence import Presence
from bot.redis.queue import ArqQueue
from bot.work import work
from resolver import prose
from resolver.domain import Job, JobId, Refused
from resolver.settings.settings import Settings
from runtime.errors import EngineUnavailable
from tests.bot.jobs import DONE, settled
from tests.bot.rooms import Room
from tests.bot.rooms import room as room  # the fixture

pytestmark = pytest.mark.redis

WAITS = (
    "This is queued, 0 ahead: the images that I work in are being made first, which takes a minute or two. "
    "I begin with it by myself, and this comment will say how it goes. To take it off my list, comment `@agent stop`."
)


@dataclass
class Slow:
    """A worker of a room, whose images take as long as the test likes."""

    room: Room
    url: str
    data: Path
    made: asyncio.Event = field(default_factory=asyncio.Event)
    lines: list[str] = field(default_factory=list)
    failure: Exception | None = None

    async def prepare(self) -> None:
        await self.made.wait()
        if self.failure is not None:
            raise self.failure

    async def resolve(self, job: Job) -> Refused:
        await self.room.forge.say(job.repo, job.number, job.id, prose.working())
        return DONE

    async def apologize(self, job: Job, error: Exception) -> None:
        raise AssertionError(error)

    async def run(self) -> None:
        await work(
            Settings(data=self.data, redis_url=self.url),
            self.resolve,
            self.apologize,
            prepare=self.prepare,
            speaker=self.room.forge,
            announce=self.lines.append,
        )

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        worker = asyncio.create_task(self.run())
        try:
            yield
        finally:
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker

    async def labelled(self) -> JobId:
        """Somebody labels the room's issue, and GitHub tells; the job, once it is queued."""
        delivery = await self.room.world.label(self.room.issue, "fix-me", by="maintainer")
        inbox, queue = Inbox(self.url), ArqQueue(self.url)
        try:
            await inbox.put(delivery.guid, delivery.event, delivery.body)
            async with asyncio.timeout(20):
                while not (known := await queue.everywhere()):
                    await asyncio.sleep(0.02)
        finally:
            await inbox.close()
            await queue.close()
        return known[0].job.id


@pytest.fixture
async def slow(room: Room, short_tmp: Path) -> AsyncIterator[Slow]:
    async with embedded_redis(short_tmp) as url:
        yield Slow(room, url, short_tmp)


async def test_who_labels_while_images_are_made_is_told_so_in_the_comment_that_the_run_goes_on_with(
    slow: Slow,
) -> None:
    queue, presence = ArqQueue(slow.url), Presence(slow.url)
    async with slow.working():
        job = await slow.labelled()
        assert await slow.room.answered("This is queued") == WAITS
        assert (slow.lines, await presence.workers()) == ([], 0)
        slow.made.set()
        assert (await settled(queue, job)).result == DONE
        assert slow.lines[0].startswith("patchwright works as ")
        assert slow.room.answers == [prose.working().strip()]
    await queue.close()
    await presence.close()


async def test_nothing_is_said_of_images_where_another_worker_takes_the_job(slow: Slow) -> None:
    other = Slow(slow.room, slow.url, slow.data)
    other.made.set()
    queue = ArqQueue(slow.url)
    async with slow.working(), other.working():
        assert (await settled(queue, await slow.labelled())).result == DONE
        await asyncio.sleep(3)  # longer than it is waited until a job is said to wait
    assert slow.room.answers == [prose.working().strip()]
    await queue.close()


async def test_a_worker_without_an_engine_ends_with_the_engines_own_words(slow: Slow) -> None:
    slow.failure = EngineUnavailable("no Docker engine answers")
    slow.made.set()
    async with asyncio.timeout(20):
        with pytest.raises(EngineUnavailable, match="no Docker engine answers"):
            await slow.run()
    assert slow.lines == []
