"""Loads the HTTP API and the dashboard at their first request, so the receiver starts fast and uses little memory."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from patchwright.bot.conversation_models import OpenConversations
from patchwright.bot.web.redis_stores import RedisStores
from patchwright.bot.webhooks.receiver import AsgiApp, Receive, Scope, Send
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings


class LazyApplication:
    """ASGI application that imports and opens the FastAPI application at the first request."""

    def __init__(
        self,
        settings: Settings,
        redis_url: str,
        stores: RedisStores,
        secrets: Secrets,
        deliveries: Mapping[tuple[str, str], int],
        open_conversations: OpenConversations | None = None,
    ) -> None:
        """Raises SettingsError if the settings for sign-in are incomplete."""
        self.has_dashboard = has_sign_in(settings)
        self._arguments = (settings, redis_url, stores, secrets, deliveries)
        self._open_conversations = open_conversations
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
        open_application = await asyncio.to_thread(_import_application)
        app: AsgiApp = await self._exit_stack.enter_async_context(
            open_application(
                *self._arguments,
                has_dashboard=self.has_dashboard,
                open_conversations=self._open_conversations,
            )
        )
        return app

    async def close(self) -> None:
        """Closes the application and its open event streams."""
        await self._exit_stack.aclose()


def _import_application() -> Callable[..., AbstractAsyncContextManager[Any]]:
    from patchwright.bot.web.application import open_application

    return open_application


def has_sign_in(settings: Settings) -> bool:
    """Returns whether someone can sign in to the dashboard. Raises SettingsError if the settings for it are
    incomplete.
    """
    oauth = (settings.oauth_client_id, settings.oauth_client_secret)
    if any(oauth) and not all((*oauth, settings.public_url)):
        raise SettingsError(
            "Sign-in with GitHub needs PATCHWRIGHT_OAUTH_CLIENT_ID, PATCHWRIGHT_OAUTH_CLIENT_SECRET and "
            "PATCHWRIGHT_PUBLIC_URL. Set all three."
        )
    return any(oauth) or settings.operator_token is not None
