"""What the stand-in tells the outside: what happened, hooks, and every attempt to reach one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:  # what is known of the world holds these
    from demo.world.state import Label, Repository, User


class Happening(NamedTuple):
    """What somebody did with a label."""

    id: int
    event: Literal["labeled", "unlabeled"]
    label: Label
    actor: User
    created: str


@dataclass(frozen=True)
class Hook:
    id: int
    url: str
    secret: str = field(repr=False)
    repo: Repository | None = field(default=None, repr=False)
    """Whose own webhook it is; None: it is the App's, and hears of every repository."""


@dataclass(frozen=True)
class Delivery:
    """One attempt to tell one hook something."""

    hook: Hook
    guid: str
    """The same for every attempt."""
    event: str
    action: str
    body: bytes = field(repr=False)
    status: int | None
    """None when the receiver did not answer in time, or at all."""
    redelivery: bool = False
    id: int = 0
    """Of this attempt."""
    at: str = ""
