"""What the receiver hands over: all that is not its own, to a page that the first who asks brings into memory."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from bot.webhooks.receiver import App, Receive, Scope, Send
from resolver.errors import SettingsError
from resolver.secrets import Secrets
from resolver.settings.settings import Settings


class Beyond:
    """The page, when it is wanted."""

    def __init__(
        self, settings: Settings, url: str, secrets: Secrets, deliveries: Mapping[tuple[str, str], int]
    ) -> None:
        """`url`: of the Redis."""
        self._wanted = (settings, url, secrets, deliveries)
        self._site: App | None = None
        self._opening = asyncio.Lock()
        self._open = AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._site is None:
            async with self._opening:
                self._site = self._site or await self._opened()
        await self._site(scope, receive, send)

    async def _opened(self) -> App:
        opened = await asyncio.to_thread(_load)  # deliveries are not to wait for an import
        site: App = await self._open.enter_async_context(opened(*self._wanted))
        return site

    async def close(self) -> None:
        """Whoever watches a run is told nothing more."""
        await self._open.aclose()


def _load() -> Callable[..., AbstractAsyncContextManager[Any]]:
    from bot.page.composed import opened

    return opened


def beyond(
    settings: Settings, url: str, secrets: Secrets, deliveries: Mapping[tuple[str, str], int]
) -> Beyond | None:
    """The page; None where nobody could log in. Raises SettingsError when half of what that takes is set."""
    oauth = (settings.oauth_client_id, settings.oauth_client_secret)
    if any(oauth) and not all((*oauth, settings.public_url)):
        raise SettingsError(
            "To log in with GitHub takes PATCHWRIGHT_OAUTH_CLIENT_ID, PATCHWRIGHT_OAUTH_CLIENT_SECRET and "
            "PATCHWRIGHT_PUBLIC_URL: set all three."
        )
    if not any(oauth) and settings.operator_token is None:
        return None
    return Beyond(settings, url, secrets, deliveries)
