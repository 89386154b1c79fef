"""Limits the replies to people without write access, so that nobody can make the bot flood an issue or pull
request.
"""

from datetime import UTC, date, datetime
from typing import Protocol

from patchwright.resolver.domain import JobId, Repo

MAX_REFUSALS = 3
"""Maximum number of replies to people without write access, per day (UTC) and issue or pull request."""


class RefusalLimit(Protocol):
    """Counts the replies to people without write access. May raise QueueDown."""

    async def allow_refusal(self, repo: Repo, number: int, job: JobId) -> bool:
        """Returns True if the bot may reply to this request. Several calls for the same request return the same
        result.
        """


class LocalRefusalLimit:
    """Counts the replies to people without write access in memory, for a single process."""

    def __init__(self) -> None:
        self._day: date | None = None
        self._jobs: dict[tuple[Repo, int], list[JobId]] = {}

    async def allow_refusal(self, repo: Repo, number: int, job: JobId) -> bool:
        today = datetime.now(UTC).date()
        if today != self._day:
            self._day, self._jobs = today, {}
        jobs = self._jobs.setdefault((repo, number), [])
        if job not in jobs and len(jobs) < MAX_REFUSALS:
            jobs.append(job)
        return job in jobs
