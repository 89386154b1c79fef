"""GitHub Apps in the fake server's state."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # circular import: the state contains these classes
    from patchwright.demo.github.state import User


@dataclass(eq=False)
class GitHubApp:
    id: int
    slug: str
    bot: User
    private_key_pem: str = field(repr=False)
    public_key_pem: str = field(repr=False)
    created: str
    permissions: dict[str, str]
    events: list[str] | None = None
    """Events that the App subscribed to. None means the default: the events that Patchwright handles."""
    setup_url: str = ""
    """URL to which the browser is redirected after an installation; empty if the browser is not redirected."""


@dataclass(eq=False)
class OAuthClient:
    """The OAuth client of an App, through which people sign in."""

    app: GitHubApp
    callback: str
    """Callback URL, to which the browser returns after sign-in. Any URL below it is accepted, too."""
    id: str
    secret: str = field(repr=False)
    authorized_user_ids: set[int] = field(default_factory=set)
    """Ids of the users who have authorized the App. These users are not asked again."""


@dataclass(frozen=True)
class AppConversion:
    """A new App whose secrets can still be fetched once."""

    app: GitHubApp
    client_id: str
    client_secret: str
    webhook_secret: str | None
    expires: datetime
