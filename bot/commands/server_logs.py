"""Shares a run of the command line with the server on the same machine, so that the dashboard shows the run."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from patchwright.bot.errors import QueueDown
from patchwright.bot.observe.run_index import with_run_index
from patchwright.bot.redis.embedded_redis import running_redis_url
from patchwright.bot.redis.shared_run_index import SharedRunIndex
from patchwright.bot.redis.shared_run_log import SharedLogStore
from patchwright.bot.run_summary import summarize_log
from patchwright.resolver.domain import Job
from patchwright.resolver.errors import LogError
from patchwright.resolver.run.dependencies import ProgressReporter
from patchwright.resolver.run_log import FileLogStore, LogStore
from patchwright.resolver.settings.settings import Settings


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
