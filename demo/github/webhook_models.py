"""Webhooks, their events, and the attempts to deliver them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:  # circular import: the state contains these classes
    from patchwright.demo.github.state import Label, Repository, User


class IssueEvent(NamedTuple):
    """An event in the history of an issue: a label was added or removed."""

    id: int
    event: Literal["labeled", "unlabeled"]
    label: Label
    actor: User
    created: str


@dataclass(frozen=True)
class RegisteredWebhook:
    id: int
    url: str
    secret: str = field(repr=False)
    repo: Repository | None = field(default=None, repr=False)
    """The repository to which the webhook belongs. None for the App's webhook, which receives the events of
    all repositories.
    """


@dataclass(frozen=True)
class Delivery:
    """One attempt to deliver an event to a webhook."""

    hook: RegisteredWebhook
    guid: str
    """Id of the delivery, the same for every attempt."""
    event: str
    action: str
    body: bytes = field(repr=False)
    status: int | None
    """HTTP status of the receiver's response; None if the receiver did not respond in time."""
    redelivery: bool = False
    id: int = 0
    """Id of this attempt."""
    delivered_at: str = ""
