"""What programs find of a commit on the forge, and of whom a pull request's commits are."""

import re
from datetime import datetime
from typing import Literal

from resolver.domain import Job, User
from resolver.words.quotation import Quoted
from runtime.frozen import Frozen

RUN = "Patchwright-Run"
"""Trailer of our commits by which a run finds its own again."""
REPAIRS = "Repairs-checks-of"
"""Trailer of a commit that was made because checks failed on another one, which it names."""


class Check(Frozen):
    """One finding: a job of a workflow, or what another program says."""

    id: int
    name: str
    by: str
    """Name of the program."""
    state: Literal["running", "passed", "failed", "broken"]
    """broken: it ended, and says nothing of the code: cancelled, timed out, never begun."""
    how: str
    """The forge's own word for how it ended; empty while it runs."""
    ended: datetime | None = None
    """UTC; None while it runs, and where the forge does not say."""
    said: str = ""
    """Its own report: title, summary and text. A stranger's words."""
    place: str = ""
    """Its page on the forge."""


def run_of(message: str) -> str | None:
    """Id of the run of ours that a commit's message names; None: it names none."""
    named = re.search(rf"^{RUN}: (\S+)$", message, re.MULTILINE)
    return named[1] if named else None


class Pushed(Frozen):
    """A commit on a pull request."""

    sha: str
    author: int | None
    """Id of the account that the forge takes for its author; None: it knows none."""
    message: str

    def is_by(self, us: User) -> bool:
        """Whether a run of ours made it: its author alone would be a person too, where we have a person's token."""
        return self.author == us.id and re.search(rf"^{RUN}: \S", self.message, re.MULTILINE) is not None

    def is_of(self, job: Job) -> bool:
        """Whether this job's run made it."""
        return re.search(rf"^{RUN}: {re.escape(job.id)}$", self.message, re.MULTILINE) is not None

    @property
    def repairs(self) -> bool:
        return re.search(rf"^{REPAIRS}: \S", self.message, re.MULTILINE) is not None


def repairs_in_a_row(commits: tuple[Pushed, ...], us: User) -> int:
    """How many repairs of ours end this list, which begins with the oldest: anybody's push begins anew."""
    count = 0
    for commit in reversed(commits):
        if not (commit.is_by(us) and commit.repairs):
            break
        count += 1
    return count


class CheckSeen(Frozen):
    """A check that failed, as the agent is shown it."""

    name: str
    by: str
    log: Quoted | None
    """The part of what it printed that tells why; None: it could not be had."""
    problem: str = ""
    """Why there is no log, in a sentence."""


class Failing(Frozen):
    """What failed on a commit of ours, and is to be repaired."""

    commit: str
    checks: tuple[CheckSeen, ...]
    unread: tuple[str, ...] = ()
    """Names of those that failed as well, and whose logs were not read."""
    red_at_base: tuple[str, ...] = ()
    """Names of those that fail on the base branch too."""
