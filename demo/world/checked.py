"""What the stand-in knows of a check run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # a repository holds these
    from demo.world.state import User

Status = Literal["queued", "in_progress", "completed"]


@dataclass(eq=False, kw_only=True)
class CommitStatus:
    """What an older service says of one commit."""

    id: int
    sha: str
    context: str
    state: Literal["pending", "success", "failure", "error"]
    description: str
    updated: str


@dataclass(eq=False, kw_only=True)
class Check:
    """What one program says of one commit."""

    id: int
    sha: str
    author: User
    """The bot of the app that made it, and that alone may change it."""
    name: str
    status: Status = "queued"
    conclusion: str | None = None
    """None until it is completed."""
    external_id: str | None = None
    details_url: str | None = None
    started: str | None = None
    completed: str | None = None
    output: dict[str, str | None] = field(default_factory=dict)
    """title, summary and text, those that were given."""
    annotations: list[tuple[str, int, str]] = field(default_factory=list)
    """Path, line and message of each."""
    step: str = ""
    """Of a job: where it failed."""
    has_log: bool = False
    """Of a job: whether what it printed is still there."""
