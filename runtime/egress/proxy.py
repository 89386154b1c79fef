"""The egress proxy: on the host, one for each sandbox that is online, behind a Unix socket of that sandbox.

It speaks HTTP: CONNECT for TLS, absolute GET for plain reading. It resolves names itself and dials the address
that it has looked at, so that a name cannot lead elsewhere the second time. All that a sandbox sends it is
bounded: bytes of a head, connections, seconds without a byte, and bytes in all.
"""

import asyncio
import contextlib
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from runtime.egress.egress import PLAIN, Address, Ledger, Origin, Policy, Refused, Upstream, name_in_handshake
from runtime.egress.sni import MOST, NotTls, server_name
from runtime.forward import CHUNK, CONNECTIONS, Stream

log = logging.getLogger(__name__)

HEAD = 16_384  # bytes of a request's line and headers
PATIENCE = 20.0  # seconds for a request's head, a ClientHello, a name, and each address that is dialled
IDLE = 120.0  # seconds without a byte in either direction
PENALTY = 0.1  # seconds until a refusal is said: else a sandbox could keep its host busy by asking
TOTAL = 1800.0  # seconds of one connection; no command lasts longer
PIECES = 64  # in which a ClientHello may come; each is read again with all before it, for 4 ms at worst
ADDRESSES = 3  # of one name, that are tried one after the other

Resolve = Callable[[str, int], Awaitable[list[str]]]
Dial = Callable[[str, int], Awaitable[Stream]]


@dataclass(frozen=True)
class _Request:
    method: str
    host: str
    port: int
    target: str
    """Path and query of a plain request."""
    headers: tuple[tuple[str, str], ...]
    led: Origin | None = None
    """Nobody asked: all connections to this socket lead there, and are told nothing but what it says."""

    @property
    def plain(self) -> bool:
        return self.method != "CONNECT"


class _Malformed(Exception):
    """What came is no request to a proxy."""


@dataclass(frozen=True)
class Egress:
    """How sandboxes that are online get out."""

    policy: Policy
    upstream: Upstream | None = None
    resolve: Resolve | None = None
    """How a name becomes addresses; None: the host's resolver."""
    dial: Dial | None = None
    """How an address becomes a connection; None: TCP."""
    connections: int = CONNECTIONS
    """At a time, of one sandbox."""
    patience: float = PATIENCE
    idle: float = IDLE


class Proxy:
    """Answers the connections of one sandbox."""

    def __init__(self, egress: Egress) -> None:
        self.ledger = Ledger()
        self._policy = egress.policy
        self._upstream = egress.upstream
        self._resolve = egress.resolve or self._look_up
        self._dial = egress.dial or _dial
        self._limits = egress
        self._open = 0
        # Threads of its own: a name server that never answers must not take those that the engine needs.
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="egress")

    @asynccontextmanager
    async def listening(self, path: Path, origin: Origin | None = None) -> AsyncIterator[Ledger]:
        """Answer on a Unix socket, whose directory decides who gets as far as here.

        `origin`: where all connections lead, without asking.
        """
        served: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A task of its own: Python 3.11 complains aloud of a callback of a server that is cancelled.
            task = asyncio.ensure_future(self.serve((reader, writer), origin=origin))
            served.add(task)
            try:
                await asyncio.wait([task])
                if not task.cancelled():
                    task.result()
            finally:
                served.discard(task)
                writer.close()

        server = await asyncio.start_unix_server(serve, path, limit=HEAD)
        os.chmod(path, 0o666)  # noqa: S103
        try:
            yield self.ledger
        finally:
            server.close()
            for task in (ending := tuple(served)):
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
            self.close()
            path.unlink(missing_ok=True)  # noqa: ASYNC240  # one entry of a directory of ours

    def close(self) -> None:
        """Let go of its threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def serve(self, near: Stream, first: bytes = b"", origin: Origin | None = None) -> None:
        """Answer one connection, of which `first` was read already."""
        if self._open >= self._limits.connections:
            with contextlib.suppress(OSError):
                await _say(near, 503, "too many connections at a time")
            return
        self._open += 1
        try:
            async with asyncio.timeout(TOTAL):
                await self._answer(near, first, origin)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # one side has gone, or says nothing
        except (_Malformed, asyncio.LimitOverrunError):
            with contextlib.suppress(OSError):
                await asyncio.sleep(PENALTY)
                await _say(near, 400, "not a request that this proxy understands")
        finally:
            self._open -= 1

    async def _answer(self, near: Stream, first: bytes, origin: Origin | None) -> None:
        if origin is not None:
            request = _Request("CONNECT", origin.host, origin.port, "", (), led=origin)
        else:
            async with asyncio.timeout(self._limits.patience):
                request = _parse(first + await near[0].readuntil(b"\r\n\r\n"))
        try:
            far = await self._reach(request)
        except Refused as refused:
            self._refuse(request, refused)
            await asyncio.sleep(PENALTY)
            if origin is None:
                status = 502 if refused.why in ("unknown", "unreachable") else 403
                await _say(near, status, f"{request.host}: {refused}")
            return
        try:
            await self._carry(request, near, far)
        except Refused as refused:
            self._refuse(request, refused)
            far[1].close()
            await asyncio.sleep(PENALTY)
        finally:
            far[1].close()

    def _refuse(self, request: _Request, refused: Refused) -> None:
        if self.ledger.note(
            request.host, request.port, refused.why, times=1
        ):  # a line each would fill a disk
            log.info("egress refused", extra={"host": request.host, "port": request.port, "why": refused.why})

    # --- reaching -----------------------------------------------------------------------------------------------

    async def _reach(self, request: _Request) -> Stream:
        """A connection to the host that is asked for. Raises Refused."""
        host, port = request.host, request.port
        self._policy.admit(host, port, request.plain)
        if request.plain and (
            request.method not in ("GET", "HEAD")
            or any(
                name == "transfer-encoding" or (name == "content-length" and value != "0")
                for name, value in request.headers
            )
        ):
            raise Refused("method")
        if self.ledger.sent >= self._policy.upload:
            raise Refused("upload")
        self.ledger.sent += len(host)  # whoever answers for the name hears it
        addresses = await self._addresses(host, port)
        if self._upstream is not None and not ((host, port) in self._policy.trusted and addresses):
            return await self._through(self._upstream, request)
        for address in addresses[:ADDRESSES]:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._limits.patience):
                    return await self._dial(str(address), port)
        raise Refused("unreachable")

    async def _addresses(self, host: str, port: int) -> list[Address]:
        try:
            async with asyncio.timeout(self._limits.patience):
                found = await self._resolve(host, port)
        except (OSError, TimeoutError, UnicodeError) as error:
            if self._upstream is not None:
                return []  # networks behind a proxy often resolve no foreign names; the proxy does
            raise Refused("unknown") from error
        return self._policy.pin(host, port, found)

    async def _look_up(self, host: str, port: int) -> list[str]:
        def look_up() -> list[str]:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return [str(address[0]) for *_, address in found]

        return await asyncio.get_running_loop().run_in_executor(self._threads, look_up)

    async def _through(self, upstream: Upstream, request: _Request) -> Stream:
        """The same by way of the operator's own proxy. A plain request is sent to it as it stands."""
        try:
            async with asyncio.timeout(self._limits.patience):
                far = await self._dial(upstream.host, upstream.port)
                if request.plain:
                    return far
                try:
                    await self._introduce(upstream, request, far)
                except BaseException:
                    far[1].close()
                    raise
                return far
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise Refused("unreachable") from error

    async def _introduce(self, upstream: Upstream, request: _Request, far: Stream) -> None:
        name = f"{request.host}:{request.port}"
        lines = [f"CONNECT {name} HTTP/1.1", f"Host: {name}", *_authorized(upstream), "", ""]
        far[1].write("\r\n".join(lines).encode())
        if (await far[0].readuntil(b"\r\n\r\n")).split(b" ", 2)[1:2] != [b"200"]:
            raise Refused("unreachable")

    # --- carrying -----------------------------------------------------------------------------------------------

    async def _carry(self, request: _Request, near: Stream, far: Stream) -> None:
        """Bytes both ways, counted as they go. Raises Refused."""
        self.ledger.note(request.host, request.port, None, times=1)
        if request.plain:
            self._send(request, far[1], self._rewritten(request))
        elif request.led is None or request.led.tls:
            if request.led is None:
                near[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await near[1].drain()
            self._send(request, far[1], await self._hello(near[0], request.host))
        async with asyncio.timeout(self._limits.idle) as idle:
            ways = [asyncio.create_task(self._receive(request, far[0], near[1], idle))]
            if not request.plain:  # else all was sent, and nothing more of this connection is looked at
                ways.append(asyncio.create_task(self._forward(request, near[0], far[1], idle)))
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                for way in ways:
                    way.cancel()
                ends = await asyncio.gather(*ways, return_exceptions=True)
        for end in ends:
            if isinstance(end, Refused | OSError):
                raise end

    async def _hello(self, near: asyncio.StreamReader, host: str) -> bytes:
        """The beginning of a TLS connection, which names this host. Raises Refused."""
        data = b""
        try:
            async with asyncio.timeout(self._limits.patience):
                pieces = 0
                while (name := server_name(data)) is None:
                    more, pieces = await near.read(MOST), pieces + 1
                    if not more and not data:
                        raise ConnectionAbortedError(
                            "hung up without a word"
                        )  # as pools do with what they spare
                    data += more
                    if not more or len(data) > 2 * MOST or pieces > PIECES:
                        raise NotTls
        except NotTls as error:
            raise Refused("sni") from error
        if name != name_in_handshake(host):
            raise Refused("sni")
        return data

    async def _forward(
        self,
        request: _Request,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        idle: asyncio.Timeout,
    ) -> None:
        while data := await source.read(CHUNK):
            self._postpone(idle)
            self._send(request, target, data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()

    async def _receive(
        self,
        request: _Request,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        idle: asyncio.Timeout,
    ) -> None:
        while data := await source.read(CHUNK):
            self._postpone(idle)
            self.ledger.note(request.host, request.port, None, received=len(data))
            target.write(data)
            await target.drain()
        target.close()  # what the server has ended, the client cannot go on with

    def _postpone(self, idle: asyncio.Timeout) -> None:
        if not idle.expired():
            idle.reschedule(asyncio.get_running_loop().time() + self._limits.idle)

    def _send(self, request: _Request, target: asyncio.StreamWriter, data: bytes) -> None:
        if self.ledger.sent + len(data) > self._policy.upload:
            raise Refused("upload")
        self.ledger.note(request.host, request.port, None, sent=len(data))
        target.write(data)

    def _rewritten(self, request: _Request) -> bytes:
        """A plain request as we send it: nothing of it that speaks of the connection, and never a second one."""
        dropped = {"host", "connection", "keep-alive", "te", "trailer", "upgrade", "expect", "content-length"}
        named = (value for name, value in request.headers if name == "connection")
        dropped |= {each.strip().lower() for value in named for each in value.split(",")}
        host = request.host if request.port == PLAIN else f"{request.host}:{request.port}"
        target, extra = request.target, list[str]()
        if self._upstream is not None:
            target, extra = f"http://{host}{request.target}", _authorized(self._upstream)
        kept = [
            f"{name}: {value}"
            for name, value in request.headers
            if name not in dropped and not name.startswith("proxy-")
        ]
        lines = [f"{request.method} {target} HTTP/1.1", f"Host: {host}", "Connection: close", *extra, *kept]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


# --- words of the protocol --------------------------------------------------------------------------------------

_LINE = re.compile(r"([A-Z]{3,10}) ([!-~]{1,8192}) HTTP/1\.[01]")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\t\x80-\xff]*)")


def _parse(head: bytes) -> _Request:
    """Raises _Malformed."""
    first, *rest = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    line = _LINE.fullmatch(first) or _fail()
    headers = [_HEADER.fullmatch(each) or _fail() for each in rest]
    method, target = line[1], line[2]
    try:
        if method == "CONNECT":
            parts, path = urlsplit(f"//{target}"), ""
            whole = parts.port is not None and not parts.path and not parts.query and not parts.fragment
        else:
            parts = urlsplit(target)
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            whole = parts.scheme == "http"
        port = parts.port or PLAIN
    except ValueError as error:
        raise _Malformed from error
    if not whole or not parts.hostname or "@" in parts.netloc:
        _fail()
    return _Request(
        method=method,
        host=parts.hostname.rstrip(".")[:253],
        port=port,
        target=path,
        headers=tuple((each[1].lower(), each[2].strip()) for each in headers),
    )


def _fail() -> NoReturn:
    raise _Malformed


async def _dial(address: str, port: int) -> Stream:
    return await asyncio.open_connection(address, port, limit=HEAD)


async def _say(near: Stream, status: int, why: str) -> None:
    # The reason goes into the first line too: many clients show nothing else.
    why = re.sub("[^ -~]", "?", why)
    near[1].write(
        f"HTTP/1.1 {status} {why}\r\nContent-Type: text/plain\r\nContent-Length: {len(why) + 1}\r\n"
        f"Connection: close\r\n\r\n{why}\n".encode()
    )
    await near[1].drain()


def _authorized(upstream: Upstream) -> list[str]:
    return [f"Proxy-Authorization: {upstream.authorization}"] if upstream.authorization else []
