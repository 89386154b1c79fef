"""Check runs and commit statuses in the fake server's state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # circular import: a repository contains these classes
    from patchwright.demo.github.state import User

Status = Literal["queued", "in_progress", "completed"]


@dataclass(eq=False, kw_only=True)
class CommitStatus:
    """A commit status, which older CI services set on a commit."""

    id: int
    sha: str
    context: str
    state: Literal["pending", "success", "failure", "error"]
    description: str
    updated: str


@dataclass(eq=False, kw_only=True)
class CheckRun:
    """A check run of an App on a commit."""

    id: int
    sha: str
    author: User
    """The bot of the App that created the check run. Only this App may change the check run."""
    name: str
    status: Status = "queued"
    conclusion: str | None = None
    """None until the check run is completed."""
    external_id: str | None = None
    details_url: str | None = None
    started: str | None = None
    completed: str | None = None
    output: dict[str, str | None] = field(default_factory=dict)
    """The values that the App has sent for `title`, `summary` and `text`."""
    annotations: list[tuple[str, int, str]] = field(default_factory=list)
    """Path, line and message of each annotation."""
    step: str = ""
    """Name of the failed step if the check run is an Actions job."""
    has_log: bool = False
    """True if the check run is an Actions job whose log still exists."""
