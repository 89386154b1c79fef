"""Serves an ASGI application to clients that may be slow or hostile."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from patchwright.resolver.errors import SettingsError

HEADER_TIMEOUT_SECONDS = 10.0
SHUTDOWN_GRACE_SECONDS = 5  # How long the server waits for responses in progress at shutdown.


@contextlib.contextmanager
def open_listener(host: str, port: int) -> Iterator[socket.socket]:
    """Opens a listening socket; port 0 chooses a free one. Raises SettingsError if the socket cannot be
    opened.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        # Python appends the address to the error message.
        reason = reason.partition(" (while attempting")[0].removeprefix("bind(): ").rstrip(".")
        raise SettingsError(
            f"Cannot listen on {host} port {port}: {reason}. Change --host or --port."
        ) from exc
    with listener:
        yield listener


def listener_url(listener: socket.socket) -> str:
    """Returns the URL under which clients on this machine reach the socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ipaddress.ip_address(host).version == 6 else f"http://{host}:{port}"


class HttpServer(uvicorn.Server):
    """Serves one application on one socket until `should_exit` is set."""

    def __init__(self, app: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_HttpProtocol,
                lifespan="off",
                ws="websockets-sansio",
                # Otherwise, each event would be compressed anew for each watcher: twice the processor time.
                ws_per_message_deflate=False,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=SHUTDOWN_GRACE_SECONDS,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # uvicorn must not handle signals, because the process handles them itself.


class _HttpProtocol(HttpToolsProtocol):
    """Adds a timeout for the headers of a connection's first request. uvicorn alone would wait for them
    forever.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(HEADER_TIMEOUT_SECONDS, self._close_if_idle)

    def _close_if_idle(self) -> None:
        # After an upgrade, another protocol serves the connection as a WebSocket.
        is_upgraded = self.transport.get_protocol() is not self
        if self.cycle is None and not is_upgraded and not self.transport.is_closing():
            self.transport.close()
