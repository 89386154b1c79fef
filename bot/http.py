"""An ASGI application on a socket, for senders that cannot be trusted to send."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from resolver.errors import SettingsError

HEAD_SECONDS = 10.0
GRACE_SECONDS = 5  # for answers under way when it stops


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that takes connections; port 0: a free one. Raises SettingsError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as exc:
        raise SettingsError(f"Cannot listen on {host} port {port} ({exc}): see --host and --port.") from exc
    with made:
        yield made


def url_of(made: socket.socket) -> str:
    """How a client on this machine names the socket."""
    host, port = made.getsockname()[:2]
    return f"http://[{host}]:{port}" if ipaddress.ip_address(host).version == 6 else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Serves one application on one socket until `should_exit`."""

    def __init__(self, app: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_Protocol,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # they are the process's own


class _Protocol(HttpToolsProtocol):
    """uvicorn waits for the head of a first request for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(HEAD_SECONDS, self._hang_up_if_silent)

    def _hang_up_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()
