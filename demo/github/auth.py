"""Authenticates and authorizes requests as GitHub does: tokens, App JWTs, roles and permissions."""

import base64
import binascii
from dataclasses import dataclass, field
from datetime import UTC, datetime

import jwt

from patchwright.demo.github.app_models import GitHubApp, OAuthClient
from patchwright.demo.github.state import ROLES, GitHubState, Repository, Role, Token

MAX_JWT_LIFETIME = 600  # seconds; GitHub refuses a later expiry


class ApiError(Exception):
    """An error response, sent as GitHub's error JSON."""

    def __init__(self, status: int, message: str, *errors: dict[str, str]) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = errors


@dataclass(frozen=True)
class RequiredAccess:
    """The access that a write request requires: a role for a user, or a permission for an App."""

    role: Role
    permission: str = field(default="issues")


def authenticate(authorization: str | None, state: GitHubState) -> Token | GitHubApp | OAuthClient | None:
    """Returns the token, App or OAuth client whose credentials a request contains. Returns None if the request
    contains no credentials.

    Raises ApiError 401 if the credentials are invalid.
    """
    if not authorization:
        return None
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "basic":
        name, value = _parse_basic_auth(value)
        if (client := state.clients.get(name)) is not None and client.secret == value:
            return client
    if value.count(".") == 2:
        return _authenticate_app(value, state)
    token = state.tokens.get(value)
    if token is None or (token.expires is not None and token.expires <= datetime.now(UTC)):
        raise ApiError(401, "Bad credentials")
    return token


def require_visible(actor: Token | GitHubApp | OAuthClient | None, repo: Repository | None) -> Repository:
    """Returns the repository. Raises ApiError 404 if it does not exist or the actor may not see it."""
    if repo is None or isinstance(actor, GitHubApp | OAuthClient):
        raise ApiError(404, "Not Found")
    if repo.private:
        if actor is None or (actor.repositories is not None and repo.id not in actor.repositories):
            raise ApiError(404, "Not Found")
        # A token without permissions belongs to a person and not to an installation.
        if actor.permissions is None and repo.role(actor.user) == "none":
            raise ApiError(404, "Not Found")
    return repo


def require_access(
    actor: Token | GitHubApp | OAuthClient | None, repo: Repository, required: RequiredAccess
) -> Token:
    """Returns the token if it grants the required access. Raises ApiError 401 or 403."""
    if not isinstance(actor, Token):
        raise ApiError(401, "Requires authentication")
    if repo.archived:
        raise ApiError(403, "Repository was archived so is read-only.")
    if actor.permissions is not None and actor.repositories is not None:
        if repo.id not in actor.repositories or actor.permissions.get(required.permission) != "write":
            raise ApiError(403, "Resource not accessible by integration")
    elif ROLES.index(repo.role(actor.user)) < ROLES.index(required.role):
        raise ApiError(403, "Resource not accessible by personal access token")
    return actor


def _parse_basic_auth(encoded: str) -> tuple[str, str]:
    """Returns name and password."""
    try:
        name, _, password = base64.b64decode(encoded).decode().partition(":")
        return name, password
    except (binascii.Error, UnicodeDecodeError) as exc:
        raise ApiError(401, "Bad credentials") from exc


def _authenticate_app(encoded: str, state: GitHubState) -> GitHubApp:
    try:
        issuer = jwt.decode(encoded, options={"verify_signature": False}).get("iss")
        app = next((app for app in state.apps if str(app.id) == str(issuer)), None)
        if app is None:
            raise ApiError(401, "Integration not found")
        claims = jwt.decode(
            encoded, app.public_key_pem, algorithms=["RS256"], options={"require": ["iat", "exp"]}
        )
    except jwt.InvalidTokenError as exc:
        raise ApiError(401, "A JSON web token could not be decoded") from exc
    if claims["exp"] - datetime.now(UTC).timestamp() > MAX_JWT_LIFETIME:
        raise ApiError(401, "'Expiration time' claim ('exp') is too far in the future")
    return app
