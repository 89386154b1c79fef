"""Authenticates the API's clients by API key, and checks the scopes of the keys."""

import hmac
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Protocol

from fastapi import Depends, HTTPException
from fastapi.openapi.models import HTTPBearer as BearerDescription
from fastapi.requests import HTTPConnection
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase

from patchwright.bot.conversations.conversation_service import ConversationService
from patchwright.bot.jobs import JobQueue
from patchwright.bot.redis.api_keys import API_SCOPES, ApiKey
from patchwright.bot.run_summary import RunSummary
from patchwright.resolver.domain import RunId

OPERATOR = ApiKey(name="operator", scopes=API_SCOPES, created_at=datetime.fromtimestamp(0, UTC))
"""Stands for the operator token, which permits everything."""


class RunSummaries(Protocol):
    """Looks up the summaries of runs."""

    async def get(self, run: RunId) -> RunSummary | None:
        """Returns the summary of a run, or None if the run is unknown. Raises QueueDown."""


class ApiKeyFinder(Protocol):
    """Looks up API keys."""

    async def find(self, text: str) -> ApiKey | None:
        """Returns the key with this text, or None if there is no such key. Raises QueueDown."""


@dataclass(frozen=True)
class ApiDependencies:
    """What the routes of the API use."""

    queue: JobQueue
    runs: RunSummaries
    keys: ApiKeyFinder
    operator_token: str = ""
    """A token that permits everything; "" if there is none."""
    conversations: ConversationService | None = None
    """The conversations of this server; None if it runs no agents."""


async def get_api_deps(connection: HTTPConnection) -> ApiDependencies:
    """Returns the dependencies of the application."""
    deps: ApiDependencies = connection.app.state.api_deps
    return deps


Deps = Annotated[ApiDependencies, Depends(get_api_deps)]


async def authenticate(connection: HTTPConnection, deps: ApiDependencies) -> ApiKey | None:
    """Returns the API key that a request or a WebSocket brings; None if it brings no valid key.

    Raises QueueDown.
    """
    scheme, _, text = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not (text := text.strip()):
        return None
    if deps.operator_token and hmac.compare_digest(
        text.encode("latin-1", "replace"), deps.operator_token.encode()
    ):
        return OPERATOR
    return await deps.keys.find(text)


class ScopeCheck(SecurityBase):
    """A dependency that requires scopes: `Security(require_scopes, scopes=["jobs:read"])`. It works for routes of
    requests and of WebSockets. OpenAPI shows the scopes.
    """

    def __init__(self) -> None:
        self.model = BearerDescription(
            description="An API key (`patchwright api-key create NAME`), or the operator token."
        )
        self.scheme_name = "apiKey"

    async def __call__(self, connection: HTTPConnection, needed: SecurityScopes) -> ApiKey:
        key: ApiKey = connection.state.api_key
        if missing := sorted(set(needed.scopes) - set(key.scopes)):
            raise HTTPException(403, f"The API key {key.name} does not have the scope {', '.join(missing)}.")
        return key


require_scopes = ScopeCheck()
