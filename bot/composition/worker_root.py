"""Builds the objects of a worker, and runs it. Imported only by `patchwright work`, because its imports are slow."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from patchwright.bot.composition.composition_root import build_run_dependencies, open_forge, read_environment
from patchwright.bot.composition.conversation_factory import continue_conversations
from patchwright.bot.composition.sandbox_factory import prepare_sandboxes
from patchwright.bot.github.app_permissions import AppPermissions, require_permissions
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.github.start_labels import StartLabels
from patchwright.bot.github.write_check import with_write_check
from patchwright.bot.job_runner import JobResolver
from patchwright.bot.jobs import Failed, JobHandler, JobResult
from patchwright.bot.observe.archive import Archive, Archiver, open_archive
from patchwright.bot.observe.run_index import (
    index_result,
    index_saved_branch,
    keep_index_complete,
    with_run_index,
)
from patchwright.bot.observe.tracing import NullTracer, Tracer, build_tracer
from patchwright.bot.reconcile.reconciler_factory import open_reconciler
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.comment_outbox import open_outbox
from patchwright.bot.redis.connection import wait_for_redis
from patchwright.bot.redis.counters import Counters
from patchwright.bot.redis.engine_health import EngineHealth, report_after_sweep
from patchwright.bot.redis.leader_lease import LeaderLease
from patchwright.bot.redis.quotas import Quotas
from patchwright.bot.redis.shared_run_index import SharedRunIndex
from patchwright.bot.redis.shared_run_log import SharedLogStore, raise_no_archive
from patchwright.bot.redis.shared_write_limiter import SharedWriteLimiter
from patchwright.bot.redis.waiting_calls import WaitingCalls
from patchwright.bot.run_messages import RunMessages
from patchwright.bot.status_comment import comment_reporter, report_failure
from patchwright.bot.usage_report import build_usage_report, read_job_work
from patchwright.bot.worker.daily_limits import with_daily_limits
from patchwright.bot.worker.pull_request_outcomes import OwnPullRequests
from patchwright.bot.worker.worker_process import WorkerGitHub, WorkerHooks, require_redis_url, run_worker
from patchwright.bot.write_limiter import PriorityForge
from patchwright.resolver.domain import Job, JobId, Usage
from patchwright.resolver.errors import ForgeError, Unauthorized
from patchwright.resolver.forge import MaskingForge
from patchwright.resolver.llm.litellm import preload_litellm
from patchwright.resolver.pipeline.admission import find_early_rejection
from patchwright.resolver.pipeline.resolve import resolve_job
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.docker.reaper import sweep_periodically


async def start_worker(
    settings: Settings,
    notify: Callable[[str], object],
    build_evaluator: Callable[[RunDependencies], JobHandler],
    *,
    exclusive: bool,
) -> bool:
    """Processes jobs from the configured Redis until a stop signal. Returns True if the signal was Ctrl-C.
    `build_evaluator` returns what runs the jobs of evaluations. `exclusive` means that no other worker uses this Redis.
    """
    redis_url = require_redis_url(settings)
    async with contextlib.AsyncExitStack() as stack:
        # The GitHub credentials are checked first, so that missing ones are reported before images are built.
        write_limiter = SharedWriteLimiter(redis_url)
        stack.push_async_callback(write_limiter.close)
        github = await stack.enter_async_context(open_forge(settings, write_limiter=write_limiter))
        await wait_for_redis(redis_url, notify)
        await check_github_identity(github, notify)
        await stack.enter_async_context(open_outbox(redis_url, github))
        watcher = await stack.enter_async_context(open_reconciler(settings, github))
        stores = await stack.enter_async_context(_Stores.open(settings, redis_url))
        deps = await stack.enter_async_context(
            build_run_dependencies(settings, notify=notify, prepare_sandboxes=False)
        )
        forge = MaskingForge(github, deps.secrets.mask)
        deps = replace(deps, logs=stores.logs, get_new_messages=RunMessages(stores.queue, forge).fetch_new)
        tracer = build_tracer(read_environment(), stores.logs.read, settings.metrics_label)
        stack.push_async_callback(tracer.close)
        access = AppPermissions(github.rest, stores.leader_lease)
        worker = _WorkerParts(settings, stores, github, forge, deps, tracer, access)
        # Importing LiteLLM takes 2 s. Preloading it spares the first job this delay.
        preloading = asyncio.create_task(preload_litellm())
        conversations = continue_conversations(settings, read_environment(), redis_url)
        async with _in_background(*worker.maintenance(), conversations):
            stop_signal = await run_worker(
                settings,
                worker.build_resolver(),
                worker.report_failure,
                worker.build_github(),
                WorkerHooks(worker.prepare, watcher, worker.record_result, build_evaluator(deps)),
                exclusive=exclusive,
            )
        await preloading
    return stop_signal == signal.SIGINT


async def check_github_identity(github: GitHubForge, notify: Callable[[str], object]) -> None:
    """Checks the GitHub credentials. Raises Unauthorized if they are invalid. Reports other failures to `notify`."""
    try:
        await github.verify_credentials()
    except Unauthorized:
        raise
    except ForgeError as exc:  # not fatal: GitHub may respond again before the first delivery arrives
        notify(f"NOTICE: The GitHub credentials could not be checked: {exc}")


@contextlib.asynccontextmanager
async def _in_background(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs the coroutines inside the block, and cancels them at its end."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True)
class _Stores:
    """The data that a worker reads and writes: connections to Redis, the local run logs, and the archive."""

    local_logs: FileLogStore
    archive: Archive | None
    logs: SharedLogStore
    counters: Counters
    quotas: Quotas
    queue: ArqQueue
    leader_lease: LeaderLease
    runs: SharedRunIndex
    engines: EngineHealth
    waiting_calls: WaitingCalls

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, settings: Settings, url: str) -> AsyncIterator["_Stores"]:
        local_logs, archive = FileLogStore(settings.data / "runs"), open_archive(settings)
        stores = cls(
            local_logs=local_logs,
            archive=archive,
            logs=SharedLogStore(local_logs, url, archive.read if archive else raise_no_archive),
            counters=Counters(url, settings.metrics_label),
            quotas=Quotas(url),
            queue=ArqQueue(url),
            leader_lease=LeaderLease(url),
            runs=SharedRunIndex(url),
            engines=EngineHealth(url),
            waiting_calls=WaitingCalls(url),
        )
        async with contextlib.AsyncExitStack() as stack:
            for store in (
                *(stores.logs, stores.counters, stores.quotas, stores.queue),
                *(stores.leader_lease, stores.runs, stores.engines, stores.waiting_calls),
            ):
                stack.push_async_callback(store.close)
            yield stores


@dataclass(frozen=True)
class _WorkerParts:
    """The parts of a worker process, and what they do together."""

    settings: Settings
    stores: _Stores
    github: GitHubForge
    forge: MaskingForge
    """The same GitHub, for texts that may contain secrets."""
    deps: RunDependencies
    tracer: Tracer | NullTracer
    access: AppPermissions

    def build_resolver(self) -> JobResolver:
        """Returns the function that resolves a job, with the checks that come before it."""
        reporter = with_write_check(comment_reporter(self.forge, self.settings), self.github.write_check)
        reporter = with_run_index(reporter, self.stores.runs)
        resolve = partial(resolve_job, deps=self.deps, forge=self.forge, reporter=reporter)
        permitted = require_permissions(self.tracer.track_start(resolve), self.access, self.forge)
        return with_daily_limits(permitted, self.stores.quotas, self.forge, self.settings, self._read_usage)

    def build_github(self) -> WorkerGitHub:
        """Returns what the worker does on GitHub besides its jobs."""
        rest, settings = self.github.rest, self.settings
        return WorkerGitHub(
            forge=PriorityForge(self.github),
            pull_requests=OwnPullRequests(rest, self.github, self.stores.counters, settings.branch_prefix),
            access=self.access,
            checks_forge=self.github,
            labels=StartLabels(rest, settings, self.stores.leader_lease),
            find_rejection=partial(
                find_early_rejection, forge=self.forge, logs=self.stores.logs, settings=settings
            ),
        )

    def maintenance(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Returns what runs next to the jobs: removing leftover sandboxes, archiving and indexing runs, and rejecting
        calls that nobody approved.
        """
        stores = self.stores
        return (
            sweep_periodically(report_after_sweep(self.deps.sandboxes.sweep, stores.engines)),
            Archiver(stores.logs, stores.local_logs, stores.archive).run(),
            keep_index_complete(stores.runs, self.settings.data / "runs", stores.archive),
            stores.waiting_calls.keep_rejecting(stores.queue, stores.logs.read),
        )

    async def prepare(self) -> None:
        await prepare_sandboxes(self.deps.sandboxes, self.settings)
        await self.stores.engines.report()

    async def report_failure(self, job: Job, error: Exception) -> None:
        if branch := await report_failure(self.forge, job, error, self.deps):
            await index_saved_branch(job.id, branch, self.stores.runs)

    async def record_result(self, job: JobId, result: JobResult) -> Usage:
        """Counts a job with its usage, and adds it to the index of runs. Returns the usage."""
        if isinstance(result, Failed):  # The dashboard shows the error.
            result = result.model_copy(update={"error": self.deps.secrets.mask(result.error)})
        self.tracer.send_trace(job, result)
        report = await asyncio.to_thread(build_usage_report, job, self.stores.logs.read)
        await self.stores.counters.record_result(job, result, report)
        await index_result(job, result, self.stores.runs, self.stores.queue)
        if (record := await self.stores.queue.get_record(job)) is not None:
            await self.stores.waiting_calls.add(record.job, result)
        return report.usage

    def _read_usage(self, job: JobId) -> Usage:
        return read_job_work(job, self.stores.logs.read).usage()
