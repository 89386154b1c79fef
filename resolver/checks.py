"""Represents check results, and identifies the bot's commits in a pull request."""

import re
from datetime import datetime
from typing import Literal

from patchwright.resolver.domain import Job, User
from patchwright.resolver.text.untrusted import QuotedText
from patchwright.runtime.frozen_model import FrozenModel

RUN_TRAILER = "Patchwright-Run"
"""Commit trailer that contains a run ID. It identifies the commits that a run made."""
REPAIR_TRAILER = "Repairs-checks-of"
"""Commit trailer of a repair. It names the earlier commit whose checks failed."""


class Check(FrozenModel):
    """A check run or a commit status on GitHub. It comes from a GitHub Actions job or from another CI service."""

    id: int
    name: str
    app: str
    """Name of the app that reported the check."""
    state: Literal["running", "passed", "failed", "broken"]
    """State of the check. "broken" means that the check ended without a result: it was canceled, timed out or
    never started.
    """
    conclusion: str
    """GitHub's conclusion; empty while the check runs."""
    completed_at: datetime | None = None
    """Time of completion in UTC; None if the check still runs or the time is unknown."""
    output: str = ""
    """The report that the check itself wrote (title, summary and text). The report is untrusted."""
    url: str = ""
    """URL of the check on GitHub."""


def parse_run_id(message: str) -> str | None:
    """Returns the run ID in a commit message, or None."""
    named = re.search(rf"^{RUN_TRAILER}: (\S+)$", message, re.MULTILINE)
    return named[1] if named else None


class PullCommit(FrozenModel):
    """A commit of a pull request."""

    sha: str
    author_id: int | None
    """Numeric user ID of the author; None if GitHub does not know the author."""
    message: str

    def is_run_commit(self, bot_user: User) -> bool:
        """Returns True if a run made the commit. The author alone is no proof: if the bot uses a person's
        access token, that person's own commits have the same author.
        """
        return (
            self.author_id == bot_user.id
            and re.search(rf"^{RUN_TRAILER}: \S", self.message, re.MULTILINE) is not None
        )

    def is_from_job(self, job: Job) -> bool:
        """Returns True if this job's run made the commit."""
        return re.search(rf"^{RUN_TRAILER}: {re.escape(job.id)}$", self.message, re.MULTILINE) is not None

    @property
    def is_repair(self) -> bool:
        return re.search(rf"^{REPAIR_TRAILER}: \S", self.message, re.MULTILINE) is not None


def count_consecutive_repairs(commits: tuple[PullCommit, ...], bot_user: User) -> int:
    """Returns the number of consecutive repair commits at the end of `commits`. `commits` is sorted from the
    oldest to the newest commit.
    """
    count = 0
    for commit in reversed(commits):
        if not (commit.is_run_commit(bot_user) and commit.is_repair):
            break
        count += 1
    return count


class FailedCheck(FrozenModel):
    """A failed check, as the agent sees it."""

    name: str
    app: str
    log: QuotedText | None
    """The relevant part of the check's log; None if the log is not available."""
    problem: str = ""
    """Why there is no log, in a sentence."""


class FailedChecks(FrozenModel):
    """The failed checks of one of the bot's commits."""

    commit: str
    checks: tuple[FailedCheck, ...]
    unread_names: tuple[str, ...] = ()
    """Names of other failed checks, whose logs were not read."""
    failing_at_base: tuple[str, ...] = ()
    """Names of checks that also fail on the base branch."""
