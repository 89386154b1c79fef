"""Finds failed checks on Patchwright's pull requests, through webhook deliveries and by polling.

A delivery only tells the monitor which commit to query. So each commit leads to one job, even if deliveries are
repeated, reordered or lost. The job is queued when all checks of the commit have completed. If some checks are
still running MAX_CHECK_WAIT after the last failure, the job is queued without waiting for them.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from patchwright.bot.github.error_isolation import ErrorIsolation
from patchwright.bot.github.repositories import MAX_LIST_AGE, PolledRepository
from patchwright.bot.jobs import JobQueue
from patchwright.bot.webhooks.delivery import ChecksCompleted
from patchwright.bot.webhooks.triggers import make_job_id
from patchwright.resolver.checks import Check
from patchwright.resolver.domain import Credentials, Job, JobId, PullRequest, Repo
from patchwright.resolver.errors import Forbidden, NotFound, Unauthorized

log = logging.getLogger(__name__)

MAX_CHECK_WAIT = timedelta(minutes=30)  # how long to wait for running checks after a check failed
# The first and the longest delay before a commit is queried again, if the last query queued no job. The delay
# doubles each time.
MIN_BACKOFF = timedelta(minutes=1)
MAX_BACKOFF = timedelta(hours=1)
MAX_RUNNING_BACKOFF = timedelta(minutes=5)  # the longest delay while checks are running


class PullChecks(Protocol):
    """Reads pull requests and their checks. Every method may raise ForgeError."""

    async def find_pull_request(self, repo: Repo, branch: str) -> PullRequest | None: ...

    async def list_own_pull_requests(
        self, repo: Repo, prefix: str, credentials: Credentials
    ) -> tuple[PullRequest, ...]:
        """Returns Patchwright's newest open pull requests whose branch names start with `prefix`."""

    async def list_checks(self, repo: Repo, commit: str) -> tuple[Check, ...]: ...


@dataclass(frozen=True)
class _Backoff:
    """How long to wait before a commit's checks are queried again, if the last query led to no new job."""

    retry_at: datetime
    delay: timedelta


class CheckMonitor:
    """Queues a job if the head commit of one of Patchwright's pull requests has failed checks."""

    def __init__(
        self,
        queue: JobQueue,
        pull_checks: PullChecks,
        branch_prefix: str,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`branch_prefix` is the text with which the names of Patchwright's branches start."""
        self._queue = queue
        self._pull_checks = pull_checks
        self._branch_prefix = branch_prefix
        self._clock = clock
        self._backoffs: dict[Repo, dict[str, _Backoff]] = {}
        self._pulls: dict[Repo, tuple[datetime, tuple[PullRequest, ...]]] = {}
        """The open pull requests of each repository, with the time when they were listed."""

    async def handle(self, delivery: ChecksCompleted) -> JobId | None:
        """Queries the checks of the commit in a delivery. Returns the id of the queued job, or None if no new
        job is needed.

        Raises QueueDown and ForgeError; the delivery must then be processed again.
        """
        if not delivery.branch.startswith(self._branch_prefix):
            return None
        pull = await self._pull_checks.find_pull_request(delivery.repo, delivery.branch)
        if pull is None or not pull.trusted or pull.head_sha != delivery.commit:
            return None  # no pull request, a pull request by another author, or an outdated commit
        return await self._queue_if_failed(delivery.repo, delivery.repo_id, delivery.installation_id, pull)

    async def scan_repository(self, repository: PolledRepository, *, has_changed: bool = True) -> bool:
        """Queries the checks of Patchwright's open pull requests in a repository, and queues jobs for failed
        checks.

        Skips commits whose next query is not due. If `has_changed` is False, no issue or pull request has
        changed since the last scan. The list of pull requests is then reused until it is MAX_LIST_AGE old.
        Returns True if some queries failed and should be retried soon. Raises QueueDown and ForgeError.
        """
        repo, now = repository.repo, self._clock()
        known = self._backoffs.get(repo, {})
        listed_at, pulls = self._pulls.get(repo, (None, ()))
        if has_changed or listed_at is None or now - listed_at > MAX_LIST_AGE:
            pulls = await self._pull_checks.list_own_pull_requests(
                repo, self._branch_prefix, repository.token
            )
            self._pulls[repo] = now, pulls
        self._backoffs[repo] = {
            pull.head_sha: known[pull.head_sha] for pull in pulls if pull.head_sha in known
        }
        isolation = ErrorIsolation(Unauthorized)
        for pull in pulls:
            backoff = self._backoffs[repo].get(pull.head_sha)
            if backoff is None or backoff.retry_at <= now:
                with isolation.isolate(f"{repo}#{pull.number}"):
                    await self._queue_if_failed(repo, repository.id, repository.installation_id, pull)
        return isolation.should_retry

    async def _queue_if_failed(
        self, repo: Repo, repo_id: int, installation_id: int | None, pull: PullRequest
    ) -> JobId | None:
        job = Job(
            id=make_job_id(repo, repo_id, pull.number, "checks", pull.head_sha),
            repo=repo,
            number=pull.number,
            requester=None,
            installation_id=installation_id,
            failed_checks_commit=pull.head_sha,
        )
        if await self._queue.get_record(job.id) is not None:
            self._back_off(repo, pull.head_sha)
            return None
        try:
            checks = await self._pull_checks.list_checks(repo, pull.head_sha)
        except (Forbidden, NotFound) as exc:
            log.info("checks not readable", extra={"repo": str(repo), "reason": str(exc)})
            checks = ()
        if self._should_wait(checks):
            self._back_off(repo, pull.head_sha, MAX_RUNNING_BACKOFF)
            return None
        if not any(check.state in ("failed", "broken") for check in checks):
            self._back_off(repo, pull.head_sha)
            return None
        if await self._queue.put(job, urgent=False):
            log.info("checks failed", extra={"job": job.id, "commit": pull.head_sha})
            return job.id
        return None

    def _should_wait(self, checks: tuple[Check, ...]) -> bool:
        """Returns True if the repair job should not be queued yet, because some checks are still running."""
        if not any(check.state == "running" for check in checks):
            return False
        failed = [
            check.completed_at
            for check in checks
            if check.state in ("failed", "broken") and check.completed_at
        ]
        return not failed or self._clock() - max(failed) < MAX_CHECK_WAIT

    def _back_off(self, repo: Repo, commit: str, max_delay: timedelta = MAX_BACKOFF) -> None:
        """Delays the next query of a commit. The delay doubles each time."""
        previous = self._backoffs.setdefault(repo, {}).get(commit)
        delay = min(previous.delay * 2, max_delay) if previous else MIN_BACKOFF
        self._backoffs[repo][commit] = _Backoff(self._clock() + delay, delay)
