"""Keeps the status comment of a run up to date while it runs."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable

from patchwright.bot.errors import Preempted, QueueDown
from patchwright.bot.faults import classify_error
from patchwright.bot.job_runner import JobCanceled, is_retryable
from patchwright.bot.jobs import current_cancellation
from patchwright.bot.write_limiter import Priority, write_priority
from patchwright.resolver.activity.activity import Activity, render_progress
from patchwright.resolver.domain import Job
from patchwright.resolver.errors import (
    ForgeError,
    LogError,
    LogLocked,
    ModelConnectionFailed,
    ModelUnreachable,
)
from patchwright.resolver.events import Trajectory
from patchwright.resolver.forge import Forge
from patchwright.resolver.pipeline.salvage import salvage_run
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.run.dependencies import ProgressReporter, RunDependencies
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.errors import ImageUnavailable

log = logging.getLogger(__name__)

# Time between two edits. GitHub asks for pauses between writes, and people do not read faster than this.
EDIT_INTERVAL_SECONDS = 30.0
# How long to wait for an edit in progress. An edit fails if GitHub does not respond for 30 s.
LAST_EDIT_TIMEOUT_SECONDS = 40.0
# How long the shutdown of a server waits for the edit that reports the pause.
PAUSE_EDIT_TIMEOUT_SECONDS = 5.0
# Shows the log in the comment, with this priority. An activity replaces the one that the log implies.
CommentWriter = Callable[..., Awaitable[None]]
PAUSED = Activity(verb="paused, because the server is stopping. I continue when it has started again.")


def comment_reporter(
    forge: Forge,
    settings: Settings,
    interval: float = EDIT_INTERVAL_SECONDS,
    *,
    on_command_line: bool = False,
) -> ProgressReporter:
    """Returns a reporter that posts a status comment at once, and edits the comment while the run continues.

    The edits stop when the run ends. So they cannot overwrite the final text, which resolver/pipeline/publish.py or
    `report_failure` posts. `on_command_line` is True if an operator continues the run of a server there.
    """

    @contextlib.asynccontextmanager
    async def reporting(job: Job, run: RunLog) -> AsyncIterator[None]:
        async def post(trajectory: Trajectory, priority: Priority, activity: Activity | None = None) -> None:
            text = render_progress(job.id, trajectory, settings, activity, on_command_line=on_command_line)
            with write_priority(priority):
                await forge.upsert_comment(job.repo, job.number, job.id, text, in_progress=True)

        trajectory = run.trajectory
        await post(trajectory, Priority.ACKNOWLEDGMENT)
        is_over, is_suspended = asyncio.Event(), False
        writer = asyncio.create_task(_keep_updated(job, run, len(trajectory), post, interval, is_over))
        try:
            yield
        except asyncio.CancelledError:
            # A stop by a person, or the end of a workflow, has a final text of its own.
            has_final_text = on_command_line or settings.workflow_url is not None
            is_suspended = current_cancellation() is None and not has_final_text
            raise
        finally:
            is_over.set()
            try:
                await asyncio.wait((writer,), timeout=LAST_EDIT_TIMEOUT_SECONDS)
            finally:
                writer.cancel()
            if is_suspended:
                await _report_pause(job, run, post)

    return reporting


async def _report_pause(job: Job, run: RunLog, post: CommentWriter) -> None:
    """Says in the comment that the run waits for the server. A failure is only logged, because the server stops."""
    try:
        async with asyncio.timeout(PAUSE_EDIT_TIMEOUT_SECONDS):
            await run.check_ownership()
            await post(run.trajectory, Priority.ACKNOWLEDGMENT, PAUSED)
    except (ForgeError, LogError, QueueDown, TimeoutError) as exc:
        log.warning("pause not reported", extra={"job": job.id, "error": str(exc)})


async def _keep_updated(
    job: Job,
    run: RunLog,
    reported_events: int,
    post: CommentWriter,
    interval: float,
    is_over: asyncio.Event,
) -> None:
    """Edits the comment after each interval. `reported_events` is the number of events that the comment
    already contains.
    """
    wait = interval
    while not await _wait_for_event(wait, is_over):
        trajectory, wait = run.trajectory, interval
        if len(trajectory) == reported_events:
            continue
        try:
            # If this process was suspended, another worker may have taken over the run and posted the final
            # text.
            await run.check_ownership()
            await post(trajectory, Priority.PROGRESS)
            reported_events = len(trajectory)
        except LogLocked:
            return
        except Preempted as exc:  # A later edit may succeed, and shows more progress.
            wait = max(exc.retry_after, 1.0) * random.uniform(1.0, 2.0)
        except ForgeError as exc:  # A missed edit is harmless, because the next one shows more progress.
            log.warning("status comment not updated", extra={"job": job.id, "error": str(exc)})


async def _wait_for_event(seconds: float, event: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


@contextlib.asynccontextmanager
async def null_reporter(job: Job, run: RunLog) -> AsyncIterator[None]:
    """Reports nothing. Used for runs that the user watches in a terminal."""
    yield


async def report_failure(
    forge: Forge,
    job: Job,
    error: Exception,
    deps: RunDependencies | None = None,
    *,
    log_persists: bool = True,
    workflow_url: str | None = None,
) -> str | None:
    """Saves the work of a failed run. Then replaces the run's status comment with the reason for the failure.
    Returns the branch with the work, or None if there is none.

    `deps` are the run's RunDependencies, or None if the run failed before they were built. `log_persists` is
    True if the log of the run stays on this machine. `workflow_url` is the URL of the workflow run that
    contains the job. It is used only if `deps` is None.
    """
    reason = failure_text(error, in_workflow=not log_persists)
    if deps is None:
        # Somebody may start a workflow run again that already had a result. The comment with the result stays.
        is_repeated = workflow_url is not None and job.id in (await forge.get_thread(job)).reported_runs
        text = render_reply(
            "failed.md.j2",
            sentence=reason,
            run=job.id,
            workflow_url=workflow_url,
            is_repeated=is_repeated,
        )
        tag = f"{job.id}-again" if is_repeated else job.id
        await forge.upsert_comment(job.repo, job.number, tag, text)
        return None
    return await salvage_run(job, reason, deps, forge, is_permanent=log_persists)


def failure_text(error: Exception, *, in_workflow: bool = False) -> str:
    """Returns the text of the comment that explains why a run ended early."""
    text = str(error)
    if isinstance(error, JobCanceled):
        return text
    ending = "" if text.endswith(("?", "!")) else "."
    return f"{text.rstrip('.')}{ending} {fault_text(error, in_workflow=in_workflow)}"


def fault_text(error: Exception, *, in_workflow: bool = False) -> str:
    """Returns a sentence that names the cause of a failure, and says whether a retry may help."""
    return render_reply(
        "failure_reason.md.j2",
        failure_kind=classify_error(error),
        is_retryable=is_retryable(error),
        in_workflow=in_workflow,
        is_image=isinstance(error, ImageUnavailable),
        is_connection_failure=isinstance(error, ModelUnreachable | ModelConnectionFailed),
    ).strip()
