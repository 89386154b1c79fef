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


@dataclass(frozen=True)
class Made:
    """An App of whose secrets nobody was told yet."""

    app: App
    client_id: str
    client_secret: str
    webhook_secret: str | None
    expires: datetime
