"""A queue in this process: for tests of what is put into one."""

import asyncio
import itertools
from datetime import datetime

from bot.jobs import (
    Again,
    Cancelled,
    Handler,
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
from resolver.domain import Job, JobId, Repo


class InlineQueue:
    """The queue in this process: nothing outlives it. One job at a time."""

    def __init__(self) -> None:
        self._records: dict[JobId, Record] = {}
        self._waiting: asyncio.PriorityQueue[tuple[bool, int, JobId]] = asyncio.PriorityQueue()
        self._places = itertools.count()
        self._running: dict[JobId, asyncio.Task[Result | Again]] = {}
        self._stopped: dict[tuple[str, Scope], datetime] = {}
        self._unwanted: dict[JobId, Why] = {}
        self._taken_up: dict[JobId, Record] = {}
        self.left: list[Unread] = []
        """What another version has put."""

    @property
    def known(self) -> frozenset[JobId]:
        """Every job that was ever put."""
        return frozenset(self._records)

    async def put(self, job: Job, *, urgent: bool = True, asked: datetime | None = None) -> bool:
        thread = thread_of(job.repo, job.number)
        stops = [self._stopped.get((thread, scope)) for scope in scopes_of(job)]
        if job.id in self._records or (asked and any(stop and asked < stop for stop in stops)):
            return False
        self._records[job.id] = Record(job=job, urgent=urgent, asked=asked)
        self._line_up(job.id)
        return True

    async def take_up(self, job: Job) -> None:
        self._taken_up[job.id] = Record(job=job).begun()

    async def settle(self, job: Job, result: Result) -> None:
        self._records[job.id] = self._records.get(job.id, Record(job=job)).after(result)

    async def open(self, repo: Repo, number: int) -> tuple[Record, ...]:
        thread = thread_of(repo, number)
        known = await self.everywhere()
        return in_order(one for one in known if thread_of(one.job.repo, one.job.number) == thread)

    async def unread(self, repo: Repo, number: int) -> tuple[Unread, ...]:
        return tuple(one for one in self.left if thread_of(one.repo, one.number) == thread_of(repo, number))

    async def everywhere(self) -> tuple[Record, ...]:
        return tuple(one for one in self._records.values() if one.state != "ended")

    async def stop(self, repo: Repo, number: int, at: datetime, why: Why = "asked") -> tuple[Record, ...]:
        scope = scope_of(why)
        key = thread_of(repo, number), scope
        self._stopped[key] = max(at, self._stopped.get(key, at))
        meant = meant_by(await self.open(repo, number), at, scope)
        for one in meant:
            await self.cancel(one.job.id, why)
        return meant

    def _line_up(self, job: JobId) -> None:
        self._waiting.put_nowait((not self._records[job].urgent, next(self._places), job))

    async def cancel(self, job: JobId, why: Why = "asked") -> bool:
        known = self._records.get(job)
        if known is None or known.state == "ended":
            return False
        if known.state == "queued" and known.tries:  # its next try, now, puts its work away
            self._unwanted[job] = why
            self._line_up(job)
            return True
        self._records[job] = known.after(Cancelled(why=why))
        if job in self._running:
            stop(self._running[job], Stop(why=why))
        return True

    async def is_wanted(self, job: JobId) -> bool:
        known = self._records.get(job)
        return job not in self._unwanted and (known is None or known.state != "ended")

    async def state(self, job: JobId) -> Record | None:
        return self._records.get(job) or self._taken_up.get(job)

    async def work(self, handler: Handler) -> None:
        while True:
            _, _, job = await self._waiting.get()
            if self._records[job].state != "ended":
                await self._perform(handler, self._records[job].begun())

    async def _perform(self, handler: Handler, record: Record) -> None:
        job = record.job.id
        self._records[job] = record
        task = self._running[job] = asyncio.create_task(handler(record.job, record.tries))
        if why := self._unwanted.pop(job, None):
            await asyncio.sleep(0)  # it has to begin before it can be told
            self._records[job] = record.after(Cancelled(why=why))
            stop(task, Stop(why=why))
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,))
            result = Again(seconds=0, counts=False) if task.cancelled() else ending(job, task)
            self._records[job] = record.after(result)
            self._line_up(job)
            raise
        finally:
            del self._running[job]
        if self._records[job].state == "ended":
            return  # cancelled meanwhile
        result = ending(job, task)
        self._records[job] = record.after(result)
        if isinstance(result, Again):
            asyncio.get_running_loop().call_later(result.seconds, self._line_up, job)
