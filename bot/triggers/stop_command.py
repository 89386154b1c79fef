"""The command `stop`: cancels the jobs of a thread, or one run. A workflow cannot cancel another one, so its reply only
explains how to do that.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from patchwright.bot.jobs import Answered, Cancellation, JobRecord, select_records
from patchwright.bot.triggers.cancellation import has_started
from patchwright.bot.triggers.command_context import CommandContext, ServerContext
from patchwright.resolver.domain import RunId
from patchwright.resolver.rendering.template_renderer import render_reply

# A stop command that is older than this gets no reply if it had nothing to cancel.
STALE_STOP_AGE = timedelta(hours=1)


async def handle(context: CommandContext) -> None:
    requester = context.job.requester
    cancellation = Cancellation(by=requester.login if requester else "")
    if not isinstance(context, ServerContext):
        await context.reply(render_reply("cannot_stop_workflow.md.j2", url=context.workflow_runs_url))
    elif context.trigger.run is not None:
        await _stop_run(context, context.trigger.run, cancellation)
    else:
        await _stop_thread(context, cancellation)


async def _stop_run(context: ServerContext, run: RunId, cancellation: Cancellation) -> None:
    record = await context.queue.get_record(run)
    if record is not None and record.state != "completed":
        await _cancel_jobs(context, (record,), cancellation)
    await context.queue.complete(context.job, Answered())


async def _stop_thread(context: ServerContext, cancellation: Cancellation) -> None:
    trigger, job, queue = context.trigger, context.job, context.queue
    requested_at = trigger.requested_at or datetime.now(UTC)
    records = select_records(await queue.active_jobs(job.repo, job.number), requested_at, "all")
    if records:
        # The stop command is recorded first. If it is delivered again, the record shows that it canceled jobs.
        await queue.mark_running(job)
    await _cancel_jobs(context, records, cancellation)
    await queue.cancel_thread(job.repo, job.number, requested_at, cancellation)
    has_unreadable = bool(await queue.unreadable_jobs(job.repo, job.number))
    # The bot has already replied. After Redis was wiped, polling finds such old comments again.
    is_stale = trigger.source == "poll" and datetime.now(UTC) - requested_at > STALE_STOP_AGE
    if not has_unreadable and (is_stale or await queue.get_record(job.id) is not None):
        context.react()  # The status comment of each job shows that the job was canceled.
        await queue.complete(job, Answered())
    else:
        await context.reply(
            render_reply("stop.md.j2", mention=context.triggers.mention, has_unreadable=has_unreadable)
        )


async def _cancel_jobs(
    context: ServerContext, records: Sequence[JobRecord], cancellation: Cancellation
) -> None:
    """Cancels the jobs. If a notice cannot be posted, still cancels the running jobs.

    A queued job is canceled only after its notice is posted. If posting fails, the next attempt to process the
    command posts the notice and cancels the job.
    """
    try:
        await context.services.cancellation.post_cancellation_notices(records, cancellation)
    finally:
        for record in filter(has_started, records):
            await context.queue.cancel(record.job.id, cancellation)
    for record in records:
        await context.queue.cancel(record.job.id, cancellation)
