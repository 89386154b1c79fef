"""Processes requests from deliveries, polling and the dashboard: queues jobs and executes commands."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from patchwright.bot.jobs import JobQueue, JobRecord, Stopped
from patchwright.bot.thread_forge import ThreadForge
from patchwright.bot.triggers.command_context import ServerContext, TriggerServices
from patchwright.bot.webhooks.delivery import (
    ChecksCompleted,
    Delivery,
    InstallationChanged,
    LabelRemoved,
    ThreadClosed,
)
from patchwright.bot.webhooks.triggers import (
    TriggerRequest,
    Triggers,
    find_request,
    later_job_ids,
    possible_job_ids,
)
from patchwright.resolver.domain import Job, JobId, Repo
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.publishing import reply_texts

log = logging.getLogger(__name__)


class TriggerHandler:
    """Processes each trigger request once, even if it arrives several times."""

    def __init__(
        self,
        queue: JobQueue,
        triggers: Triggers,
        forge: ThreadForge,
        services: TriggerServices,
    ) -> None:
        self.triggers, self._services = triggers, services
        self._queue, self._forge = queue, forge
        self.checks, self.labels = services.checks, services.labels
        self._background_tasks: set[asyncio.Task[None]] = set()

    async def handle(
        self, delivery: Delivery, own_comments: Mapping[str, bool] | None = None
    ) -> JobId | None:
        """Processes a delivery, unless it was processed before. Returns the id of the queued job, or None if
        no job was queued.

        `own_comments` is None if the event arrived as a webhook delivery. If polling found the event,
        `own_comments` maps the tag of each of the bot's comments to True if the comment's run is in progress.

        Raises QueueDown; commands may also raise ForgeError. The caller must then process the delivery again.
        """
        if isinstance(delivery, LabelRemoved | ThreadClosed | InstallationChanged):
            await self._services.cancellation.handle(delivery)
            if isinstance(delivery, InstallationChanged) and self.labels and not delivery.is_access_removed:
                await self.labels.create(delivery.repositories, is_new_grant=True)
            return None
        if isinstance(delivery, ChecksCompleted):
            return await self.checks.handle(delivery) if self.checks else None
        if (trigger := find_request(delivery, self.triggers)) is None:
            return None
        is_removed = False
        for job_id in possible_job_ids(delivery, trigger.job):
            record = await self._queue.get_record(job_id)
            if _is_unlabeled(record):  # The label may have been added again within the same second.
                is_removed |= job_id == trigger.job.id
                continue
            if record is not None and (record.state == "completed" or job_id != trigger.job.id):
                return None
            if own_comments is not None and (in_progress := own_comments.get(job_id)) is not None:
                if not in_progress:
                    return None  # A comment of the bot shows that this request was already completed.
                trigger = trigger.with_job_id(job_id)
        if is_removed:
            if (later_id := await self._find_later_id(delivery, trigger.job)) is None:
                return None
            trigger = trigger.with_job_id(later_id)
        if own_comments is not None:
            trigger = trigger.model_copy(update={"source": "poll"})
        return await self.execute(trigger)

    async def _find_later_id(self, delivery: Delivery, job: Job) -> JobId | None:
        """Returns the job id for a label that was removed and added again within the same second.

        Returns None if a job with this id already exists.
        """
        for job_id in later_job_ids(delivery, job):
            if not _is_unlabeled(record := await self._queue.get_record(job_id)):
                return job_id if record is None else None
        return None

    async def resume_waiting_jobs(self) -> None:
        """Starts the jobs that wait for GitHub, because GitHub responds. Raises QueueDown."""
        await self._queue.end_github_waits()

    async def active_jobs(self, repo: Repo) -> tuple[Job, ...]:
        """Returns the queued and running jobs of all issues and pull requests in the repository. Raises
        QueueDown.
        """
        return tuple(record.job for record in await self._queue.all_active_jobs() if record.job.repo == repo)

    async def execute(self, trigger: TriggerRequest) -> JobId | None:
        """Executes the command of a request, or queues its job. Returns the id of the queued job, or None if no job
        was queued. Raises the same errors as `handle`.
        """
        background, services = self._run_in_background, self._services
        context = ServerContext(trigger, self.triggers, self._forge, self._queue, services, background)
        return None if await context.execute() else await self._enqueue(context)

    async def _enqueue(self, context: ServerContext) -> JobId | None:
        job = context.job
        try:
            is_permitted = await context.is_permitted()
        # The job is queued anyway. The permission is checked again when the job starts.
        except ForgeError as exc:
            log.warning("permission check failed", extra={"job": job.id, "reason": str(exc)})
            is_permitted = None
        is_new = await self._queue.get_record(job.id) is None
        if is_permitted is False and is_new:
            await context.reject(
                reply_texts.render_rejection_reason("permission", job, context.triggers.label)
            )
        elif is_permitted and is_new and (explanation := await self._rejection_of(job)):
            await context.reject(explanation)
        elif await self._queue.put(job, requested_at=context.trigger.requested_at):
            if is_permitted:
                context.react()
            self._run_in_background(self._services.queue_notices.post_if_waiting(job))
            return job.id
        return None

    async def _rejection_of(self, job: Job) -> str | None:
        """Returns why the command would have no effect, or None if a run must be started to find out."""
        if (find_rejection := self._services.find_rejection) is None:
            return None
        try:
            active = await self._queue.active_jobs(job.repo, job.number)
            return await find_rejection(job, has_active_run=bool(active))
        except ForgeError as exc:  # The job is queued, and its run answers.
            log.warning("command not checked", extra={"job": job.id, "reason": str(exc)})
            return None

    def _run_in_background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    async def close(self) -> None:
        """Cancels outstanding reactions and notices."""
        for task in self._background_tasks:
            task.cancel()
        await asyncio.gather(*self._background_tasks, return_exceptions=True)


def _is_unlabeled(record: JobRecord | None) -> bool:
    """Returns True if the record shows that the job was canceled because its label was removed."""
    return record is not None and isinstance(record.result, Stopped) and record.result.reason == "unlabeled"
