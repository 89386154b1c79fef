"""A proxy for a Docker engine that forwards only the requests that `request_policy.py` allows.

Each request is rebuilt from its checked parts and sent over its own connection to the engine. Otherwise the
proxy and the engine might interpret the same bytes differently.
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

from patchwright.bot.docker_proxy.container_policy import is_own_container
from patchwright.bot.docker_proxy.request_policy import (
    Decision,
    EngineRequest,
    ObjectKind,
    can_upgrade,
    decide,
    is_streamed,
)
from patchwright.resolver.errors import SettingsError
from patchwright.runtime.egress_forwarder import relay

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 16
MAX_BODY_BYTES = 1 << 20  # maximum bytes of a request body that is checked
MAX_RESPONSE_BYTES = 8 << 20  # maximum bytes of the engine's description of one container
# seconds until a request must be complete; the files of a build may take longer
REQUEST_TIMEOUT_SECONDS = 60.0
CREDENTIAL_HEADERS = {b"x-registry-auth", b"x-registry-config"}
"""The request headers that the proxy forwards unchanged. The proxy drops the client's other headers, and adds
headers of its own.
"""


class DockerProxy:
    """Forwards allowed requests from its own Unix socket to the engine's socket."""

    def __init__(self, engine_socket: Path) -> None:
        self._engine_socket = engine_socket
        self._connections: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listen(self, socket_path: Path, group: str | int | None = None) -> AsyncIterator[None]:
        """Listens at `socket_path` inside the block. Members of `group` may connect, too.

        Raises SettingsError if the engine's socket does not exist, or the proxy cannot listen.
        """
        if not socket_path.parent.is_dir():
            raise SettingsError(
                f"the Docker proxy cannot listen at {socket_path}: there is no directory {socket_path.parent}"
            )
        if not self._engine_socket.is_socket():
            raise SettingsError(
                f"{self._engine_socket} is not a socket; set --engine to the socket of the Docker engine"
            )
        try:
            server = await asyncio.start_unix_server(self._accept, sock=_bind_socket(socket_path, group))
        except (OSError, LookupError) as exc:
            reason = getattr(exc, "strerror", None) or exc.args[0]
            raise SettingsError(f"the Docker proxy cannot listen at {socket_path}: {reason}") from exc
        try:
            async with server:
                yield
        finally:
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._handle(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _ProxyConnection(self, reader, writer).serve()
        except (OSError, TimeoutError, h11.ProtocolError, asyncio.IncompleteReadError) as exc:
            log.info("connection aborted", extra={"reason": f"{type(exc).__name__}: {exc}"[:200]})
        finally:
            writer.close()

    async def connect_engine(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self._engine_socket)

    async def find_own_id(self, kind: ObjectKind, name: str) -> str | None:
        """Returns the full ID of a container or an exec instance, or None if Patchwright did not create it.

        The proxy replaces names by full IDs, because a container's name can be given to another container
        before the request arrives.
        """
        exec_info = await self._get_json(f"/exec/{name}/json") if kind == "exec" else {}
        container = str(exec_info.get("ContainerID", "")) if kind == "exec" else name
        found = await self._get_json(f"/containers/{container}/json") if container else {}
        config = found.get("Config")
        if not isinstance(config, dict) or not is_own_container(config.get("Labels")):
            return None
        full_id = str(exec_info.get("ID") if kind == "exec" else found.get("Id"))
        return full_id if re.fullmatch("[0-9a-f]{64}", full_id) else None

    async def _get_json(self, path: str) -> dict[str, object]:
        reader, writer = await self.connect_engine()
        try:
            engine = h11.Connection(h11.CLIENT)
            request = h11.Request(
                method="GET", target=path, headers=[("Host", "engine"), ("Connection", "close")]
            )
            writer.write(engine.send(request) or b"")
            writer.write(engine.send(h11.EndOfMessage()) or b"")
            body, status = b"", 0
            while not isinstance(event := await _next_event(engine, reader), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += event.data
                    if len(body) > MAX_RESPONSE_BYTES:
                        return {}
                elif isinstance(event, h11.ConnectionClosed):
                    return {}
        finally:
            writer.close()
        parsed = json.loads(body) if status == HTTPStatus.OK else {}
        return parsed if isinstance(parsed, dict) else {}


def _bind_socket(socket_path: Path, group: str | int | None) -> socket.socket:
    """Binds a Unix socket. If a killed proxy left a socket file behind, replaces this file. Raises SettingsError if
    there is another file.
    """
    if socket_path.exists() and not socket_path.is_socket():
        raise SettingsError(f"{socket_path} is not a socket; set --listen to the path of a new socket")
    socket_path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX)
    try:
        old_umask = os.umask(0o177)  # nobody else may connect before the group is set
        try:
            bound.bind(str(socket_path))
        finally:
            os.umask(old_umask)
        if group is not None:
            shutil.chown(socket_path, group=group)
            socket_path.chmod(0o660)
    except (OSError, LookupError):
        bound.close()
        raise
    return bound


async def _next_event(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    """Returns the next HTTP event. Reads from the connection until the event is complete."""
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(CHUNK_BYTES))
    return event


def _request_headers(request: EngineRequest, *, upgrade: bool) -> list[tuple[bytes, bytes]]:
    """Returns the headers for the engine. They are built from the checked request; the client's headers are
    not copied.
    """
    connection = (
        [(b"Connection", b"Upgrade"), (b"Upgrade", b"tcp")] if upgrade else [(b"Connection", b"close")]
    )
    head = [(b"Host", b"engine"), *connection]
    if is_streamed(request):
        return [*head, (b"Content-Type", b"application/x-tar"), (b"Transfer-Encoding", b"chunked")]
    kind = [(b"Content-Type", b"application/json")] if request.body else []
    return [*head, *kind, (b"Content-Length", b"%d" % len(request.body))]


class _ProxyConnection:
    """One connection, which carries one request and its response."""

    def __init__(
        self, proxy: DockerProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._client = h11.Connection(h11.SERVER, max_incomplete_event_size=CHUNK_BYTES)

    async def serve(self) -> None:
        async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
            request = await _next_event(self._client, self._reader)
        if not isinstance(request, h11.Request):
            return
        engine_request = EngineRequest(request.method.decode(), request.target.decode())
        if not is_streamed(engine_request):
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                body = await self._read_body()
            if body is None:
                await self._reject(engine_request, Decision("the body is too large"))
                return
            engine_request = engine_request._replace(body=body)
        decision = decide(engine_request)
        if decision.rejection:
            await self._reject(engine_request, decision)
        elif (
            object_id := await self._proxy.find_own_id(*decision.owned_object)
            if decision.owned_object
            else ""
        ) is None:
            await self._respond(HTTPStatus.NOT_FOUND, "No such Patchwright container")
        else:
            await self._forward(request, decision.build_request(object_id))

    async def _read_body(self) -> bytes | None:
        body = b""
        while isinstance(event := await _next_event(self._client, self._reader), h11.Data):
            body += event.data
            if len(body) > MAX_BODY_BYTES:
                return None
        return body if isinstance(event, h11.EndOfMessage) else None

    async def _reject(self, request: EngineRequest, decision: Decision) -> None:
        log.warning(
            "request rejected",
            extra={"requested": f"{request.method} {request.target[:200]}", "reason": decision.rejection},
        )
        await self._respond(
            HTTPStatus.FORBIDDEN, f"the Docker proxy rejected this request: {decision.rejection}"
        )

    async def _respond(self, status: HTTPStatus, message: str) -> None:
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
            self._writer.write(self._client.send(part) or b"")
        await self._writer.drain()

    async def _forward(self, request: h11.Request, engine_request: EngineRequest) -> None:
        reader, writer = await self._proxy.connect_engine()
        try:
            engine = h11.Connection(h11.CLIENT)
            upgrade = can_upgrade(engine_request) and any(name == b"upgrade" for name, _ in request.headers)
            head = [(name, value) for name, value in request.headers if name in CREDENTIAL_HEADERS]
            head += _request_headers(engine_request, upgrade=upgrade)
            writer.write(
                engine.send(
                    h11.Request(method=engine_request.method, target=engine_request.target, headers=head)
                )
                or b""
            )
            if is_streamed(engine_request):
                while isinstance(event := await _next_event(self._client, self._reader), h11.Data):
                    writer.write(engine.send(h11.Data(data=event.data)) or b"")
                    await writer.drain()
                if not isinstance(event, h11.EndOfMessage):
                    return
            elif engine_request.body:
                writer.write(engine.send(h11.Data(data=engine_request.body)) or b"")
            writer.write(engine.send(h11.EndOfMessage()) or b"")
            await writer.drain()
            await self._relay_response(engine, reader, writer)
        finally:
            writer.close()

    async def _relay_response(
        self, engine: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            event = await _next_event(engine, reader)
            match event:
                case h11.InformationalResponse(
                    status_code=HTTPStatus.SWITCHING_PROTOCOLS
                ):  # h11 raises an error if the client did not request it
                    self._writer.write(self._client.send(event) or b"")
                    engine_data, _ = engine.trailing_data
                    client_data, _ = self._client.trailing_data
                    self._writer.write(engine_data)
                    writer.write(client_data)
                    await relay((self._reader, self._writer), (reader, writer))
                    return
                case h11.InformationalResponse():
                    continue
                case h11.Response(headers=headers):
                    other_headers = [(name, value) for name, value in headers if name != b"connection"]
                    response = h11.Response(
                        status_code=event.status_code, headers=[*other_headers, (b"connection", b"close")]
                    )
                    self._writer.write(self._client.send(response) or b"")
                case h11.Data(data=data):
                    self._writer.write(self._client.send(h11.Data(data=data)) or b"")
                case h11.EndOfMessage():
                    self._writer.write(self._client.send(h11.EndOfMessage()) or b"")
                    await self._writer.drain()
                    return
                case _:
                    return
            await self._writer.drain()
