"""Clients of the HTTP API in this process, behind the receiver as in a server."""

from datetime import UTC, datetime
from typing import Any

import httpx

from patchwright.bot.api import API_PATHS
from patchwright.bot.api.authentication import ApiDependencies
from patchwright.bot.redis.api_keys import ApiKey
from patchwright.bot.run_summary import RunSummary
from patchwright.bot.web.application import create_application
from patchwright.bot.webhooks.receiver import Receiver
from patchwright.resolver.domain import RunId

TOKEN = "an operator's own token"
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}


class NoSummaries:
    async def get(self, run: RunId) -> RunSummary | None:
        return None


class MemoryKeys:
    """API keys in memory: each scope is the key that has only this scope."""

    async def find(self, text: str) -> ApiKey | None:
        if text not in ("jobs:read", "jobs:write"):
            return None
        return ApiKey(name=text.replace(":", "-"), scopes=(text,), created_at=datetime.now(UTC))


def api_receiver(queue: Any, runs: Any = None, keys: Any = None) -> Receiver:
    """Returns the receiver of a server whose application contains only the API."""
    receiver = Receiver(None, "secret")  # type: ignore[arg-type]
    deps = ApiDependencies(queue, runs or NoSummaries(), keys or MemoryKeys(), TOKEN)
    receiver.mounted_apps = dict.fromkeys(API_PATHS, create_application(deps))  # type: ignore[arg-type]
    return receiver


def api_client(queue: Any, runs: Any = None, keys: Any = None) -> httpx.AsyncClient:
    """Returns a client with the operator token."""
    transport = httpx.ASGITransport(api_receiver(queue, runs, keys), raise_app_exceptions=False)  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=transport, base_url="http://test", headers=AUTHORIZED)
