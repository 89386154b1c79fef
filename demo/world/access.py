"""Who asks, and what they may: tokens, app JWTs and permissions as GitHub judges them."""

import base64
import binascii
from dataclasses import dataclass, field
from datetime import UTC, datetime

import jwt

from demo.world.registered import Client
from demo.world.state import ROLES, App, Repository, Role, State, Token

LONGEST_JWT = 600  # seconds; GitHub refuses a later expiry


class Refusal(Exception):
    """An answer other than success; becomes GitHub's error JSON."""

    def __init__(self, status: int, message: str, *errors: dict[str, str]) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = errors


@dataclass(frozen=True)
class Need:
    """What a write takes: a person's role, or an app's permission."""

    role: Role
    permission: str = field(default="issues")


def whoever(authorization: str | None, state: State) -> Token | App | Client | None:
    """The token, app or app's client that a request speaks for; None without credentials. Raises Refusal 401."""
    if not authorization:
        return None
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "basic":
        name, value = _basic(value)
        if (client := state.clients.get(name)) is not None and client.secret == value:
            return client
    if value.count(".") == 2:
        return _app(value, state)
    token = state.tokens.get(value)
    if token is None or (token.expires is not None and token.expires <= datetime.now(UTC)):
        raise Refusal(401, "Bad credentials")
    return token


def visible(actor: Token | App | Client | None, repo: Repository | None) -> Repository:
    """The repository, if there is one that the actor may see. Raises Refusal 404 either way."""
    if repo is None or isinstance(actor, App | Client):
        raise Refusal(404, "Not Found")
    if repo.private:
        if actor is None or (actor.repositories is not None and repo.id not in actor.repositories):
            raise Refusal(404, "Not Found")
        if actor.permissions is None and repo.role(actor.user) == "none":  # a person's, not an installation's
            raise Refusal(404, "Not Found")
    return repo


def allow(actor: Token | App | Client | None, repo: Repository, need: Need) -> Token:
    """The token, if it may do what is needed. Raises Refusal 401 or 403."""
    if not isinstance(actor, Token):
        raise Refusal(401, "Requires authentication")
    if repo.archived:
        raise Refusal(403, "Repository was archived so is read-only.")
    if actor.permissions is not None and actor.repositories is not None:
        if repo.id not in actor.repositories or actor.permissions.get(need.permission) != "write":
            raise Refusal(403, "Resource not accessible by integration")
    elif ROLES.index(repo.role(actor.user)) < ROLES.index(need.role):
        raise Refusal(403, "Resource not accessible by personal access token")
    return actor


def _basic(encoded: str) -> tuple[str, str]:
    """Name and password."""
    try:
        name, _, password = base64.b64decode(encoded).decode().partition(":")
        return name, password
    except (binascii.Error, UnicodeDecodeError) as exc:
        raise Refusal(401, "Bad credentials") from exc


def _app(encoded: str, state: State) -> App:
    try:
        issuer = jwt.decode(encoded, options={"verify_signature": False}).get("iss")
        app = next((app for app in state.apps if str(app.id) == str(issuer)), None)
        if app is None:
            raise Refusal(401, "Integration not found")
        claims = jwt.decode(
            encoded, app.public_key_pem, algorithms=["RS256"], options={"require": ["iat", "exp"]}
        )
    except jwt.InvalidTokenError as exc:
        raise Refusal(401, "A JSON web token could not be decoded") from exc
    if claims["exp"] - datetime.now(UTC).timestamp() > LONGEST_JWT:
        raise Refusal(401, "'Expiration time' claim ('exp') is too far in the future")
    return app
