"""A door to a Docker engine that lets through what `rules.py` allows.

Each request gets a connection of its own to the engine and is written anew there: what the two might read
differently never arrives.
"""

import asyncio
import contextlib
import json
import logging
import os
import re
import shutil
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path

import h11

from bot.gate.confined import is_ours
from bot.gate.rules import Ask, Judgement, Kind, judge, streams, upgrades
from resolver.errors import SettingsError
from runtime.forward import join

log = logging.getLogger(__name__)

PIECE = 1 << 16  # bytes
MOST_BODY = 1 << 20  # bytes of a body that is judged
MOST_ANSWER = 8 << 20  # bytes of what the engine says of one container
SECONDS = 60.0  # for a request to be there whole, a build's files excepted
CREDENTIALS = {b"x-registry-auth", b"x-registry-config"}
"""What of a request's head the engine gets to read as it came."""


class Gate:
    """Answers on one Unix socket what it may ask at another."""

    def __init__(self, engine: Path) -> None:
        self._engine = engine
        self._visits: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self, place: Path, group: str | int | None = None) -> AsyncIterator[None]:
        """Answer at `place` inside the block; those in `group` may connect as well. Raises SettingsError."""
        if not self._engine.is_socket():
            raise SettingsError(f"{self._engine} is no socket: name that of the Docker engine (--engine)")
        try:
            server = await asyncio.start_unix_server(self._welcome, sock=_bound(place, group))
        except (OSError, LookupError) as exc:
            raise SettingsError(f"the gate cannot listen at {place}: {exc}") from exc
        try:
            async with server:
                yield
        finally:
            for visit in self._visits:
                visit.cancel()
            await asyncio.gather(*self._visits, return_exceptions=True)

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.create_task(self._meet(reader, writer))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _Visit(self, reader, writer).serve()
        except (OSError, TimeoutError, h11.ProtocolError, asyncio.IncompleteReadError) as exc:
            log.info("a connection ended early", extra={"reason": f"{type(exc).__name__}: {exc}"[:200]})
        finally:
            writer.close()

    async def engine(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self._engine)

    async def ours(self, kind: Kind, name: str) -> str | None:
        """The full id of this, which stays its own whatever is renamed. None: it is none of ours."""
        program = await self._look(f"/exec/{name}/json") if kind == "exec" else {}
        container = str(program.get("ContainerID", "")) if kind == "exec" else name
        found = await self._look(f"/containers/{container}/json") if container else {}
        config = found.get("Config")
        if not isinstance(config, dict) or not is_ours(config.get("Labels")):
            return None
        full = str(program.get("ID") if kind == "exec" else found.get("Id"))
        return full if re.fullmatch("[0-9a-f]{64}", full) else None

    async def _look(self, path: str) -> dict[str, object]:
        reader, writer = await self.engine()
        try:
            far = h11.Connection(h11.CLIENT)
            asked = h11.Request(
                method="GET", target=path, headers=[("Host", "engine"), ("Connection", "close")]
            )
            writer.write(far.send(asked) or b"")
            writer.write(far.send(h11.EndOfMessage()) or b"")
            found, status = b"", 0
            while not isinstance(event := await _next(far, reader), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    found += event.data
                    if len(found) > MOST_ANSWER:
                        return {}
                elif isinstance(event, h11.ConnectionClosed):
                    return {}
        finally:
            writer.close()
        said = json.loads(found) if status == HTTPStatus.OK else {}
        return said if isinstance(said, dict) else {}


def _bound(place: Path, group: str | int | None) -> socket.socket:
    """A socket at `place`, in place of one that a killed gate has left there."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX)
    try:
        before = os.umask(0o177)  # until its group is set, nobody else may connect
        try:
            made.bind(str(place))
        finally:
            os.umask(before)
        if group is not None:
            shutil.chown(place, group=group)
            place.chmod(0o660)
    except (OSError, LookupError):
        made.close()
        raise
    return made


async def _next(end: h11.Connection, reader: asyncio.StreamReader) -> object:
    """The next event at this end, but for what says nothing yet."""
    while (event := end.next_event()) is h11.NEED_DATA:
        end.receive_data(await reader.read(PIECE))
    return event


def _head(ask: Ask, *, upgrade: bool) -> list[tuple[bytes, bytes]]:
    """What the engine is told of a request, by what was judged and not by what its sender says of it."""
    ending = [(b"Connection", b"Upgrade"), (b"Upgrade", b"tcp")] if upgrade else [(b"Connection", b"close")]
    head = [(b"Host", b"engine"), *ending]
    if streams(ask):
        return [*head, (b"Content-Type", b"application/x-tar"), (b"Transfer-Encoding", b"chunked")]
    kind = [(b"Content-Type", b"application/json")] if ask.body else []
    return [*head, *kind, (b"Content-Length", b"%d" % len(ask.body))]


class _Visit:
    """One connection: one request, and its answer."""

    def __init__(self, gate: Gate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._gate = gate
        self._reader = reader
        self._writer = writer
        self._near = h11.Connection(h11.SERVER, max_incomplete_event_size=PIECE)

    async def serve(self) -> None:
        async with asyncio.timeout(SECONDS):
            request = await _next(self._near, self._reader)
        if not isinstance(request, h11.Request):
            return
        ask = Ask(request.method.decode(), request.target.decode())
        if not streams(ask):
            async with asyncio.timeout(SECONDS):
                body = await self._body()
            if body is None:
                await self._refuse(ask, Judgement("the body is too large"))
                return
            ask = ask._replace(body=body)
        judgement = judge(ask)
        if judgement.refusal:
            await self._refuse(ask, judgement)
        elif (owned := await self._gate.ours(*judgement.owned) if judgement.owned else "") is None:
            await self._say(HTTPStatus.NOT_FOUND, "Patchwright has no such container here")
        else:
            await self._pass_on(request, judgement.order(owned))

    async def _body(self) -> bytes | None:
        body = b""
        while isinstance(event := await _next(self._near, self._reader), h11.Data):
            body += event.data
            if len(body) > MOST_BODY:
                return None
        return body if isinstance(event, h11.EndOfMessage) else None

    async def _refuse(self, ask: Ask, judgement: Judgement) -> None:
        log.warning(
            "refused", extra={"asked": f"{ask.method} {ask.target[:200]}", "reason": judgement.refusal}
        )
        await self._say(HTTPStatus.FORBIDDEN, f"the gate refuses: {judgement.refusal}")

    async def _say(self, status: HTTPStatus, message: str) -> None:
        body = json.dumps({"message": message}).encode()
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        for part in (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self._writer.write(self._near.send(part) or b"")
        await self._writer.drain()

    async def _pass_on(self, request: h11.Request, ask: Ask) -> None:
        reader, writer = await self._gate.engine()
        try:
            far = h11.Connection(h11.CLIENT)
            upgrade = upgrades(ask) and any(name == b"upgrade" for name, _ in request.headers)
            head = [(name, value) for name, value in request.headers if name in CREDENTIALS]
            head += _head(ask, upgrade=upgrade)
            writer.write(far.send(h11.Request(method=ask.method, target=ask.target, headers=head)) or b"")
            if streams(ask):
                while isinstance(event := await _next(self._near, self._reader), h11.Data):
                    writer.write(far.send(h11.Data(data=event.data)) or b"")
                    await writer.drain()
                if not isinstance(event, h11.EndOfMessage):
                    return
            elif ask.body:
                writer.write(far.send(h11.Data(data=ask.body)) or b"")
            writer.write(far.send(h11.EndOfMessage()) or b"")
            await writer.drain()
            await self._answer(far, reader, writer)
        finally:
            writer.close()

    async def _answer(
        self, far: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            event = await _next(far, reader)
            match event:
                case h11.InformationalResponse(
                    status_code=HTTPStatus.SWITCHING_PROTOCOLS
                ):  # h11: if asked for
                    self._writer.write(self._near.send(event) or b"")
                    first, _ = far.trailing_data
                    early, _ = self._near.trailing_data
                    self._writer.write(first)
                    writer.write(early)
                    await join((self._reader, self._writer), (reader, writer))
                    return
                case h11.InformationalResponse():
                    continue
                case h11.Response(headers=headers):
                    plain = [(name, value) for name, value in headers if name != b"connection"]
                    answer = h11.Response(
                        status_code=event.status_code, headers=[*plain, (b"connection", b"close")]
                    )
                    self._writer.write(self._near.send(answer) or b"")
                case h11.Data(data=data):
                    self._writer.write(self._near.send(h11.Data(data=data)) or b"")
                case h11.EndOfMessage():
                    self._writer.write(self._near.send(h11.EndOfMessage()) or b"")
                    await self._writer.drain()
                    return
                case _:
                    return
            await self._writer.drain()
