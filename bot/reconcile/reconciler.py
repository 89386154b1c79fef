"""Finds requests that Patchwright missed because a delivery failed or Redis was wiped.

Only one worker polls GitHub at a time. A request has the same job id whether it arrives as a delivery or is
found by polling. So its job runs only once.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from patchwright.bot.errors import ForgeUnavailable, GitHubDown, QueueDown
from patchwright.bot.github.error_isolation import ErrorIsolation
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.github.repositories import PolledRepository
from patchwright.bot.reconcile.missed_events import MissedEvent
from patchwright.bot.reconcile.poller import Poller
from patchwright.bot.reconcile.redelivery import FIRST_WAIT, MAX_PER_ROUND, Redelivery
from patchwright.bot.redis.leader_lease import LeaderLease, PollFailure
from patchwright.bot.triggers.trigger_handler import TriggerHandler
from patchwright.bot.webhooks.delivery import LabelRemoved, ThreadClosed
from patchwright.bot.worker.pull_request_outcomes import fetch_closed_pull_requests
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import ForgeError, RateLimited

log = logging.getLogger(__name__)

NO_REPOSITORIES_SECONDS = 10.0  # time between two checks for installations while no repository is known
# how far back the first poll searches; GitHub keeps deliveries for the same time
FIRST_LOOKBACK = timedelta(days=3)
# how far two consecutive polls overlap, because GitHub's lists are updated with a delay
OVERLAP = timedelta(minutes=1)
SETTLE_SECONDS = 5.0  # how long workers have to restore their running jobs after Redis was wiped
MAX_WAIT_SECONDS = 3600.0
WIPE_CHECK_SECONDS = 10.0  # time between two checks whether Redis was wiped


@dataclass(frozen=True)
class PollSchedule:
    """The intervals for polling GitHub and for requesting redeliveries, and the time to wait for deliveries."""

    redelivery_interval: float = 60.0
    """Seconds between two checks for failed deliveries."""
    poll_interval: float = 300.0
    """Seconds between two polls of all repositories."""
    delivery_grace: float = 120.0
    """The number of seconds that the reconciler waits for the delivery of an event. After that, the reconciler
    handles the event without the delivery. 0 if there is no webhook.
    """
    repository_list_age: float = 600.0
    """Seconds after which the list of repositories is requested again, at most 600.

    A webhook delivery for a new installation starts this request earlier.
    """
    settle_seconds: float = SETTLE_SECONDS
    first_redelivery_wait: timedelta = FIRST_WAIT
    """The time between a failed delivery and its first redelivery. The time doubles with each further
    redelivery.
    """


POLLING_SCHEDULE = PollSchedule(
    redelivery_interval=30.0, poll_interval=0.0, delivery_grace=0.0, repository_list_age=120.0
)
"""The schedule for deployments without a webhook."""


@dataclass(frozen=True)
class ReconcilerConfig:
    """What a reconciler polls, and how often."""

    schedule: PollSchedule = PollSchedule()
    repositories: tuple[Repo, ...] = ()
    """The repositories to poll with a token. An App polls the repositories of its installations."""
    has_webhook: bool = True
    """True if GitHub sends webhook deliveries. An App asks GitHub to send the failed ones again."""


@dataclass
class _Cursor:
    since: datetime
    closed_since: datetime
    """The time from which the next poll searches for closed pull requests. `since` is the time for all other
    events.
    """
    etag: str = ""
    closed_etag: str = ""
    has_changed: bool = True
    """False if the last poll found that no issue or pull request has changed."""
    has_unhandled_closings: bool = False


class Reconciler:
    """Polls GitHub while this worker holds the leader lease. It polls for all workers that use the same
    Redis.
    """

    def __init__(
        self,
        github: GitHubForge,
        lease: LeaderLease,
        handler: TriggerHandler,
        name: str,
        config: ReconcilerConfig,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`name` is the name of this worker."""
        self._github = github
        self._lease = lease
        self._handler = handler
        self._name = name
        self._schedule = schedule = config.schedule
        self._clock = clock
        self._has_webhook = config.has_webhook
        self._poller = Poller(
            github.rest,
            github.identity,
            config.repositories,
            timedelta(seconds=schedule.repository_list_age),
        )
        self._cursors: dict[int, _Cursor] = {}
        self._redelivery: Redelivery | None = None
        if config.has_webhook and github.is_app:
            wait = schedule.first_redelivery_wait
            self._redelivery = Redelivery(github.rest, state=lease, clock=clock, first_wait=wait)
        self._next_poll: datetime | None = None
        """The time of the next poll of all repositories. None means that this poll is due now."""
        self._has_polled = False
        """True if this process has already polled all repositories."""
        self._wiped_at: datetime | None = None
        """The time when this process last noticed that Redis was wiped. Deliveries of earlier events may have
        been lost.
        """
        self._has_more = False
        """True if there are failed deliveries whose redelivery has not been requested yet."""
        self._failure: PollFailure | None = None
        """The failure of the last poll; None if the last poll succeeded."""
        self._may_have_waiting_jobs = True
        """True until a poll succeeds. Jobs may have waited for GitHub since before this process started."""

    async def run(self) -> None:
        """Polls until canceled."""
        renewal = asyncio.create_task(self._lease.keep(self._name))
        try:
            while True:
                await self._wait(await self._run_once())
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
            with contextlib.suppress(QueueDown):
                await self._lease.release(self._name)

    async def _wait(self, seconds: float) -> None:
        """Waits for this many seconds. If Redis is wiped in this time, returns within a few seconds."""
        end = asyncio.get_running_loop().time() + seconds
        while (left := end - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left, WIPE_CHECK_SECONDS))
            with contextlib.suppress(QueueDown):
                if self._has_polled and not (await self._lease.fetch_cursors()).get(""):
                    return

    async def _run_once(self) -> float:
        """Polls once if this worker is the leader. Returns the seconds until the next poll."""
        wait = self._schedule.redelivery_interval
        try:
            if await self._lease.try_acquire(self._name):
                if self._failure is not None:
                    await self._check_github()
                await self.reconcile()
                await self._record_status("", wait)
        except QueueDown as exc:
            log.warning("poll failed", extra={"reason": str(exc)})
        except RateLimited as exc:
            seconds = (exc.until - datetime.now(UTC)).total_seconds()
            wait = min(max(seconds, wait), MAX_WAIT_SECONDS)
            await self._record_status(str(exc), wait)
            return wait
        except (ForgeError, GitHubDown) as exc:
            await self._record_status(str(exc), wait)
            return wait
        if self._has_more:
            return 0.0
        if not self._has_webhook and self._poller.repositories.is_empty:
            return min(self._schedule.redelivery_interval, NO_REPOSITORIES_SECONDS)
        seconds = (self._next_poll - self._clock()).total_seconds() if self._next_poll else 0.0
        interval = self._schedule.redelivery_interval
        return seconds if 0 < seconds < interval else interval

    async def _record_status(self, reason: str, wait: float) -> None:
        """Stores whether polling works or fails, and logs when that changes. `wait` is the time until the
        next poll in seconds.
        """
        now, previous = self._clock(), self._failure
        self._failure = (
            PollFailure(reason=reason, since=previous.since if previous else now) if reason else None
        )
        with contextlib.suppress(QueueDown):
            await self._lease.record_failure(self._failure)
            if not reason and self._may_have_waiting_jobs:
                await self._handler.resume_waiting_jobs()
            self._may_have_waiting_jobs = bool(reason)
        # The change is logged last, so that the stored status already agrees with the log.
        if previous is None and reason:
            log.warning("polling github failed", extra={"reason": reason, "retry_seconds": round(wait)})
        elif previous is not None and not reason:
            outage = now - previous.since
            log.info("polling github recovered", extra={"outage_seconds": round(outage.total_seconds())})

    async def _check_github(self) -> None:
        """Checks the credentials. Raises GitHubDown if GitHub is down, and ForgeError if GitHub rejects the
        credentials.
        """
        try:
            await self._github.verify_credentials()
        except ForgeUnavailable as exc:
            raise GitHubDown(str(exc)) from exc

    async def reconcile(self) -> None:
        """Posts comments that GitHub refused, requests redeliveries, and processes missed events.

        Raises QueueDown, ForgeError or GitHubDown.
        """
        if self._github.outbox:
            await self._github.outbox.post_due()
        if self._redelivery is not None:
            self._has_more = False
            async with ErrorIsolation().isolate_request(self._redelivery.name, self._github.rest):
                self._has_more = await self._redelivery.redeliver() == MAX_PER_ROUND
        cursors = await self._lease.fetch_cursors()
        if not cursors.get(""):  # Redis is new, or was wiped
            if self._has_polled:
                self._wiped_at = self._clock()
                log.warning("redis was wiped", extra={"repositories": len(self._cursors)})
            self._cursors, self._next_poll = {}, None
            await asyncio.sleep(self._schedule.settle_seconds)
        now = self._clock()
        if self._next_poll is not None and now < self._next_poll:
            return
        self._next_poll, next_poll = None, now + timedelta(seconds=self._schedule.poll_interval)
        isolation, limited = ErrorIsolation(), dict[int | None, RateLimited]()
        repositories = await self._poller.repositories.list_current()
        for repository in repositories:
            if not await self._lease.try_acquire(self._name):
                return
            if repository.installation_id in limited:
                continue
            try:
                with isolation.isolate(str(repository.repo)):
                    next_poll = min(
                        next_poll,
                        await self._reconcile_repository(repository, cursors.get(str(repository.repo)))
                        or next_poll,
                    )
            except RateLimited as exc:  # GitHub has a separate rate limit for each installation
                log.warning(
                    "skipped after an error", extra={"resource": str(repository.repo), "reason": str(exc)}
                )
                limited[repository.installation_id] = exc
        if limited and limited.keys() == {repository.installation_id for repository in repositories}:
            raise min(limited.values(), key=lambda limit: limit.until)
        await self._lease.advance_cursor("", now)
        self._has_polled = True
        if self._handler.labels:
            with isolation.isolate("labels"):
                await self._handler.labels.create(repository.repo for repository in repositories)
        self._next_poll = None if isolation.should_retry else next_poll

    async def _reconcile_repository(
        self, repository: PolledRepository, stored_cursor: datetime | None
    ) -> datetime | None:
        """Polls one repository and its checks. Returns the time of the repository's next poll; None for the
        regular time.
        """
        try:
            retry_at = await self._poll_repository(repository, stored_cursor)
            checks = self._handler.checks
            has_changed = self._cursors[repository.id].has_changed
            if checks and await checks.scan_repository(repository, has_changed=has_changed):
                await self._check_github()
                retry_at = self._clock()
        except ForgeUnavailable:
            await self._check_github()
            raise
        return retry_at

    async def _poll_repository(
        self, repository: PolledRepository, stored_cursor: datetime | None
    ) -> datetime | None:
        """Processes the missed events of one repository. Returns the time of its next poll; None for the
        regular time.
        """
        now, grace = self._clock(), timedelta(seconds=self._schedule.delivery_grace)
        ended_isolation = ErrorIsolation()
        lookback_start = max(stored_cursor or now - FIRST_LOOKBACK, now - FIRST_LOOKBACK)
        cursor = self._cursors.setdefault(repository.id, _Cursor(lookback_start, lookback_start))
        await self._handle_ended(
            await self._poller.find_ended(repository, await self._handler.active_jobs(repository.repo)),
            ErrorIsolation(),
        )
        result = await self._poller.poll(repository, cursor.since, cursor.etag, self._handler.triggers.label)
        cursor.has_changed = result is not None
        if result is None and not cursor.has_unhandled_closings:
            return None
        if closed := await fetch_closed_pull_requests(
            self._github.rest, repository, cursor.closed_since, cursor.closed_etag
        ):
            await self._handle_ended(closed.deliveries, ended_isolation)
            if not ended_isolation.should_retry:
                cursor.closed_since, cursor.closed_etag = closed.last_closed_at, closed.etag
        cursor.has_unhandled_closings = ended_isolation.should_retry
        if result is None:
            return now if ended_isolation.should_retry else None
        recent = {event.occurred_at for event in result.events if self._may_arrive(event.occurred_at, now)}
        event_isolation = ErrorIsolation()
        for event in sorted(result.events, key=lambda event: event.occurred_at):
            if event.occurred_at not in recent:
                with event_isolation.isolate(f"{repository.repo}#{event.delivery.number}"):
                    await self._handle_missed(event, result.own_comments)
        has_unhandled = event_isolation.should_retry or result.should_retry
        until = cursor.since if recent or has_unhandled else max(cursor.since, result.until - OVERLAP)
        cursor.etag = result.etag if until == cursor.since and not recent and not has_unhandled else ""
        cursor.since = until
        await self._lease.advance_cursor(str(repository.repo), until)
        if ended_isolation.should_retry or has_unhandled:
            return now
        return min(recent) + grace if recent else None

    def _may_arrive(self, occurred_at: datetime, now: datetime) -> bool:
        """Returns True if the delivery of an event may still arrive.

        The delivery cannot arrive if there is no webhook (`delivery_grace` is 0), or if Redis was wiped after
        the event.
        """
        grace = timedelta(seconds=self._schedule.delivery_grace)
        is_lost = self._wiped_at is not None and occurred_at <= self._wiped_at
        return bool(grace) and not is_lost and now - occurred_at < grace

    async def _handle_ended(
        self, deliveries: Iterable[ThreadClosed | LabelRemoved], isolation: ErrorIsolation
    ) -> None:
        for delivery in deliveries:
            with isolation.isolate(f"{delivery.repo}#{delivery.number}"):
                await self._handler.handle(delivery)

    async def _handle_missed(self, event: MissedEvent, own_comments: dict[str, bool]) -> None:
        """Passes a missed event to the handler. The handler ignores an event that was already processed, or
        that has a reply on GitHub.
        """
        if job := await self._handler.handle(event.delivery, own_comments):
            log.info("request found", extra={"job": job})
