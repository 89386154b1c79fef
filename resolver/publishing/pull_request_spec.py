"""The data of a pull request that Patchwright opens."""

from patchwright.resolver.domain import Repo, User
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
