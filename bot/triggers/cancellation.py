"""Cancels jobs when their label is removed, their issue or pull request is closed, or access is revoked."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Protocol, TypeAlias, assert_never

from patchwright.bot.jobs import Cancellation, JobQueue, JobRecord
from patchwright.bot.run_messages import is_handled_by_run
from patchwright.bot.thread_forge import CommentForge
from patchwright.bot.webhooks.delivery import InstallationChanged, LabelRemoved, ThreadClosed
from patchwright.bot.webhooks.triggers import is_same_label, parse_time
from patchwright.resolver.authorization import authorize
from patchwright.resolver.domain import Job, Repo
from patchwright.resolver.errors import Forbidden, NotFound
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.rendering.template_renderer import render_reply

log = logging.getLogger(__name__)

CancelEvent: TypeAlias = LabelRemoved | ThreadClosed | InstallationChanged


class PullRequestOutcomes(Protocol):
    """Detects and records the outcomes of the pull requests that the bot opened. Every method may raise
    ForgeError or QueueDown.
    """

    async def has_closed_issue(self, issue: ThreadClosed) -> bool:
        """Returns True if this issue was closed because one of the bot's pull requests was merged."""

    async def record_outcome(self, pull: ThreadClosed) -> None:
        """Counts the outcome of a closed pull request once. Ignores pull requests that the bot did not
        open.
        """


class RepositoryAccess(Protocol):
    """Checks which repositories an App installation may access. Every method may raise ForgeError or
    QueueDown.
    """

    async def has_access(self, repo: Repo) -> bool: ...

    async def is_own_installation(self, repo: Repo, installation_id: int) -> bool:
        """Returns False if the App's installation in this repository is not `installation_id`."""

    async def log_missing_permissions(self, change: InstallationChanged) -> None:
        """Logs the permissions that the App still lacks after its installation has changed."""


class CancellationHandler:
    """Cancels jobs that are no longer wanted. Handling the same event twice changes nothing."""

    def __init__(
        self,
        queue: JobQueue,
        label: str,
        forge: CommentForge,
        pull_requests: PullRequestOutcomes | None = None,
        access: RepositoryAccess | None = None,
    ) -> None:
        """Stores the dependencies.

        `label` is the label that starts a run. If `pull_requests` is None, outcomes are not recorded. If
        `access` is None, changes of App installations are ignored.
        """
        self._queue = queue
        self._label = label
        self._forge = forge
        self._pull_requests = pull_requests
        self._access = access

    async def handle(self, event: CancelEvent) -> None:
        """Cancels the jobs that must stop because of this event.

        Raises QueueDown or ForgeError; the caller then retries the event.
        """
        match event:
            case LabelRemoved():
                await self._handle_unlabeled(event)
            case ThreadClosed():
                await self._handle_closed(event)
            case InstallationChanged():
                await self._handle_installation_change(event)
            case _:
                assert_never(event)

    async def _handle_unlabeled(self, event: LabelRemoved) -> None:
        """Cancels the jobs that the removed label started in this issue or pull request.

        If the sender has no write access, cancels only the jobs that the sender requested. If the sender is a
        bot, cancels nothing.
        """
        if not is_same_label(event.label, self._label) or event.sender.is_bot:
            return
        cancellation = Cancellation(reason="unlabeled", by=event.sender.login)
        if await authorize(self._forge, event.repo, event.sender):
            await self._cancel_thread(event, cancellation)
            return
        removed_at = parse_time(event.occurred_at) or datetime.now(UTC)
        for record in await self._queue.active_jobs(event.repo, event.number):
            job = record.job
            if (
                job.label
                and record.is_requested_before(removed_at)
                and job.requester
                and job.requester.id == event.sender.id
            ):
                await self.post_cancellation_notices((record,), cancellation)
                await self._queue.cancel(job.id, cancellation)

    async def _handle_closed(self, event: ThreadClosed) -> None:
        """Cancels all jobs of the closed issue or pull request. Checks no permission, because GitHub allowed
        the sender to close it.
        """
        is_run_in_progress = event.head_branch is None and any(
            map(has_started, await self._queue.active_jobs(event.repo, event.number))
        )
        if is_run_in_progress and self._pull_requests and await self._pull_requests.has_closed_issue(event):
            return  # The run that opened the pull request reports the merge itself.
        await self._cancel_thread(event, Cancellation(reason="closed"))
        if event.head_branch is not None and self._pull_requests:
            await self._pull_requests.record_outcome(event)

    async def _cancel_thread(self, event: LabelRemoved | ThreadClosed, cancellation: Cancellation) -> None:
        requested_before = parse_time(event.occurred_at) or datetime.now(UTC)
        records = [
            record
            for record in await self._queue.active_jobs(event.repo, event.number)
            if record.is_requested_before(requested_before)
        ]
        if cancellation.reason == "unlabeled":
            records = [record for record in records if record.job.label]
        # Notices are posted before the jobs are canceled. Otherwise a crash between the two calls would lose
        # the notices.
        await self.post_cancellation_notices(records, cancellation)
        await self._queue.cancel_thread(event.repo, event.number, requested_before, cancellation)
        if records:
            fields = {"repo": str(event.repo), "number": event.number, "reason": cancellation.reason}
            log.info("jobs stopped", extra=fields)

    async def post_cancellation_notices(
        self, records: Iterable[JobRecord], cancellation: Cancellation
    ) -> None:
        """Posts cancellation notices for queued jobs. Running jobs report the cancellation themselves."""
        records = tuple(records)
        running = [one.job for one in records if has_started(one)]
        for record in records:
            if has_started(record) or any(is_handled_by_run(run, record) for run in running):
                continue
            await self._post_comment(
                record.job,
                reply_texts.render_rejection(
                    render_reply("cancellation.md.j2", reason=cancellation.reason, by=cancellation.by).strip()
                ),
            )

    async def _post_comment(self, job: Job, text: str) -> None:
        try:
            await self._forge.upsert_comment(job.repo, job.number, job.id, text)
        except (Forbidden, NotFound) as exc:  # The thread is locked or deleted.
            log.warning("cancellation notice not posted", extra={"job": job.id, "reason": str(exc)})

    async def _handle_installation_change(self, change: InstallationChanged) -> None:
        if self._access is None:
            return
        await self._access.log_missing_permissions(change)
        if not change.is_access_removed:
            return
        jobs = [
            record.job
            for record in await self._queue.all_active_jobs()
            if record.job.installation_id == change.installation_id
        ]
        for repo in {job.repo for job in jobs if not change.repositories or job.repo in change.repositories}:
            if await self._access.has_access(repo):
                continue  # The event is outdated: access was granted again.
            for job in jobs:
                if job.repo == repo:
                    await self._queue.cancel(job.id, Cancellation(reason="access_lost"))


def has_started(record: JobRecord) -> bool:
    """Returns True if the job is running, or has run before and waits to be retried."""
    return record.state == "running" or record.tries > 0
