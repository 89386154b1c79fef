"""The data of the pull requests and check runs that Patchwright creates on the forge."""

from typing import Literal

from patchwright.resolver.domain import JobId, Repo, User
from patchwright.runtime.frozen_model import FrozenModel


class PullRequestSpec(FrozenModel):
    """The data that the forge needs to open a pull request."""

    repo: Repo
    number: int
    """Number of the issue that the pull request resolves."""
    base_branch: str
    branch: str
    head_sha: str
    title: str
    body: str
    draft: bool
    reviewer: User | None = None  # The person whose review is requested; None if nobody is asked.


Conclusion = Literal["success", "neutral", "failure"]


class CheckRunReport(FrozenModel):
    """The content of a check run."""

    job: JobId
    """The job that creates the check run. A job creates at most one check run for each commit."""
    commit: str
    conclusion: Conclusion
    title: str
    """One line of plain text."""
    summary: str
    """Markdown."""
    details_url: str | None = None
    """URL of the run; None if there is none."""
