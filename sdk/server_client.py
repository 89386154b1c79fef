"""Sends requests to a Patchwright server: the part that remote workspaces and conversations share."""

import asyncio
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from patchwright.resolver.errors import ResolverError
from patchwright.sdk.environment import ca_bundle

if TYPE_CHECKING:
    import httpx

REQUEST_TIMEOUT = 60.0  # seconds
RETRIES = 5
RETRY_SECONDS = 0.5  # before the first retry; doubles with each one
SAFE_METHODS = frozenset({"GET", "PUT", "DELETE"})
"""Methods whose requests can be repeated without another effect."""


class ServerError(ResolverError):
    """The server rejected a request, or cannot be reached."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status; None if the server did not answer."""


class ServerClient:
    """A connection to one server."""

    def __init__(
        self,
        host: str,
        api_key: str | None,
        *,
        retries: int = RETRIES,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        """`transport` replaces the network, for a server in the same process."""
        if "://" not in host:
            host = f"http://{host}"
        self.url = host.rstrip("/")
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._retries = retries
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    async def request(
        self, method: str, *path: str, retry: bool | None = None, **options: Any
    ) -> "httpx.Response":
        """Sends a request. If the connection fails, repeats it if that is safe (`retry` overrides this).

        Raises ServerError with the server's own sentence.
        """
        import httpx

        if self._client is None:
            context = ssl.create_default_context(cafile=ca_bundle())
            self._client = httpx.AsyncClient(
                headers=self._headers, timeout=REQUEST_TIMEOUT, verify=context, transport=self._transport
            )
        url = "/".join((self.url, *(quote(part, safe="") for part in path)))
        may_repeat = method in SAFE_METHODS if retry is None else retry
        for attempt in range(self._retries + 1):
            try:
                response = await self._client.request(method, url, **options)
                break
            except httpx.TransportError as exc:
                is_refused = isinstance(exc, httpx.ConnectError)
                if attempt == self._retries or not (may_repeat or is_refused):
                    raise ServerError(
                        f"The server {self.url} does not answer: {exc or type(exc).__name__}."
                    ) from exc
                await asyncio.sleep(RETRY_SECONDS * 2**attempt)
        if response.is_success:
            return response
        raise ServerError(_describe(response), response.status_code)

    def connect_websocket(self, *path: str, query: str = "") -> Any:
        """Returns a context manager that connects to a WebSocket of the server."""
        from websockets.asyncio.client import connect

        address = self.url.replace("http", "ws", 1)
        url = "/".join((address, *(quote(part, safe="") for part in path))) + query
        return connect(url, additional_headers=self._headers, max_size=None, open_timeout=REQUEST_TIMEOUT)

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()


def _describe(response: "httpx.Response") -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"The server answered with status {response.status_code}."
