"""Shows the agent the comments that people post while it works. It gets them before its next step.

Each comment is queued as a job, like any other request. The job waits until the current run in the same issue
or pull request ends. If the agent reads the comment before that, the job completes without a run of its own.
Otherwise, the job starts normally. So no comment is lost or used twice, even if a worker dies.

A job that requests the same work as the run in progress also completes without a run of its own. For example, a
label may be added after a mention.
"""

import asyncio
import logging

from patchwright.bot.errors import QueueDown
from patchwright.bot.jobs import Answered, JobQueue, JobRecord
from patchwright.bot.write_limiter import Priority, write_priority
from patchwright.resolver.authorization import Permission, get_permission, is_authorized
from patchwright.resolver.command_parser import RunOptions
from patchwright.resolver.comment_commands import WORK
from patchwright.resolver.domain import Issue, Job, Rejected
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.events import Message, Trajectory
from patchwright.resolver.forge import Forge
from patchwright.resolver.pipeline.publish import post_comment
from patchwright.resolver.prompts.initial_prompt import COMMENT_LIMIT
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.run_task import get_task
from patchwright.resolver.text.untrusted import quote

log = logging.getLogger(__name__)

# The agent waits at most this long. Messages that arrive later are passed on before a later step.
READ_TIMEOUT_SECONDS = 10.0


class RunMessages:
    """Finds messages in the queue that are meant for running jobs."""

    def __init__(self, queue: JobQueue, forge: Forge) -> None:
        self._queue = queue
        self._forge = forge

    async def fetch_new(self, job: Job, trajectory: Trajectory) -> tuple[Message, ...]:
        """Returns the messages to this job's run that are not in the run's log yet, oldest first. Never raises."""
        try:
            async with asyncio.timeout(READ_TIMEOUT_SECONDS):
                return await self._read(job, trajectory)
        except (QueueDown, ForgeError, TimeoutError) as exc:
            log.warning("messages not read", extra={"job": job.id, "reason": str(exc)})
            return ()

    async def _read(self, job: Job, trajectory: Trajectory) -> tuple[Message, ...]:
        read_ids = {
            event.trigger_id for event in trajectory if isinstance(event, Message) and event.trigger_id
        }
        on_issue = trajectory.run_started is not None and isinstance(trajectory.run_started.thread, Issue)
        does_work, messages = on_issue and get_task(trajectory) == "work", list[Message]()
        for record in await self._queue.active_jobs(job.repo, job.number):
            message_job = record.job
            is_covered = does_work and record.tries == 0 and message_job.is_covered_by(job)
            if message_job.id == job.id or not (is_covered or is_message_to_run(record, job)):
                continue
            is_read = message_job.id in read_ids
            requester = message_job.requester
            permission = "admin" if is_read else await get_permission(self._forge, job.repo, requester)
            if not is_authorized(permission):
                await self._reject(message_job, permission)
            elif not await self._queue.should_continue(job.id):
                return ()  # A message that was sent after a stop command is meant for the next run.
            elif is_read or is_covered:
                await self._queue.complete(message_job, Answered(run=job.id))
            else:
                text = render_prompt(
                    "message.md.j2",
                    job=message_job,
                    comment=quote(message_job.command, COMMENT_LIMIT),
                )
                author = requester.login if requester else ""
                messages.append(
                    Message(text=text, source="comment", author=author, trigger_id=message_job.id)
                )
        return tuple(messages)

    async def _reject(self, message: Job, permission: Permission) -> None:
        explanation = reply_texts.render_rejection_reason("permission", message)
        if permission != "none":  # A requester without permission may not be able to see the thread.
            with write_priority(Priority.ACKNOWLEDGMENT):
                await post_comment(message, self._forge, reply_texts.render_rejection(explanation))
        await self._queue.complete(message, Rejected(explanation=explanation))


def is_handled_by_run(run: Job, record: JobRecord) -> bool:
    """Returns True if the run in progress can do the work of the queued job. If that run reads the request in
    time, the job needs no run of its own.
    """
    command = run.request.command
    does_same_work = (command is WORK or command.needs_earlier_run) and record.job.is_covered_by(run)
    return is_message_to_run(record, run) or (record.tries == 0 and does_same_work)


def is_message_to_run(record: JobRecord, run: Job) -> bool:
    """Returns True if the queued job is a message that the run in progress can read.

    Commands are executed after the run. Reviews, and comments with options, need runs of their own. A run of
    the command `explain` or `setup` accepts no messages, because it cannot act on them.
    """
    job, request = record.job, record.job.request
    if run.request.command.task in ("explain", "setup"):
        return False
    is_plain_text = (
        request.verb == "work"
        and bool(request.text)
        and request.options == RunOptions()
        and not request.error
    )
    return record.tries == 0 and is_plain_text and job.review_id is None and job.review_comment_id is None
