"""Shows a server's run that continues on the command line: in the dashboard, and in the comment of the run."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from patchwright.bot.errors import QueueDown
from patchwright.bot.job_runner import JobCanceled, cancel_message, unwrap_exception_group
from patchwright.bot.jobs import OPERATOR_REQUEST
from patchwright.bot.observe.run_index import with_run_index
from patchwright.bot.redis.embedded_redis import running_redis_url
from patchwright.bot.redis.shared_run_index import SharedRunIndex
from patchwright.bot.redis.shared_run_log import SharedLogStore
from patchwright.bot.run_summary import summarize_log
from patchwright.bot.status_comment import comment_reporter, report_failure
from patchwright.resolver.domain import Job
from patchwright.resolver.errors import ForgeError, LogError, LogLocked, ResolverError
from patchwright.resolver.forge import Forge
from patchwright.resolver.run.dependencies import ProgressReporter, RunDependencies
from patchwright.resolver.run_log import FileLogStore, LogStore, RunLog
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.errors import SandboxError


def continuation_reporter(forge: Forge, settings: Settings, deps: RunDependencies) -> ProgressReporter:
    """Returns a reporter that shows in the run's comment that the operator continues the run. If the work does not
    end, the comment says why, and where the work is.
    """
    report_progress = comment_reporter(forge, settings, on_command_line=True)

    async def report(job: Job, error: Exception) -> None:
        if not isinstance(error, LogLocked):  # Otherwise, another process works on the run.
            with suppress(ForgeError):
                await report_failure(forge, job, error, deps)

    @asynccontextmanager
    async def reporting(job: Job, run: RunLog) -> AsyncIterator[None]:
        try:
            async with report_progress(job, run):
                yield
        except asyncio.CancelledError:
            await report(job, JobCanceled(cancel_message(OPERATOR_REQUEST)))
            raise
        except (ResolverError, SandboxError, ExceptionGroup) as exc:
            await report(job, unwrap_exception_group(exc))
            raise

    return reporting


@asynccontextmanager
async def share_with_server(
    job: Job,
    settings: Settings,
    logs: FileLogStore,
    reporter: ProgressReporter,
    notify: Callable[[str], object],
) -> AsyncIterator[tuple[LogStore, ProgressReporter]]:
    """Yields the logs and the reporter with which a run continues.

    If a server on this machine has worked on the run, the new events also go to the server's Redis. Otherwise,
    yields `logs` and `reporter` unchanged.
    """
    url = settings.redis_url or running_redis_url(settings.data)
    if url is None:
        yield logs, reporter
        return
    async with AsyncExitStack() as stack:
        runs = SharedRunIndex(url)
        stack.push_async_callback(runs.close)
        try:
            is_known = await runs.get(job.id) is not None
        except QueueDown as exc:
            notify(f"NOTICE: {exc} The dashboard shows this work when the server runs again.")
            is_known = False
        if not is_known:
            yield logs, reporter
            return
        shared = SharedLogStore(logs, url)
        stack.push_async_callback(shared.close)
        try:
            yield shared, with_run_index(reporter, runs)
        finally:  # The outcome is logged after the reporter has ended.
            with suppress(QueueDown, LogError):
                await runs.put(summarize_log(job, logs.read(job.id), is_running=False))
