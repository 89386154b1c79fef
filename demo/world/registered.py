"""Apps as the stand-in knows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what is known of the world holds these
    from demo.world.state import User


@dataclass(eq=False)
class App:
    id: int
    slug: str
    bot: User
    private_key_pem: str = field(repr=False)
    public_key_pem: str = field(repr=False)
    created: str
    permissions: dict[str, str]
    events: list[str] | None = None
    """That it asked for; None: those that are usual."""
    setup_url: str = ""
    """Where people are sent who have installed it; "": nowhere."""


@dataclass(eq=False)
class Client:
    """What an App shows when people log in through it."""

    app: App
    callback: str
    """Where people are sent back to; any address below it will do."""
    id: str
    secret: str = field(repr=False)
    known_to: set[int] = field(default_factory=set)
    """Ids of people who have once authorized it: they are not asked again."""


@dataclass(frozen=True)
class Made:
    """An App of whose secrets nobody was told yet."""

    app: App
    client_id: str
    client_secret: str
    webhook_secret: str | None
    expires: datetime
