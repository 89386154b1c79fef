"""Processes requests from deliveries, polling and the dashboard: queues jobs and executes commands."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from patchwright.bot.comment_texts import help_text, stop_text
from patchwright.bot.github.start_labels import StartLabels
from patchwright.bot.jobs import Answered, Cancellation, JobQueue, JobRecord, Stopped, select_records
from patchwright.bot.thread_forge import ThreadForge
from patchwright.bot.triggers.cancellation import CancellationHandler, has_started
from patchwright.bot.triggers.check_monitor import CheckMonitor
from patchwright.bot.triggers.dashboard_commands import DashboardCommand
from patchwright.bot.triggers.queue_notice import QueueNotices
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
    find_setup_jobs,
    later_job_ids,
    possible_job_ids,
)
from patchwright.resolver.authorization import Permission, get_permission, is_authorized
from patchwright.resolver.domain import Job, JobId, Rejected, Repo
from patchwright.resolver.errors import Forbidden, ForgeError, NotFound
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.request import plan_texts

log = logging.getLogger(__name__)

# A stop command that is older than this gets no reply if it had nothing to cancel.
STALE_STOP_AGE = timedelta(hours=1)
# How long a reaction may take. A reaction that appears later would only confuse people.
REACTION_TIMEOUT_SECONDS = 60.0


class FindRejection(Protocol):
    """Finds commands that would have no effect, before a run is started for them. May raise ForgeError."""

    async def __call__(self, job: Job, *, has_active_run: bool) -> str | None:
        """Returns a text for the requester that says why the command would have no effect. Returns None if a
        run must be started to find out.
        """


class RefusalLimit(Protocol):
    """Limits the replies to people without write access, so that nobody can make the bot flood a thread. May raise
    QueueDown.
    """

    async def allow_refusal(self, repo: Repo, number: int, job: JobId) -> bool:
        """Returns True if the bot may reply to this request. Several calls for the same request return the same
        result.
        """


@dataclass(frozen=True)
class TriggerServices:
    """What a TriggerHandler uses besides the queue and GitHub's threads."""

    cancellation: CancellationHandler
    """Cancels jobs whose label was removed, or whose issue or pull request was closed."""
    queue_notices: QueueNotices
    """Posts notices about queued jobs."""
    refusals: RefusalLimit
    """Limits the replies to people without write access."""
    checks: CheckMonitor | None = None
    """Processes completed checks on the bot's pull requests. If it is None, completed checks are ignored."""
    labels: StartLabels | None = None
    """Creates the label in new repositories. If it is None, no label is created."""
    find_rejection: FindRejection | None = None
    """Finds commands that need no run. If it is None, this check is skipped."""


class TriggerHandler:
    """Processes each trigger request once, even if it arrives several times."""

    def __init__(
        self,
        queue: JobQueue,
        triggers: Triggers,
        forge: ThreadForge,
        services: TriggerServices,
    ) -> None:
        self.triggers = triggers
        self._queue = queue
        self._forge = forge
        self._cancellation = services.cancellation
        self._queue_notices = services.queue_notices
        self.checks = services.checks
        self._refusals = services.refusals
        self.labels = services.labels
        self._find_rejection = services.find_rejection
        self._permissions: dict[JobId, Permission] = {}
        """The requesters' permissions while their requests are processed."""
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
            await self._cancellation.handle(delivery)
            if isinstance(delivery, InstallationChanged):
                for job in find_setup_jobs(delivery, self.triggers):
                    await self._queue.put(job, urgent=False)
                if self.labels and not delivery.is_access_removed:
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
                trigger = trigger._replace(job=trigger.job.model_copy(update={"id": job_id}))
        if is_removed and (later_id := await self._find_later_id(delivery, trigger.job)) is None:
            return None
        if is_removed:
            trigger = trigger._replace(job=trigger.job.model_copy(update={"id": later_id}))
        with self._remember_permission(trigger.job):
            return await self._execute(trigger, is_recovered=own_comments is not None)

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
        jobs = [record.job for record in await self._queue.all_active_jobs() if record.job.repo == repo]
        return tuple(job for job in jobs if job.number)  # Jobs of an installation have no thread.

    async def handle_dashboard_command(self, command: DashboardCommand) -> JobId | None:
        """Executes a dashboard command. The command works like the same command in a comment, but affects only
        the run on whose page the button was pressed.

        Returns the id of the queued job, or None if no job was queued. Raises the same errors as `handle`.
        """
        trigger = command.to_trigger_request()
        with self._remember_permission(trigger.job):
            return await self._execute_dashboard_command(command, trigger)

    async def _execute_dashboard_command(
        self, command: DashboardCommand, trigger: TriggerRequest
    ) -> JobId | None:
        if command.verb == "retry":
            return await self._execute(trigger, is_recovered=False)
        if not await self._is_permitted(trigger.job):
            await self._reject(trigger.job, reply_texts.render_rejection_reason("permission", trigger.job))
            return None
        record = await self._queue.get_record(command.run)
        if record is not None and record.state != "completed":
            await self._cancel_jobs((record,), _requested_by(trigger.job))
        await self._queue.complete(trigger.job, Answered())
        return None

    async def _execute(self, trigger: TriggerRequest, *, is_recovered: bool) -> JobId | None:
        if trigger.request.verb == "stop":
            await self._handle_stop(trigger, is_recovered=is_recovered)
        elif trigger.request.verb == "help":
            await self._reply(trigger.job, help_text(self.triggers.mention, self.triggers.label))
        elif trigger.request.error:
            is_permitted = await self._is_permitted(trigger.job)
            explanation = plan_texts.render_invalid_command(trigger.request.error)
            await self._reject(
                trigger.job,
                explanation
                if is_permitted
                else reply_texts.render_rejection_reason("permission", trigger.job),
            )
        else:
            return await self._enqueue(trigger)
        return None

    async def _enqueue(self, trigger: TriggerRequest) -> JobId | None:
        job = trigger.job
        try:
            is_permitted = await self._is_permitted(job)
        # The job is queued anyway. The permission is checked again when the job starts.
        except ForgeError as exc:
            log.warning("permission check failed", extra={"job": job.id, "reason": str(exc)})
            is_permitted = None
        is_new = await self._queue.get_record(job.id) is None
        if is_permitted is False and is_new:
            await self._reject(job, reply_texts.render_rejection_reason("permission", job))
        elif is_permitted and is_new and (explanation := await self._rejection_of(job)):
            await self._reject(job, explanation)
        elif await self._queue.put(job, requested_at=trigger.requested_at):
            if is_permitted:
                self._react(trigger)
            self._run_in_background(self._queue_notices.post_if_waiting(job))
            return job.id
        return None

    async def _rejection_of(self, job: Job) -> str | None:
        """Returns why the command would have no effect, or None if a run must be started to find out."""
        if self._find_rejection is None:
            return None
        try:
            active = await self._queue.active_jobs(job.repo, job.number)
            return await self._find_rejection(job, has_active_run=bool(active))
        except ForgeError as exc:  # The job is queued, and its run answers.
            log.warning("command not checked", extra={"job": job.id, "reason": str(exc)})
            return None

    async def _handle_stop(self, trigger: TriggerRequest, *, is_recovered: bool) -> None:
        job = trigger.job
        if not await self._is_permitted(job):
            await self._reject(job, reply_texts.render_rejection_reason("permission", job))
            return
        requested_at = trigger.requested_at or datetime.now(UTC)
        records = select_records(await self._queue.active_jobs(job.repo, job.number), requested_at, "all")
        if records:
            # The stop command is recorded first. If it is delivered again, the record shows that it canceled
            # jobs.
            await self._queue.mark_running(job)
        await self._cancel_jobs(records, _requested_by(job))
        await self._queue.cancel_thread(job.repo, job.number, requested_at, _requested_by(job))
        has_unreadable = bool(await self._queue.unreadable_jobs(job.repo, job.number))
        # The bot has already replied. After Redis was wiped, polling finds such old comments again.
        is_stale = is_recovered and datetime.now(UTC) - requested_at > STALE_STOP_AGE
        if not has_unreadable and (is_stale or await self._queue.get_record(job.id) is not None):
            self._react(trigger)  # The status comment of each job shows that the job was canceled.
            await self._queue.complete(job, Answered())
        else:
            await self._reply(job, stop_text(self.triggers.mention, has_unreadable=has_unreadable))

    async def _cancel_jobs(self, records: Sequence[JobRecord], cancellation: Cancellation) -> None:
        """Cancels the jobs. If a notice cannot be posted, still cancels the running jobs.

        A queued job is canceled only after its notice is posted. If posting fails, the next attempt to
        process the command posts the notice and cancels the job.
        """
        try:
            await self._cancellation.post_cancellation_notices(records, cancellation)
        finally:
            for record in filter(has_started, records):
                await self._queue.cancel(record.job.id, cancellation)
        for record in records:
            await self._queue.cancel(record.job.id, cancellation)

    async def _reject(self, job: Job, explanation: str) -> None:
        await self._post_comment(job, reply_texts.render_rejection(explanation))
        await self._queue.complete(job, Rejected(explanation=explanation))

    async def _reply(self, job: Job, text: str) -> None:
        await self._post_comment(job, text)
        await self._queue.complete(job, Answered())

    async def _post_comment(self, job: Job, text: str) -> None:
        permission = await self._permission(job)
        # In a private repository, a requester without permission cannot see the thread.
        if permission == "none" or (
            not is_authorized(permission)
            and not await self._refusals.allow_refusal(job.repo, job.number, job.id)
        ):
            log.warning("reply withheld", extra={"job": job.id, "reason": text.strip()})
            return
        try:
            await self._forge.upsert_comment(job.repo, job.number, job.id, text)
        except (Forbidden, NotFound) as exc:  # The thread is locked or deleted, so a retry would not help.
            log.warning("reply not posted", extra={"job": job.id, "reason": str(exc)})

    @contextlib.contextmanager
    def _remember_permission(self, job: Job) -> Iterator[None]:
        """Remembers the requester's permission inside the block, so that GitHub is asked only once."""
        try:
            yield
        finally:
            self._permissions.pop(job.id, None)

    async def _is_permitted(self, job: Job) -> bool:
        return is_authorized(await self._permission(job))

    async def _permission(self, job: Job) -> Permission:
        if job.id not in self._permissions:
            self._permissions[job.id] = await get_permission(self._forge, job.repo, job.requester)
        return self._permissions[job.id]

    def _react(self, trigger: TriggerRequest) -> None:
        """Adds a reaction in the background. Failures are only logged."""

        async def react() -> None:
            try:
                async with asyncio.timeout(REACTION_TIMEOUT_SECONDS):
                    await self._forge.react(trigger.job.repo, trigger.resource_path)
            except (ForgeError, TimeoutError) as exc:
                log.warning("reaction not added", extra={"job": trigger.job.id, "reason": str(exc)})

        if trigger.resource_path:
            self._run_in_background(react())

    def _run_in_background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    async def close(self) -> None:
        """Cancels outstanding reactions and notices."""
        for task in self._background_tasks:
            task.cancel()
        await asyncio.gather(*self._background_tasks, return_exceptions=True)


def _requested_by(job: Job) -> Cancellation:
    """Returns the cancellation for a stop command."""
    return Cancellation(by=job.requester.login if job.requester else "")


def _is_unlabeled(record: JobRecord | None) -> bool:
    """Returns True if the record shows that the job was canceled because its label was removed."""
    return record is not None and isinstance(record.result, Stopped) and record.result.reason == "unlabeled"
