"""Spreads an evaluation over machines: puts a job for each instance into the bot's queue, and collects the results.

Everything that a call of the command needs to know about an earlier one is in Redis and in the results. So after a
kill, the next call finds the jobs by their names, waits for those that still run, and collects what is there.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TypeVar

from patchwright.bot.errors import QueueDown
from patchwright.bot.jobs import Failed, JobRecord
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.connection import wait_for_redis
from patchwright.bot.redis.heartbeats import Heartbeats
from patchwright.bot.redis.shared_run_log import SharedLogStore
from patchwright.evaluation.attempt import AttemptTask
from patchwright.evaluation.budget import Budget
from patchwright.evaluation.controls import ControlResult
from patchwright.evaluation.instances import Instance
from patchwright.evaluation.results import EvaluationPlan, ResultDirectory
from patchwright.evaluation.runner import Observer, evaluate_each, fail_attempt
from patchwright.evaluation.variants import Variant
from patchwright.evaluation.worker_jobs import JobMessages, WorkerTask
from patchwright.resolver.domain import Job, JobId, Repo, RunId, Usage
from patchwright.resolver.errors import LogError, SettingsError
from patchwright.resolver.run_log import FileLogStore

POLL_SECONDS = 1.0
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class WorkerQueue:
    """The queue of the workers, and what the jobs read and write in Redis."""

    jobs: ArqQueue
    messages: JobMessages
    logs: SharedLogStore


@asynccontextmanager
async def open_worker_queue(
    url: str | None, runs: Path, notify: Callable[[str], object]
) -> AsyncIterator[WorkerQueue]:
    """Yields the queue. `runs` is the directory for the logs. Raises SettingsError if there is no Redis."""
    if url is None:
        raise SettingsError("REDIS_URL is not set. With --on-workers, set it to the Redis of your workers.")
    await wait_for_redis(url, notify)
    heartbeats = Heartbeats(url)
    queue = WorkerQueue(ArqQueue(url), JobMessages(url), SharedLogStore(FileLogStore(runs), url))
    try:
        if not await heartbeats.count_workers():
            notify("NOTICE: No worker uses this Redis yet. Start `patchwright work` on your machines.")
        yield queue
    finally:
        for store in (heartbeats, queue.jobs, queue.messages, queue.logs):
            await store.close()


@dataclass(frozen=True)
class WorkerEvaluation:
    """The instances of an evaluation with one model, on workers."""

    instances: tuple[Instance, ...]
    variant: Variant
    attempts: int
    at_a_time: int
    plan: EvaluationPlan
    directory: ResultDirectory
    queue: WorkerQueue
    budget: Budget
    observer: Observer
    reserved: dict[JobId, Decimal] = field(default_factory=dict)
    """What the attempts of each job may cost, in dollars."""

    async def run(self) -> None:
        """Lets workers make all attempts that have no result yet. Waits while Redis is down."""
        for instance in self.instances:  # first, so that no new job takes the money of one that runs
            number, record = 1, await self._read_record(instance, 1)
            while record and record.state == "completed":
                number, record = number + 1, await self._read_record(instance, number + 1)
            if record:
                task = await _patiently(partial(self.queue.messages.read_task, record.job.id))
                self.reserved[record.job.id] = self._limit * len(task.attempts if task else ())
                await self.budget.reserve_running(self.reserved[record.job.id])
        await evaluate_each(self.instances, self.at_a_time, self._evaluate, self.observer)

    async def _evaluate(self, instance: Instance) -> None:
        attempts = self._list_attempts(instance)
        for attempt in attempts:
            if stored := self.directory.read_attempt(attempt.run):
                self.observer.on_attempt(stored)
        number, is_collected = await self._collect_earlier_jobs(instance)
        control = self.directory.read_control(instance.id)
        if is_collected and control and control.problem:
            return
        if control is not None and control.problem:
            control = None  # The cause may have been the machine, so the instance is checked again.
        missing = [each for each in attempts if self.directory.read_attempt(each.run) is None]
        count = len(missing)
        while count and not await self.budget.reserve(self._limit * count):
            count -= 1
        for attempt in missing[count:]:
            self.observer.on_skip(attempt)
        if control is not None and not count:
            self.observer.on_control(control)
            return
        await self._run_job(self._build_job(instance, number), instance, missing[:count], control)

    async def _run_job(
        self, job: Job, instance: Instance, attempts: list[AttemptTask], control: ControlResult | None
    ) -> None:
        task = WorkerTask(
            instance=instance,
            variant=self.variant,
            attempts=tuple(attempt.number for attempt in attempts),
            control=control,
            sandbox=self.plan.sandbox,
            max_usd=self.plan.max_usd,
            max_steps=self.plan.max_steps,
            timeout=self.plan.timeout,
            file_hints=self.plan.file_hints,
            writes_tests=self.plan.writes_tests,
        )
        self.reserved[job.id] = self._limit * len(attempts)
        record = None
        while record is None:  # more than once if Redis lost the job
            await _patiently(partial(self.queue.messages.write_task, job.id, task))
            await _patiently(partial(self.queue.jobs.put, job, urgent=False))
            record = await self._wait(instance, job.id)
        if not await self._collect(instance, record):
            await self._report_failure(instance, record, attempts)

    async def _collect_earlier_jobs(self, instance: Instance) -> tuple[int, bool]:
        """Collects what earlier calls of the command put into the queue. Returns the number of the next job, and
        whether there was a result.
        """
        number, is_collected = 1, False
        while await self._read_record(instance, number):
            job = self._build_job(instance, number).id
            record = await self._wait(instance, job)
            is_collected |= record is not None and await self._collect(instance, record)
            await self.budget.settle(self.reserved.pop(job, Decimal(0)), Decimal(0))
            number += 1
        return number, is_collected

    async def _wait(self, instance: Instance, job: JobId) -> JobRecord | None:
        """Waits until the job is completed. Returns None if Redis lost it."""
        while True:
            record = await _patiently(partial(self.queue.jobs.get_record, job))
            if record is not None and record.state == "running":
                self.observer.on_start(instance)
            if record is None or record.state == "completed":
                return record
            await asyncio.sleep(POLL_SECONDS)

    async def _collect(self, instance: Instance, record: JobRecord) -> bool:
        """Stores the result of a completed job. Returns False if there is none. A process that is killed meanwhile
        does it again.
        """
        job, runs = record.job.id, {attempt.run for attempt in self._list_attempts(instance)}
        result = await _patiently(partial(self.queue.messages.read_result, job))
        if result is None or result.control.instance != instance.id:
            return False
        self.observer.on_start(instance)
        if result.is_checked:
            self.directory.write_control(result.control)
        self.observer.on_control(result.control)
        for attempt in result.attempts:
            # The run names files, and Redis may contain anything.
            if attempt.run not in runs or self.directory.read_attempt(attempt.run):
                continue
            await self._copy_log(RunId(attempt.run), is_ended=attempt.failure != "model")
            if attempt.failure != "model":
                self.directory.write_attempt(attempt)
            self.observer.on_attempt(attempt)
        cost = sum((attempt.usage.usd for attempt in result.attempts), Decimal(0))
        await self.budget.settle(self.reserved.pop(job, Decimal(0)), cost)
        await _patiently(partial(self.queue.messages.remove, job))
        return True

    async def _report_failure(
        self, instance: Instance, record: JobRecord, attempts: list[AttemptTask]
    ) -> None:
        """Shows that a job has no result. The next call of the command puts another job into the queue."""
        error = record.result.error if isinstance(record.result, Failed) else "The job has no result."
        cost = Decimal(0)
        for attempt in attempts:
            usage = await self._read_usage(attempt.run)
            cost += usage.usd
            self.observer.on_attempt(fail_attempt(attempt, error, usage))
        if not attempts:
            self.observer.on_control(ControlResult(instance=instance.id, problem=error))
        await self.budget.settle(self.reserved.pop(record.job.id, Decimal(0)), cost)

    async def _copy_log(self, run: RunId, *, is_ended: bool) -> None:
        """Copies the log from Redis. If the run has ended, lets the log in Redis expire."""
        with suppress(LogError):  # Redis was wiped. The result is complete without the log.
            trajectory = await asyncio.to_thread(self.queue.logs.read, run)
            async with FileLogStore(self.directory.runs).open(run) as log:
                log.replace_entries(trajectory.entries)
            if is_ended:
                await _patiently(partial(self.queue.logs.expire_stream, run, len(trajectory)))

    async def _read_usage(self, run: RunId) -> Usage:
        with suppress(LogError):
            return (await asyncio.to_thread(self.queue.logs.read, run)).usage()
        return Usage()

    async def _read_record(self, instance: Instance, number: int) -> JobRecord | None:
        return await _patiently(partial(self.queue.jobs.get_record, self._build_job(instance, number).id))

    def _build_job(self, instance: Instance, number: int) -> Job:
        """Returns the job with this number. Only jobs of one instance have the same thread, so they never run at
        the same time.
        """
        return Job(
            id=JobId(f"{instance.run_id(self.variant.name, 0)}.{number}"),
            repo=Repo(owner="evaluation", name=instance.evaluation),
            number=self.instances.index(instance),
            requester=None,
            is_evaluation=True,
        )

    @property
    def _limit(self) -> Decimal:
        """The most that an attempt may cost, in dollars."""
        return Decimal(dict(self.variant.settings).get("max_usd", self.plan.max_usd))

    def _list_attempts(self, instance: Instance) -> list[AttemptTask]:
        name, plan = self.variant.name, self.plan
        numbers = range(1, self.attempts + 1)
        return [AttemptTask(instance, name, each, plan.file_hints, plan.writes_tests) for each in numbers]


async def _patiently(call: Callable[[], Awaitable[_Value]]) -> _Value:
    """Repeats the call until Redis responds."""
    while True:
        try:
            return await call()
        except QueueDown:
            await asyncio.sleep(POLL_SECONDS)
