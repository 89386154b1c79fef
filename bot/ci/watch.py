"""Which of our pull requests have failing checks: told by deliveries, or found by looking.

Whatever is told is no more than a hint to look. So events that come twice, in any order or never make one job for
each commit, begun when all its checks have ended.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from bot.jobs import Queue
from bot.reconcile.apart import Apart
from bot.webhooks.delivery import Checked
from bot.webhooks.triggers import job_name
from resolver.ci.checks import Check
from resolver.domain import Job, JobId, PullRequest, Repo
from resolver.errors import Forbidden, NotFound, Unauthorized

log = logging.getLogger(__name__)

LONGEST_WAIT = timedelta(minutes=30)  # for checks that still run, from the last one that failed
FIRST_PAUSE = timedelta(minutes=1)  # between two looks at what does not fail; doubled each time
LONGEST_PAUSE = timedelta(hours=1)


class Eyes(Protocol):
    """What is looked at. Every method may raise ForgeError."""

    async def find_pull(self, repo: Repo, branch: str) -> PullRequest | None: ...

    async def our_pulls(self, repo: Repo, prefix: str) -> tuple[PullRequest, ...]:
        """The open pull requests that we have opened from branches with this prefix, the newest ones."""

    async def checks(self, repo: Repo, commit: str) -> tuple[Check, ...]: ...


@dataclass(frozen=True)
class _Calm:
    """A commit on which nothing failed when it was looked at."""

    again: datetime
    pause: timedelta


class CiWatch:
    """Puts a job into the queue for each head of ours on which checks fail."""

    def __init__(
        self,
        queue: Queue,
        eyes: Eyes,
        prefix: str,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`prefix` is that of our branches."""
        self._queue = queue
        self._eyes = eyes
        self._prefix = prefix
        self._clock = clock
        self._calm: dict[Repo, dict[str, _Calm]] = {}

    async def take(self, told: Checked) -> JobId | None:
        """Look at what a delivery tells of; the job that is new in the queue, if one is.

        Raises QueueDown and ForgeError: then it is to be told again.
        """
        if not told.branch.startswith(self._prefix):
            return None
        pull = await self._eyes.find_pull(told.repo, told.branch)
        if pull is None or not pull.trusted or pull.head_sha != told.commit:
            return None  # nobody's, somebody else's, or of a commit that is not the last one any more
        return await self._look(told.repo, told.repo_id, told.installation, pull)

    async def look_over(self, repo: Repo, repo_id: int, installation: int | None) -> bool:
        """Look at all our open pull requests of a repository; whether one was left out that may soon be shown.

        Raises QueueDown, ForgeError.
        """
        calm, now = self._calm.get(repo, {}), self._clock()
        pulls = await self._eyes.our_pulls(repo, self._prefix)
        self._calm[repo] = {pull.head_sha: calm[pull.head_sha] for pull in pulls if pull.head_sha in calm}
        apart = Apart(Unauthorized)
        for pull in pulls:
            known = self._calm[repo].get(pull.head_sha)
            if known is None or known.again <= now:
                with apart.each(f"{repo}#{pull.number}"):
                    await self._look(repo, repo_id, installation, pull)
        return apart.again

    async def _look(
        self, repo: Repo, repo_id: int, installation: int | None, pull: PullRequest
    ) -> JobId | None:
        job = Job(
            id=job_name(repo, repo_id, pull.number, "checks", pull.head_sha),
            repo=repo,
            number=pull.number,
            requester=None,
            installation=installation,
            checks=pull.head_sha,
        )
        if await self._queue.state(job.id) is not None:
            self._rest(repo, pull.head_sha)
            return None
        try:
            checks = await self._eyes.checks(repo, pull.head_sha)
        except (Forbidden, NotFound) as exc:
            log.info("checks may not be read", extra={"repo": str(repo), "reason": str(exc)})
            checks = ()
        if self._still_run(checks):
            return None
        if not any(one.state in ("failed", "broken") for one in checks):
            self._rest(repo, pull.head_sha)
            return None
        if await self._queue.put(job, urgent=False):
            log.info("checks failed", extra={"job": job.id, "commit": pull.head_sha})
            return job.id
        return None

    def _still_run(self, checks: tuple[Check, ...]) -> bool:
        """Whether there is something to wait for."""
        if not any(one.state == "running" for one in checks):
            return False
        failed = [one.ended for one in checks if one.state in ("failed", "broken") and one.ended]
        return not failed or self._clock() - max(failed) < LONGEST_WAIT

    def _rest(self, repo: Repo, commit: str) -> None:
        """It is not looked at again for a while, and each time for longer."""
        known = self._calm.setdefault(repo, {}).get(commit)
        pause = min(known.pause * 2, LONGEST_PAUSE) if known else FIRST_PAUSE
        self._calm[repo][commit] = _Calm(self._clock() + pause, pause)
