"""The queue on Redis: each trigger once, none lost, none doubled, whoever is killed.

A record per job, kept for good, says what became of it; arq carries the job to a worker, at least once.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import arq
from arq.constants import in_progress_key_prefix
from pydantic import ValidationError
from redis.exceptions import RedisError

from bot.errors import QueueDown
from bot.jobs import (
    Again,
    Cancelled,
    Handler,
    Left,
    Record,
    Result,
    Scope,
    Stop,
    Unread,
    Why,
    ending,
    in_order,
    meant_by,
    scope_of,
    scopes_of,
    stop,
    thread_of,
)
from bot.redis.client import redis_errors
from bot.redis.records import Records, unwanted_of
from bot.redis.taking import EXPIRES_MS, PAUSED, QUEUE, Later, Taker, arq_client, to_json, wake
from resolver.domain import Job, JobId, Repo

log = logging.getLogger(__name__)

ATTEND_SECONDS = 1.0  # how often a running job shows that it lives, and looks whether it is wanted
LEASE_SECONDS = 30.0  # a worker that shows no life for so long has lost its jobs to another
BUSY_SECONDS = 2.0  # until a job looks again whether its issue is free
AHEAD = timedelta(days=-1)  # arq does the longest due first
POLL_SECONDS = 0.2  # how often arq looks for work
UNREADABLE_SECONDS = 60.0  # until a job is tried again that another version of ours has put
PAUSE_SECONDS = 1.0  # after a Redis error, before the worker goes on

# arq's own limits would end a job behind our back (after 300 s, 5 tries, 24 h in the queue), so they are out
# of reach: the work has limits of its own, and tries are counted in the record.
JOB_SECONDS = 7 * 24 * 3600
MOST_TRIES = 1_000_000

STOPPED_SECONDS = 7 * 24 * 3600  # that a thread's stop is known: longer than deliveries can be sent again

FUNCTION = "resolve"


class ArqQueue:
    """The queue on a Redis (`redis://`, `rediss://` or `unix://`)."""

    def __init__(
        self, url: str, *, at_once: int = 2, sole: bool = False, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        """`at_once`: jobs that this worker runs at a time. `sole`: nobody else works on this Redis.

        Raises SettingsError for what is no such URL.
        """
        self._redis = arq_client(url)
        self._records = Records(self._redis)
        self._at_once = at_once
        self._sole = sole
        self._lease_seconds = lease_seconds
        self._running: set[JobId] = set()

    async def put(self, job: Job, *, urgent: bool = True, asked: datetime | None = None) -> bool:
        record = Record(job=job, urgent=urgent, asked=asked)
        with redis_errors():
            if asked is not None:
                keys = [_stopped(job.repo, job.number, scope) for scope in scopes_of(job)]
                stops = [stop for stop in await self._redis.mget(keys) if stop is not None]
                if any(asked < datetime.fromisoformat(stop.decode()) for stop in stops):
                    return False
            fresh = await self._records.begin(record)
            known = record if fresh else await self._unended(job)
            if known:  # also when it is not fresh: whoever stored it may have died before this line
                await self._enqueue(known)
            return fresh

    async def cancel(self, job: JobId, why: Why = "asked") -> bool:
        with redis_errors():
            known = await self.state(job)
            if known is None or known.state == "ended":
                return False
            await self._redis.set(unwanted_of(job), Stop(why=why).model_dump_json(), px=EXPIRES_MS)
            if known.state == "queued" and known.tries == 0:
                await self._records.write(
                    known.after(Cancelled(why=why)), keep_unwanted=True
                )  # it may just have begun
            elif known.state == "queued":  # between two tries: its next one, now, puts its work away
                rank = time.time() + (AHEAD.total_seconds() if known.urgent else 0)
                await self._redis.zadd(QUEUE, {job: int(rank * 1000)}, xx=True)
                await wake(self._redis, job)
            return True

    async def is_wanted(self, job: JobId) -> bool:
        with redis_errors():
            return not await self._redis.exists(unwanted_of(job))

    async def take_up(self, job: Job) -> None:
        with redis_errors():
            await self._records.write(Record(job=job).begun())

    async def settle(self, job: Job, result: Result) -> None:
        with redis_errors():
            await self._records.write((await self.state(job.id) or Record(job=job)).after(result))

    async def open(self, repo: Repo, number: int) -> tuple[Record, ...]:
        thread = thread_of(repo, number)
        known = await self.everywhere()
        return in_order(one for one in known if thread_of(one.job.repo, one.job.number) == thread)

    async def unread(self, repo: Repo, number: int) -> tuple[Unread, ...]:
        with redis_errors():
            known = await self._records.unread()
        thread = thread_of(repo, number)
        return tuple(one for one in known if thread_of(one.repo, one.number) == thread)

    async def everywhere(self) -> tuple[Record, ...]:
        with redis_errors():
            return tuple(await self._records.unended())

    async def stop(self, repo: Repo, number: int, at: datetime, why: Why = "asked") -> tuple[Record, ...]:
        scope = scope_of(why)
        key = _stopped(repo, number, scope)
        with redis_errors():
            before = await self._redis.get(key)
            last = max(at, datetime.fromisoformat(before.decode())) if before else at
            await self._redis.set(key, last.isoformat(), ex=STOPPED_SECONDS)
        meant = meant_by(await self.open(repo, number), at, scope)
        for one in meant:
            await self.cancel(one.job.id, why)
        return meant

    async def state(self, job: JobId) -> Record | None:
        with redis_errors():
            return await self._records.read(job)

    async def waiting(self) -> tuple[dict[str, int], float]:
        """Jobs that have not ended by their state, and how many seconds one of them has waited for a worker alone."""
        now, ages = time.time(), [0.0]
        with redis_errors():
            known = {one.job.id: one for one in await self._records.unended()}
            due = await self._redis.zrangebyscore(QUEUE, "-inf", now * 1000, withscores=True)
            ranked = [(known[JobId(name.decode())], at / 1000) for name, at in due if name.decode() in known]
            has = await self._redis.mget([in_progress_key_prefix + one.job.id for one, _ in ranked] or ["-"])
            turns = await self._redis.mget([_turn(one.job) for one, _ in ranked] or ["-"])
        for (one, at), held, turn in zip(ranked, has, turns, strict=False):
            if held is None and turn is None:
                ages.append(now - at + (AHEAD.total_seconds() if one.urgent else 0))
        return dict(Counter[str](one.state for one in known.values())), max(ages)

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)

    async def work(self, handler: Handler, left: Left | None = None) -> None:
        """`left` hears of a job that could not be read the second time: only another version can do it."""
        tasks: set[asyncio.Task[Any]] = set()
        try:
            if self._sole:
                await self._patiently(self._free)
            while True:
                await self._patiently(self._mend)
                # A Redis error ends an arq worker and leaves its counters wrong: a new one takes over, while
                # what the old one has begun goes on to its end.
                worker = self.worker(handler, left)
                try:
                    await worker.main()
                except (RedisError, OSError) as exc:
                    log.warning("the queue is interrupted", extra={"reason": type(exc).__name__})
                    await asyncio.sleep(PAUSE_SECONDS)
                finally:
                    tasks |= set(worker.tasks.values())
                    tasks -= {task for task in tasks if task.done()}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def worker(self, handler: Handler, left: Left | None = None) -> Taker:
        """arq's share of `work`, with its limits out of the way."""

        async def resolve(ctx: dict[Any, Any], text: str) -> None:
            name = JobId(ctx.get("job_id", ""))
            try:
                await self._take(handler, name, text, left if ctx.get("job_try", 1) > 1 else None)
            except Later as later:
                worker.pauses[name] = later.seconds
                raise

        logging.getLogger("arq.worker").setLevel(logging.WARNING)  # it prints a job's arguments: foreign text
        worker = Taker(
            functions=[arq.func(resolve, name=FUNCTION)],
            redis_pool=self._redis,
            queue_name=QUEUE,
            handle_signals=False,
            max_jobs=self._at_once,
            poll_delay=POLL_SECONDS,
            job_timeout=JOB_SECONDS,
            max_tries=MOST_TRIES,
            keep_result=0,  # ours is in the record
            expires_extra_ms=EXPIRES_MS,
            job_serializer=to_json,
            job_deserializer=json.loads,
        )
        # How long a job is taken without a sign of life. arq's choice, its time limit + 10 s, would leave the
        # job of a killed worker lying for a week; ours is short, and renewed while the job runs.
        worker.in_progress_timeout_s = self._lease_seconds
        return worker

    async def _take(self, handler: Handler, name: JobId, text: str, left: Left | None) -> None:
        try:
            try:
                job = Job.model_validate_json(text)
            except ValidationError as exc:
                facts = {"job": name, "faults": exc.error_count()}
                log.error("a job of another version is left to it", extra=facts)
                if left is not None and await self._records.is_fresh(name):
                    with contextlib.suppress(ValidationError):
                        await left(Unread.model_validate_json(text))
                raise Later(UNREADABLE_SECONDS) from exc
            await self._perform(handler, job)
        except (RedisError, OSError, QueueDown) as exc:
            raise Later(PAUSE_SECONDS) from exc  # else arq would take the job out of its queue

    async def _perform(self, handler: Handler, job: Job) -> None:
        if job.id in self._running:  # its lease ran out while Redis was away; it goes on here all the same
            raise Later(self._lease_seconds)
        self._running.add(job.id)
        try:
            await self._begin(handler, job)
        finally:
            self._running.discard(job.id)

    async def _begin(self, handler: Handler, job: Job) -> None:
        if await self._unended(job) is None:
            return
        if not await self._has_turn(job):  # two at once on one issue would push to one branch
            raise Later(BUSY_SECONDS)
        known = await self._unended(job)
        if known is None:  # ended by the run that had the turn until now
            await self._pass_turn(await self.state(job.id) or Record(job=job))
            return
        record = known.begun()
        await self._records.write(record)
        task = asyncio.create_task(handler(job, record.tries))
        attendant = asyncio.create_task(self._attend(record, task))
        try:
            await asyncio.wait((task,))
            stop = attendant.result() if attendant.done() else None
        except asyncio.CancelledError:  # we are told to go: its log goes on later
            task.cancel()
            await asyncio.wait((task,))
            result = Again(seconds=0, counts=False) if task.cancelled() else ending(job.id, task)
            # In a task of its own: before Python 3.11.3 a timeout inside a cancelled task, such as redis-py's,
            # ends it as cancelled once more. Debian 12 has 3.11.2.
            await asyncio.create_task(self._come_to(record, result))
            raise
        finally:
            attendant.cancel()
            await asyncio.gather(attendant, return_exceptions=True)
            await asyncio.create_task(self._pass_turn(record))
        result = Cancelled(why=stop.why) if stop and task.cancelled() else ending(job.id, task)
        await self._patiently(lambda: self._come_to(record, result))
        if isinstance(result, Again):
            pause = timedelta(seconds=result.seconds)
            raise Later(result.seconds, pause + AHEAD if record.urgent else pause)

    async def _come_to(self, record: Record, result: Result | Again) -> None:
        """Store what this try came to, if it is ours to tell."""
        if await self._is_ours(record):
            await self._records.write(record.after(result))

    async def _is_ours(self, record: Record) -> bool:
        """Whether nobody else, who thought us dead, has begun the job since."""
        known = await self.state(record.job.id)
        return known is None or known.tries <= record.tries

    async def _unended(self, job: Job) -> Record | None:
        """What is known of it; None: it has ended, or was never put."""
        known = await self.state(job.id)
        if known is None and await self._records.is_open(job.id):
            return Record(job=job)  # another version of ours knows more, and did not end it
        return None if known is None or known.state == "ended" else known

    async def _has_turn(self, job: Job) -> bool:
        """Whether this is the one job that may run on its issue or pull request now."""
        turn, lease = _turn(job), round(self._lease_seconds * 1000)
        return bool(await self._redis.set(turn, job.id, nx=True, px=lease)) or (
            await self._redis.get(turn) == job.id.encode()
        )

    async def _pass_turn(self, record: Record) -> None:
        turn, id = _turn(record.job), record.job.id.encode()
        with contextlib.suppress(RedisError, OSError, QueueDown):  # then it passes when its lease runs out
            if await self._redis.get(turn) == id and await self._is_ours(record):
                await self._redis.delete(turn)

    async def _attend(self, record: Record, task: asyncio.Task[Result | Again]) -> Stop | None:
        """Keeps the leases while the job runs; ends by cancelling it when it is not to go on."""
        job, lease = record.job, round(self._lease_seconds * 1000)
        while not task.done():
            try:
                async with self._redis.pipeline(transaction=False) as pipe:
                    pipe.get(unwanted_of(job.id))
                    pipe.set(in_progress_key_prefix + job.id, b"1", px=lease, xx=True)
                    pipe.set(_turn(job), job.id, px=lease)
                    unwanted, held, _ = await pipe.execute()
                if not held:  # Redis was wiped, or away for long
                    await self._say_again(record)
            except (RedisError, OSError):
                unwanted = None  # the work goes on without Redis
            if unwanted:
                told = _stop(unwanted)
                stop(task, told)
                return told
            await asyncio.sleep(ATTEND_SECONDS)
        return None

    async def _say_again(self, record: Record) -> None:
        """What runs here is known again, and begun nowhere else."""
        lease = round(self._lease_seconds * 1000)
        if await self._redis.set(in_progress_key_prefix + record.job.id, b"1", nx=True, px=lease):
            await self._records.restore(record)
            await self._enqueue(record)  # in its lease; another worker begins it when that runs out

    async def _free(self) -> None:
        """Nobody else can be running these: what a killed worker left begins at once."""
        for job in await self._records.open():
            if await self._redis.get(in_progress_key_prefix + job) != PAUSED:
                await self._redis.delete(in_progress_key_prefix + job)

    async def _mend(self) -> None:
        """Every job that has not ended is in arq's queue, whatever was lost on the way."""
        for job in await self._records.open():
            known = await self.state(job)
            if known is not None and known.state != "ended":
                await self._enqueue(known)
            elif known is not None or not await self._records.is_stored(job):
                await self._records.drop(job)

    async def _enqueue(self, record: Record) -> None:
        """Nothing happens when it is there already."""
        ahead = AHEAD if record.urgent else None
        job = record.job
        await self._redis.enqueue_job(FUNCTION, job.model_dump_json(), _job_id=job.id, _defer_by=ahead)

    async def _patiently(self, write: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await write()
            except (RedisError, OSError, QueueDown) as exc:
                log.warning("redis does not answer", extra={"reason": type(exc).__name__})
                await asyncio.sleep(PAUSE_SECONDS)


def _turn(job: Job) -> str:
    return f"patchwright:turn:{thread_of(job.repo, job.number)}"


def _stopped(repo: Repo, number: int, scope: Scope) -> str:
    """The key of the time until which what was asked for there is not wanted."""
    return f"patchwright:stopped:{scope}:{thread_of(repo, number)}"


def _stop(stored: bytes) -> Stop:
    try:
        return Stop.model_validate_json(stored)
    except ValidationError:  # of another version of ours
        return Stop(why="asked")
