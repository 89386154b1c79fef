"""One HTTP server on loopback for API and git, with faults to order."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from demo.loopback import Loopback
from demo.world.api import Api
from demo.world.apps import AppPages
from demo.world.asgi import HungUp, Message, Receive, Send, fields, nowhere, respond, whole_body
from demo.world.call import Request
from demo.world.git import GitServer
from demo.world.oauth import OAuth

API, GRAPHQL = "/api/v3", "/api/graphql"  # where a GitHub Enterprise server has them

Witness: TypeAlias = Callable[[str, Literal["before", "after"]], bool]
"""Hears the path of what is to change something, before it is done, and when it is done and not yet answered.

What it answers True to goes no further: the connection drops.
"""


@dataclass(frozen=True)
class Fault:
    """What goes wrong with the next request of this method whose path ends so."""

    method: str
    path_end: str
    kind: Literal["lost request", "lost response", "refused", "preceded"]
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: Mapping[str, object] = field(default_factory=lambda: {"message": "refused to order"})
    act: Callable[[], object] = lambda: None
    """What happens just before it, when it is preceded."""


class Server:
    """Serves while entered."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.clients: set[tuple[str, int]] = set()
        """Address and port of everybody who has connected."""
        self._loopback = Loopback(self._serve)
        self.url = self._loopback.url
        self.attached: dict[str, tuple[int, dict[str, str], bytes]] = {}
        """What lies behind the addresses of attachments: path to status, headers and body."""
        self.asked_for: list[tuple[str, str | None]] = []
        """Attachments that were asked for, each with the authorization that came along."""
        self.witness: Witness | None = None
        self.api: Api
        self.git: GitServer
        self.oauth: OAuth
        self.apps: AppPages

    async def start(self) -> None:
        await self._loopback.start()

    async def stop(self) -> None:
        await self._loopback.stop()

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        self.clients.add(tuple(scope["client"]))
        with contextlib.suppress(HungUp):
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        match self._fault(scope["method"], scope["path"]):
            case Fault(kind="lost request"):
                await self._loopback.hang_up(scope, at_once=True)
            case Fault(kind="lost response"):
                await self._dispatch(scope, receive, nowhere)
                await self._loopback.hang_up(scope, at_once=True)
            case Fault(kind="preceded", act=act):
                await asyncio.to_thread(act)
                await self._dispatch(scope, receive, send)
            case Fault(status=status, headers=headers, body=said):
                body = json.dumps({"status": str(status), **said}).encode()
                await respond(send, status, {"content-type": "application/json", **headers}, body)
            case None if self.witness and _changes_something(scope):
                await self._witnessed(self.witness, scope, receive, send)
            case None:
                await self._dispatch(scope, receive, send)

    async def _witnessed(self, witness: Witness, scope: Message, receive: Receive, send: Send) -> None:
        answer: list[Message] = []

        async def hold(message: Message) -> None:
            answer.append(message)

        lost = witness(scope["path"], "before")
        if not lost:
            await self._dispatch(scope, receive, hold)
            lost = witness(scope["path"], "after")
        if lost:
            await self._loopback.hang_up(scope, at_once=True)
            return
        for message in answer:
            await send(message)

    async def _dispatch(self, scope: Message, receive: Receive, send: Send) -> None:
        path = urlsplit(scope["raw_path"].decode()).path
        query = dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True))
        if path.startswith(f"{API}/") or path == GRAPHQL:
            headers = fields(scope)
            request = Request(
                scope["method"],
                path.removeprefix(API) if path != GRAPHQL else "/graphql",
                query,
                headers.get("authorization"),
                headers.get("accept", ""),
                await whole_body(receive),
                headers.get("if-none-match", ""),
            )
            await respond(send, *await self.api.respond(request))
            return
        if path.startswith("/login/oauth/"):
            accept = fields(scope).get("accept", "")
            body = await whole_body(receive)
            await respond(send, *self.oauth.respond(scope["method"], path, query, body, accept))
            return
        if self.apps.has(path):
            await respond(send, *self.apps.respond(scope["method"], path, query, await whole_body(receive)))
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


def _changes_something(scope: Message) -> bool:
    """Not a question, nor the minting of a token."""
    reads = scope["path"].endswith(("/access_tokens", "/git-upload-pack"))
    return scope["method"] not in ("GET", "HEAD") and not reads
