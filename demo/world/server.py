"""One HTTP server on loopback for API and git, with faults to order."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

import uvicorn

from demo.world.api import Api
from demo.world.asgi import Message, Receive, Send, fields, nowhere, respond, whole_body
from demo.world.call import Request
from demo.world.git import GitServer

API, GRAPHQL = "/api/v3", "/api/graphql"  # where a GitHub Enterprise server has them


@dataclass(frozen=True)
class Fault:
    """What goes wrong with the next request of this method whose path ends so."""

    method: str
    path_end: str
    kind: Literal["lost request", "lost response", "refused"]
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)


class Listening(uvicorn.Server):
    """Leaves Ctrl-C to the program around it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """Serves while entered."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.clients: set[tuple[str, int]] = set()
        """Address and port of everybody who has connected."""
        # With its protocol named: asyncio sets TCP_NODELAY on no other, and each answer would wait 40 ms.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            self._serve, interface="asgi3", lifespan="off", ws="none", http="h11", log_config=None,
            access_log=False, proxy_headers=False, timeout_graceful_shutdown=2, timeout_keep_alive=60,
        )  # fmt: skip
        self._uvicorn = Listening(config)
        self._running: asyncio.Task[None] | None = None
        self.attached: dict[str, tuple[int, dict[str, str], bytes]] = {}
        """What lies behind the addresses of attachments: path to status, headers and body."""
        self.asked_for: list[tuple[str, str | None]] = []
        """Attachments that were asked for, each with the authorization that came along."""
        self.api: Api
        self.git: GitServer

    async def start(self) -> None:
        self._running = asyncio.create_task(self._uvicorn.serve(sockets=[self._socket]))
        while not self._uvicorn.started:
            if self._running.done():
                self._running.result()
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        self._uvicorn.should_exit = True
        if self._running is not None:
            await self._running

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        self.clients.add(tuple(scope["client"]))
        match self._fault(scope["method"], scope["path"]):
            case Fault(kind="lost request"):
                await self._hang_up(scope)
            case Fault(kind="lost response"):
                await self._dispatch(scope, receive, nowhere)
                await self._hang_up(scope)
            case Fault(status=status, headers=headers):
                body = json.dumps({"message": "refused to order", "status": str(status)}).encode()
                await respond(send, status, {"content-type": "application/json", **headers}, body)
            case None:
                await self._dispatch(scope, receive, send)

    async def _dispatch(self, scope: Message, receive: Receive, send: Send) -> None:
        path = urlsplit(scope["raw_path"].decode()).path
        if path.startswith(f"{API}/") or path == GRAPHQL:
            headers = fields(scope)
            request = Request(
                scope["method"],
                path.removeprefix(API) if path != GRAPHQL else "/graphql",
                dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True)),
                headers.get("authorization"),
                headers.get("accept", ""),
                await whole_body(receive),
            )
            await respond(send, *await self.api.respond(request))
            return
        if path in self.attached:
            self.asked_for.append((path, fields(scope).get("authorization")))
            await respond(send, *self.attached[path])
            return
        await self.git(scope, receive, send)

    def _fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.method == method and path.endswith(fault.path_end):
                self.faults.remove(fault)
                return fault
        return None

    async def _hang_up(self, scope: Message) -> None:
        """Cuts the connection without a byte: ASGI has no word for it."""
        for connection in list(self._uvicorn.server_state.connections):
            if getattr(connection, "client", None) == tuple(scope["client"]):
                connection.transport.abort()
        await asyncio.sleep(0)  # the server must see that it is gone, else it answers 500
