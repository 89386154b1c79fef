"""The HTTP server of the fake GitHub, for the API and git. Tests can make single requests fail."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from patchwright.demo.asgi import (
    AsgiMessage,
    ClientDisconnected,
    Receive,
    Send,
    discard,
    read_body,
    read_headers,
    respond,
)
from patchwright.demo.github.app_registration import AppRegistration
from patchwright.demo.github.git_server import GitServer
from patchwright.demo.github.oauth import OAuth
from patchwright.demo.github.request_context import RestRequest
from patchwright.demo.github.rest_api import RestApi
from patchwright.demo.loopback_server import LoopbackServer

API_PATH, GRAPHQL_PATH = "/api/v3", "/api/graphql"  # the same paths as on GitHub Enterprise Server

WriteObserver: TypeAlias = Callable[[str, Literal["before", "after"]], bool]
"""A function that is called twice for each write request. The first call, just before the request is handled,
gets the path and "before". The second call, just before the response is sent, gets the path and "after".

If the function returns True, the server drops the connection at that point.
"""


@dataclass(frozen=True)
class RequestFault:
    """A fault to simulate once: in the next request that has this method, and whose path ends with `path_end`."""

    method: str
    path_end: str
    kind: Literal["lost request", "lost response", "refused", "preceded"]
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: Mapping[str, object] = field(default_factory=lambda: {"message": "refused to order"})
    action: Callable[[], object] = lambda: None
    """Set only if `kind` is "preceded": a function that is called just before the request is handled."""


class FakeGitHubServer:
    """The HTTP server of the fake GitHub, which runs from `start` to `stop`."""

    def __init__(self) -> None:
        self.faults: list[RequestFault] = []
        self.clients: set[tuple[str, int]] = set()
        """Address and port of every client that has connected."""
        self._server = LoopbackServer(self._serve)
        self.url = self._server.url
        self.attachments: dict[str, tuple[int, dict[str, str], bytes]] = {}
        """Responses to requests for attachments: status, headers and body by path."""
        self.attachment_requests: list[tuple[str, str | None]] = []
        """Path and Authorization header of each request for an attachment."""
        self.write_observer: WriteObserver | None = None
        self.api: RestApi
        self.git: GitServer
        self.oauth: OAuth
        self.apps: AppRegistration

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop()

    async def _serve(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        self.clients.add(tuple(scope["client"]))
        with contextlib.suppress(ClientDisconnected):
            await self._handle(scope, receive, send)

    async def _handle(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        match self._take_fault(scope["method"], scope["path"]):
            case RequestFault(kind="lost request"):
                await self._server.close_connection(scope, abort=True)
            case RequestFault(kind="lost response"):
                await self._dispatch(scope, receive, discard)
                await self._server.close_connection(scope, abort=True)
            case RequestFault(kind="preceded", action=act):
                await asyncio.to_thread(act)
                await self._dispatch(scope, receive, send)
            case RequestFault(status=status, headers=headers, body=said):
                body = json.dumps({"status": str(status), **said}).encode()
                await respond(send, status, {"content-type": "application/json", **headers}, body)
            case None if self.write_observer and _is_write(scope):
                await self._dispatch_observed(self.write_observer, scope, receive, send)
            case None:
                await self._dispatch(scope, receive, send)

    async def _dispatch_observed(
        self, observer: WriteObserver, scope: AsgiMessage, receive: Receive, send: Send
    ) -> None:
        answer: list[AsgiMessage] = []

        async def hold(message: AsgiMessage) -> None:
            answer.append(message)

        lost = observer(scope["path"], "before")
        if not lost:
            await self._dispatch(scope, receive, hold)
            lost = observer(scope["path"], "after")
        if lost:
            await self._server.close_connection(scope, abort=True)
            return
        for message in answer:
            await send(message)

    async def _dispatch(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        path = urlsplit(scope["raw_path"].decode()).path
        query = dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True))
        if path in self.attachments:
            self.attachment_requests.append((path, read_headers(scope).get("authorization")))
            await respond(send, *self.attachments[path])
            return
        if path.startswith(f"{API_PATH}/") or path == GRAPHQL_PATH:
            headers = read_headers(scope)
            request = RestRequest(
                scope["method"],
                path.removeprefix(API_PATH) if path != GRAPHQL_PATH else "/graphql",
                query,
                headers.get("authorization"),
                headers.get("accept", ""),
                await read_body(receive),
                headers.get("if-none-match", ""),
            )
            await respond(send, *await self.api.respond(request))
            return
        if path.startswith("/login/oauth/"):
            accept = read_headers(scope).get("accept", "")
            body = await read_body(receive)
            await respond(send, *self.oauth.respond(scope["method"], path, query, body, accept))
            return
        if self.apps.is_app_path(path):
            await respond(send, *self.apps.respond(scope["method"], path, query, await read_body(receive)))
            return
        await self.git(scope, receive, send)

    def _take_fault(self, method: str, path: str) -> RequestFault | None:
        for fault in self.faults:
            if fault.method == method and path.endswith(fault.path_end):
                self.faults.remove(fault)
                return fault
        return None


def _is_write(scope: AsgiMessage) -> bool:
    """Returns True if the request may change something. Requests for tokens do not count."""
    reads = scope["path"].endswith(("/access_tokens", "/git-upload-pack"))
    return scope["method"] not in ("GET", "HEAD") and not reads
