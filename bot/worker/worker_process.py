"""The worker process. It processes deliveries and runs jobs. Any number of workers can use the same Redis."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from patchwright.bot.child_process import WORKER_READY_PREFIX
from patchwright.bot.errors import QueueDown
from patchwright.bot.github.start_labels import StartLabels
from patchwright.bot.job_runner import FailureReporter, JobResolver, JobRunner
from patchwright.bot.jobs import JobHandler, JobResult, Retry, Stopped, current_cancellation
from patchwright.bot.observe.logging_setup import log_context
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.redis.heartbeats import Heartbeats
from patchwright.bot.redis.quotas import Quotas
from patchwright.bot.redis.start_locks import SharedStartLocks
from patchwright.bot.signals import catch_stop_signals
from patchwright.bot.thread_forge import NullForge, ThreadForge
from patchwright.bot.triggers.cancellation import CancellationHandler, PullRequestOutcomes, RepositoryAccess
from patchwright.bot.triggers.check_monitor import CheckMonitor, PullChecks
from patchwright.bot.triggers.command_context import FindRejection, TriggerServices
from patchwright.bot.triggers.delivery_processor import DeliveryProcessor
from patchwright.bot.triggers.queue_notice import QueueNotices, wait_for_start_lock
from patchwright.bot.triggers.trigger_handler import TriggerHandler
from patchwright.bot.webhooks.triggers import Triggers
from patchwright.resolver.cost import cost_fields
from patchwright.resolver.domain import Job, JobId, Usage
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.settings.settings import Settings

log = logging.getLogger(__name__)

ResultListener = Callable[[JobId, JobResult], Awaitable[Usage | None]]
"""Receives the result of a job, possibly twice. Returns the usage of the job, or None if the usage is unknown.
"""
Watcher = Callable[[TriggerHandler, str], Coroutine[Any, Any, None]]
"""Finds events that no delivery reported, and passes them to the handler (first argument). The second argument
is the name of the worker. Runs until canceled.
"""

# How long running jobs may take to save their work. The server kills a worker after 40 s.
SHUTDOWN_SECONDS = 30.0


def require_redis_url(settings: Settings) -> str:
    """Returns the URL of the Redis whose jobs this worker runs. Raises SettingsError if it is not set."""
    if settings.redis_url is None:
        raise SettingsError(
            "REDIS_URL is not set. Set it to the Redis of the server whose jobs this worker runs. "
            "On a single machine, `patchwright serve` starts a worker itself."
        )
    return settings.redis_url


@dataclass(frozen=True)
class WorkerGitHub:
    """What a worker does on GitHub besides its jobs. With the defaults, commands get no reply, and checks are ignored.

    `pull_requests` and `access` are explained in bot/triggers/cancellation.py, `labels` and `find_rejection` in
    bot/triggers/command_context.py.
    """

    forge: ThreadForge = field(default_factory=NullForge)
    """Replies to commands."""
    pull_requests: PullRequestOutcomes | None = None
    access: RepositoryAccess | None = None
    checks_forge: PullChecks | None = None
    labels: StartLabels | None = None
    find_rejection: FindRejection | None = None


WITHOUT_GITHUB = WorkerGitHub()


@dataclass(frozen=True)
class WorkerHooks:
    """What runs before, beside and after the jobs of a worker."""

    prepare: Callable[[], Awaitable[object]] | None = None
    """Runs first, for example to build images. Jobs stay queued until it ends, and comments on GitHub tell people
    about the wait.
    """
    watcher: Watcher | None = None
    """Runs at the same time as the jobs, and finds events that no delivery reported."""
    on_result: ResultListener | None = None
    evaluate: JobHandler | None = None
    """Runs the jobs of evaluations, which have no thread and no part in daily limits and metrics."""


NO_HOOKS = WorkerHooks()


async def run_worker(
    settings: Settings,
    resolve: JobResolver,
    report_failure: FailureReporter,
    github: WorkerGitHub = WITHOUT_GITHUB,
    hooks: WorkerHooks = NO_HOOKS,
    *,
    exclusive: bool = False,
    announce: Callable[[str], None] = lambda line: print(line, flush=True),
) -> signal.Signals:
    """Processes deliveries and jobs from Redis until SIGTERM or SIGINT. Returns the signal.

    `exclusive` is True if no other worker uses this Redis. Jobs that are still running at the end return to the
    queue. Raises SettingsError, and any error that `hooks.prepare` raises.
    """
    worker = _Worker(settings, github, exclusive=exclusive)

    async def run_jobs() -> None:
        if hooks.prepare is not None:
            await hooks.prepare()
        announce(f"{WORKER_READY_PREFIX} as {worker.name}")
        await worker.run_jobs(resolve, report_failure, hooks)

    with catch_stop_signals(announce, SHUTDOWN_SECONDS) as stop_signal:
        tasks: list[asyncio.Future[Any]] = [
            asyncio.create_task(run_jobs()),
            asyncio.create_task(worker.process_deliveries()),
        ]
        if hooks.watcher is not None:
            tasks.append(asyncio.create_task(hooks.watcher(worker.trigger_handler, worker.name)))
        try:
            await asyncio.wait([*tasks, stop_signal], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            # The tasks are canceled only once. A second cancellation would interrupt the cleanup of the jobs
            # and leave containers behind.
            await asyncio.wait(tasks, timeout=SHUTDOWN_SECONDS)
            await worker.close()
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()  # Raises the error of a task that failed, because such an error is a bug.
    return stop_signal.result()


class _Worker:
    """A worker's connections to Redis, and the handlers that use them."""

    def __init__(self, settings: Settings, github: WorkerGitHub, *, exclusive: bool) -> None:
        url = require_redis_url(settings)
        triggers = Triggers(label=settings.label, mention=settings.mention, app_id=settings.app_id)
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._queue = ArqQueue(
            url, is_only_worker=exclusive, max_concurrent_jobs=settings.max_concurrent_jobs
        )
        self._inbox, self._start_locks = DeliveryInbox(url), SharedStartLocks(url)
        self._heartbeats, self._refusals = Heartbeats(url), Quotas(url)
        self._access = github.access
        self._queue_notices = QueueNotices(
            self._queue,
            self._start_locks,
            github.forge,
            triggers.mention,
            count_workers=self._heartbeats.count_workers,
        )
        checks = None
        if github.checks_forge and settings.max_ci_repairs:
            checks = CheckMonitor(self._queue, github.checks_forge, settings.branch_prefix)
        self.trigger_handler = TriggerHandler(
            self._queue,
            triggers,
            github.forge,
            TriggerServices(
                cancellation=CancellationHandler(
                    self._queue, triggers.label, github.forge, github.pull_requests, github.access
                ),
                queue_notices=self._queue_notices,
                refusals=self._refusals,
                checks=checks,
                labels=github.labels,
                find_rejection=github.find_rejection,
            ),
        )

    async def run_jobs(
        self, resolve: JobResolver, report_failure: FailureReporter, hooks: WorkerHooks
    ) -> None:
        """Runs jobs until canceled."""
        runner = JobRunner(
            wait_for_start_lock(resolve, self._start_locks),
            report_failure,
            get_record=self._queue.get_record,
        )
        handle = _with_result_logging(runner.run, hooks.on_result)

        async def handler(job: Job, tries: int) -> JobResult | Retry:
            return await (hooks.evaluate if hooks.evaluate and job.is_evaluation else handle)(job, tries)

        async with asyncio.TaskGroup() as group:
            group.create_task(self._heartbeats.keep_beating(self.name))
            group.create_task(self._queue.process_jobs(handler, self._queue_notices.post_unreadable))

    async def process_deliveries(self) -> None:
        """Processes deliveries until canceled."""
        await DeliveryProcessor(self._inbox, self.trigger_handler, self.name, self._access).run()

    async def close(self) -> None:
        for store in (
            *(self.trigger_handler, self._queue, self._inbox, self._heartbeats, self._start_locks),
            self._refusals,
        ):
            await store.close()


def _with_result_logging(handler: JobHandler, on_result: ResultListener | None) -> JobHandler:
    async def handle_and_log(job: Job, tries: int) -> JobResult | Retry:
        fields = {"repo": str(job.repo), "number": job.number}
        with log_context(job=job.id):
            log.info("job started", extra={**fields, "try": tries})
            try:
                result = await handler(job, tries)
            except asyncio.CancelledError:
                if cancellation := current_cancellation():
                    # A task of its own completes the job, because the current task may be canceled again
                    # while it waits.
                    await asyncio.wait(
                        (asyncio.create_task(complete(job, cancellation.as_result(), fields)),)
                    )
                else:
                    log.info("job suspended", extra=fields)
                raise
            if isinstance(result, Retry):
                log.info("job requeued", extra={**fields, "retry_seconds": round(result.delay_seconds)})
            else:
                await complete(job, result, fields)
            return result

    async def complete(job: Job, result: JobResult, fields: dict[str, object]) -> None:
        usage = None
        if on_result is not None:
            with contextlib.suppress(QueueDown):  # If this fails, only the cost of the job is not recorded.
                usage = await on_result(job.id, result)
        log.info("job completed", extra={**fields, **_result_fields(result), **_cost_fields(usage)})

    return handle_and_log


def _result_fields(result: JobResult) -> dict[str, object]:
    """Returns the fields of a result for the operator's log. Leaves out untrusted text such as an
    explanation.
    """
    found: dict[str, object] = {"outcome": result.kind}
    if verdict := getattr(result, "verdict", None):
        found["verdict"] = verdict.kind
    if url := getattr(result, "url", None):
        found["url"] = url
    if isinstance(result, Stopped):
        found["reason"] = result.reason
    return found


def _cost_fields(usage: Usage | None) -> dict[str, object]:
    if usage is None:
        return {}
    cost: dict[str, object] = {**cost_fields("cost_usd", usage.cost)} or {"cost_usd": None}
    return {**cost, "seconds": round(usage.seconds, 1)}
