"""Loads the dashboard at its first request, so that the receiver starts fast and uses little memory."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from patchwright.bot.webhooks.receiver import AsgiApp, Receive, Scope, Send
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings


class LazyDashboard:
    """ASGI application that imports and opens the dashboard at the first request."""

    def __init__(
        self, settings: Settings, redis_url: str, secrets: Secrets, deliveries: Mapping[tuple[str, str], int]
    ) -> None:
        self._arguments = (settings, redis_url, secrets, deliveries)
        self._app: AsgiApp | None = None
        self._load_lock = asyncio.Lock()
        self._exit_stack = AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            async with self._load_lock:
                self._app = self._app or await self._load_app()
        await self._app(scope, receive, send)

    async def _load_app(self) -> AsgiApp:
        # The import runs in a thread, so that deliveries do not have to wait for it.
        open_dashboard = await asyncio.to_thread(_import_dashboard)
        app: AsgiApp = await self._exit_stack.enter_async_context(open_dashboard(*self._arguments))
        return app

    async def close(self) -> None:
        """Closes the dashboard and its open event streams."""
        await self._exit_stack.aclose()


def _import_dashboard() -> Callable[..., AbstractAsyncContextManager[Any]]:
    from patchwright.bot.dashboard.app import open_dashboard

    return open_dashboard


def build_lazy_dashboard(
    settings: Settings, redis_url: str, secrets: Secrets, deliveries: Mapping[tuple[str, str], int]
) -> LazyDashboard | None:
    """Returns the dashboard, or None if no way to sign in is configured.

    Raises SettingsError if the settings for sign-in are incomplete.
    """
    oauth = (settings.oauth_client_id, settings.oauth_client_secret)
    if any(oauth) and not all((*oauth, settings.public_url)):
        raise SettingsError(
            "Sign-in with GitHub needs PATCHWRIGHT_OAUTH_CLIENT_ID, PATCHWRIGHT_OAUTH_CLIENT_SECRET and "
            "PATCHWRIGHT_PUBLIC_URL. Set all three."
        )
    if not any(oauth) and settings.operator_token is None:
        return None
    return LazyDashboard(settings, redis_url, secrets, deliveries)
