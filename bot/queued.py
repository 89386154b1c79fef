"""What a thread is told whose job has to wait, before the run itself speaks there.

The job's comment is then the run's: so it is written while nobody begins the job (`Holds`), and never over the run's
own words.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from bot.errors import QueueDown
from bot.jobs import Cancelled, Queue, Record, Unread, thread_of
from bot.lifecycle import Talker
from bot.mail import has_heard
from bot.words import dropped, queued, unread
from bot.worker import Resolve
from resolver import prose
from resolver.domain import Job, JobId, Outcome
from resolver.errors import ForgeError
from resolver.forge import MAY_TRIGGER

log = logging.getLogger(__name__)

GRACE = 2.0  # seconds after which a job that was not begun is said to wait
SAY_SECONDS = 20.0
HELD_SECONDS = SAY_SECONDS + 5  # a desk that dies meanwhile keeps no job for longer
LOOK_SECONDS = 0.1


class Holds(Protocol):
    """Jobs that are not to be begun just now. Both may raise QueueDown."""

    async def hold(self, job: JobId, *, seconds: float) -> None:
        """From now on, until it is let go or so many seconds have passed; 0 lets it go."""

    async def is_held(self, job: JobId) -> bool: ...


class HoldsHere:
    """Those of one process."""

    def __init__(self) -> None:
        self._until: dict[JobId, float] = {}

    async def hold(self, job: JobId, *, seconds: float) -> None:
        self._until[job] = asyncio.get_running_loop().time() + seconds
        if not seconds:
            del self._until[job]

    async def is_held(self, job: JobId) -> bool:
        return self._until.get(job, 0.0) > asyncio.get_running_loop().time()


class Waiting:
    """Says that a job waits, if it does."""

    def __init__(
        self,
        queue: Queue,
        holds: Holds,
        speaker: Talker,
        mention: str,
        grace: float = GRACE,
        workers: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        """`workers`: how many take jobs now, of those that hear of them; None: all."""
        self._queue = queue
        self._holds = holds
        self._speaker = speaker
        self._mention = mention
        self._grace = grace
        self._workers = workers
        self._left: set[JobId] = set()

    async def tell(self, job: Job) -> None:
        """Once the grace has passed; nothing is lost where that fails."""
        await asyncio.sleep(self._grace)
        try:
            async with _held(self._holds, job.id):
                # Whoever begins it writes that down first, and then looks whether it is held: one of us sees the other.
                record = await self._queue.state(job.id)
                if record is None or record.state != "queued" or record.tries:
                    return
                async with asyncio.timeout(SAY_SECONDS):
                    await self._say(record)
        except (QueueDown, ForgeError, TimeoutError) as exc:
            log.warning("thread not told that it waits", extra={"job": job.id, "reason": str(exc)})

    async def tell_left(self, job: Unread) -> None:
        """That nobody here can read it; once, and while its turn is kept from the others."""
        if job.id in self._left:
            return
        try:
            async with asyncio.timeout(SAY_SECONDS):
                if await self._speaker.permission(job.repo, job.requester) in MAY_TRIGGER:
                    await self._speaker.say(job.repo, job.number, job.id, unread())
            self._left.add(job.id)
        except (ForgeError, TimeoutError) as exc:
            log.warning("thread not told that it waits", extra={"job": job.id, "reason": str(exc)})

    async def _say(self, record: Record) -> None:
        job, others = record.job, await self._queue.everywhere()
        there = thread_of(job.repo, job.number)
        before = [one for one in others if one.job.id != job.id and _is_before(one, record)]
        here = [one for one in before if thread_of(one.job.repo, one.job.number) == there]
        if any(has_heard(one.job, record) for one in here):
            return  # whoever works there reads it
        if job.requester and await self._speaker.permission(job.repo, job.requester) not in MAY_TRIGGER:
            return  # it is refused when its turn comes
        count = len(here) or sum(one.state == "queued" for one in before)
        preparing = self._workers is not None and not await self._workers()
        text = queued(count, self._mention, here=bool(here), preparing=preparing)
        await self._speaker.say(job.repo, job.number, job.id, text)
        now = await self._queue.state(job.id)
        if now and isinstance(now.result, Cancelled):  # somebody stopped it while this was said
            await self._speaker.say(job.repo, job.number, job.id, prose.refused(dropped(now.result.why)))


def _is_before(one: Record, other: Record) -> bool:
    """Whether its turn comes first; of the same second, as GitHub has times, each is taken for the later one."""
    return one.state == "running" or (one.is_before(other.asked) if other.asked else True)


@contextlib.asynccontextmanager
async def _held(holds: Holds, job: JobId) -> AsyncIterator[None]:
    await holds.hold(job, seconds=HELD_SECONDS)
    try:
        yield
    finally:
        with contextlib.suppress(QueueDown):
            await holds.hold(job, seconds=0)


def when_free(resolve: Resolve, holds: Holds) -> Resolve:
    """`resolve`, which waits until nothing is said in the job's place."""

    async def waited(job: Job) -> Outcome:
        with contextlib.suppress(QueueDown):
            for _ in range(round(HELD_SECONDS / LOOK_SECONDS)):
                if not await holds.is_held(job.id):
                    break
                await asyncio.sleep(LOOK_SECONDS)
        return await resolve(job)

    return waited
