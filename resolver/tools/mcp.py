"""Tools of MCP servers that the operator configured: as programs in the sandbox, or by HTTP.

What a server says of its tools, and what they answer, is foreign text: bounded, and information for the model.
Source: modelcontextprotocol.io/specification/2025-06-18
"""

import asyncio
import base64
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from resolver import prose
from resolver.actions import Called, CallTool
from resolver.errors import SettingsError
from resolver.llm.model import ToolSpec
from resolver.schemas import off
from resolver.settings.mcp_server import McpServer
from resolver.tools.mcp_way import Door, Outside
from resolver.tools.tool import Tool
from runtime.actions import Converse, StartStream
from runtime.observations import Failed, Heard, Picture
from runtime.sandbox import Sandbox
from runtime.text import clip

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import CallToolResult
    from mcp.types import Tool as Offered

START = 30.0  # seconds for a server to start and say what it offers
CALL = 120.0  # seconds for one call
MOST_TOOLS = 50  # of one server
MOST_TEXT = 30_000  # characters of one answer
T = TypeVar("T")
MOST_SCHEMA = 20_000  # characters of what a tool says of itself


@asynccontextmanager
async def mcp_tools(
    servers: Mapping[str, McpServer], sandbox: Sandbox, say: Callable[[str], object], outside: Outside
) -> AsyncIterator[Sequence[Tool]]:
    """The tools of all servers, as long as the context lasts. One that does not come up is told and left out.

    Raises SettingsError when the extra `mcp` is not installed.
    """
    if not servers:
        yield ()
        return
    try:
        import mcp  # noqa: F401  # late: 0.4 s
    except ImportError as exc:
        raise SettingsError(
            "MCP servers are configured, but `mcp` is not installed: pip install 'patchwright[mcp]'"
        ) from exc
    async with AsyncExitStack() as stack:
        found: list[Tool] = []
        for name, server in servers.items():
            door = await stack.enter_async_context(outside.to(server.url)) if server.url else None
            connection = _Connection(name, server, sandbox, door)
            try:
                offered = await connection.offered()
            except _Unreachable as reason:
                say(f"the MCP server {name} is left out: {reason}")
                continue
            finally:
                stack.push_async_callback(connection.close)
            wanted = [each for each in offered if server.tools is None or each.name in server.tools]
            found += [McpTool(name, each, connection) for each in wanted[:MOST_TOOLS]]
        yield tuple({tool.spec.name: tool for tool in found}.values())


class McpTool:
    """One tool of one server."""

    kind: Literal["call_tool"] = "call_tool"

    def __init__(self, server: str, offered: "Offered", connection: "_Connection") -> None:
        self._offered = offered
        self._connection = connection
        name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}_{offered.name}")[:64]
        text = clip(offered.description or offered.title or offered.name, MOST_SCHEMA)
        schema = offered.inputSchema if len(str(offered.inputSchema)) <= MOST_SCHEMA else {}
        properties, required = schema.get("properties"), schema.get("required")
        self.spec = ToolSpec(
            name=name,
            description=prose.foreign_tool(text, server),
            parameters={
                **schema,
                "type": "object",
                "properties": properties if isinstance(properties, dict) else {},
                "required": required if isinstance(required, list) else [],
            },
        )

    def parse(self, arguments: dict[str, Any]) -> CallTool:
        # A schema that is none lets everything pass: the server will say.
        if problem := off(arguments, self._offered.inputSchema):
            raise ValueError(problem)
        return CallTool(name=self.spec.name, arguments=arguments)

    async def answer(self, action: CallTool) -> Called | Failed:
        try:
            return _called(await self._connection.call(self._offered.name, action.arguments))
        except _Unreachable as reason:
            return Failed(
                reason="io", message=f"{self.spec.name} gave no answer: {reason}. Go on without it."
            )


class _Unreachable(Exception):
    """A server that cannot be talked to; says why."""


class _Connection:
    """A session with one server, opened when it is first used, and again after it was lost.

    It lives in a task of its own: what opens a session must close it.
    """

    def __init__(self, name: str, server: McpServer, sandbox: Sandbox, door: Door | None) -> None:
        self._name = name
        self._server = server
        self._sandbox = sandbox
        self._door = door
        self._session: ClientSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def offered(self) -> "list[Offered]":
        listed = await self._ask(lambda session: session.list_tools(), START)
        return listed.tools

    async def call(self, tool: str, arguments: dict[str, Any]) -> "CallToolResult":
        wait = timedelta(seconds=CALL)
        return await self._ask(lambda session: session.call_tool(tool, arguments, wait), CALL + 5)

    async def close(self) -> None:
        task, self._task, self._session = self._task, None, None
        self._closing.set()
        if task is not None:
            await asyncio.wait([task], timeout=5)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _ask(self, question: "Callable[[ClientSession], Awaitable[T]]", seconds: float) -> T:
        from mcp import McpError

        session = await self._opened()
        assert self._task is not None
        asked = asyncio.ensure_future(question(session))
        either: set[asyncio.Future[Any]] = {asked, self._task}
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        try:
            if asked.done():
                return asked.result()
        except McpError as exc:
            raise self._unreachable(f"it says {str(exc)[:300]}") from exc
        finally:
            asked.cancel()
        why = _why(self._task) if self._task.done() else f"nothing came within {seconds:g} s"
        await self.close()  # the next call begins anew
        raise self._unreachable(why)

    def _unreachable(self, why: str) -> _Unreachable:
        """What is told; a refusal of the proxy says more than the connection that did not come about."""
        refusal = self._door.refusal() if self._door else None
        return _Unreachable(refusal or why)

    async def _opened(self) -> "ClientSession":
        if self._session is None or self._task is None or self._task.done():
            await self.close()
            self._closing = asyncio.Event()
            ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
            self._task = asyncio.ensure_future(self._live(ready, self._closing))
            either: set[asyncio.Future[Any]] = {ready, self._task}
            await asyncio.wait(either, timeout=START, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                why = _why(self._task) if self._task.done() else f"it did not start within {START:g} s"
                await self.close()
                raise self._unreachable(why)
            self._session = ready.result()
        return self._session

    async def _live(self, ready: "asyncio.Future[ClientSession]", closing: asyncio.Event) -> None:
        from mcp import ClientSession

        way = self._by_http(self._door) if self._door else self._in_sandbox()
        async with way as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            ready.set_result(session)
            await closing.wait()

    @asynccontextmanager
    async def _by_http(self, door: Door) -> AsyncIterator[tuple[Any, Any]]:
        from mcp.client.streamable_http import streamable_http_client

        assert self._server.url is not None
        headers = {name: value.get_secret_value() for name, value in self._server.headers.items()}
        async with (
            door.client(headers) as client,
            streamable_http_client(self._server.url, http_client=client) as (read, write, _),
        ):
            yield read, write

    @asynccontextmanager
    async def _in_sandbox(self) -> AsyncIterator[tuple[Any, Any]]:
        import anyio

        name = f"mcp-{self._name}"
        started = await self._sandbox.act(
            StartStream(name=name, argv=self._server.command, env=self._server.env)
        )
        if isinstance(started, Failed):
            raise _Unreachable(started.message)
        to_us, read = anyio.create_memory_object_stream[Any](100)
        write, from_us = anyio.create_memory_object_stream[Any](100)
        async with asyncio.TaskGroup() as group, to_us, read, write, from_us:
            pump = group.create_task(_pump(self._sandbox, name, from_us, to_us))
            try:
                yield read, write
            finally:
                pump.cancel()


async def _pump(sandbox: Sandbox, name: str, from_us: Any, to_us: Any) -> None:
    """Carry messages between a session and a program in the sandbox.

    It asks the sandbox only while an answer is awaited: the sandbox does one thing after the other.
    """
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp.types import JSONRPCMessage, JSONRPCRequest
    from pydantic import ValidationError

    awaited: set[str | int] = set()
    rest = b""
    while True:
        out = b""
        with contextlib.suppress(anyio.WouldBlock):
            while True:
                message = from_us.receive_nowait() if awaited or out else await from_us.receive()
                root = message.message.root
                if isinstance(root, JSONRPCRequest):
                    awaited.add(root.id)
                out += message.message.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n"
        heard = await sandbox.act(Converse(name=name, lines=out, wait=0.5 if awaited else 0))
        if not isinstance(heard, Heard):
            raise _Unreachable(getattr(heard, "message", "the sandbox does not answer"))
        *lines, rest = (rest + heard.lines).split(b"\n")
        for line in lines:
            try:
                told = JSONRPCMessage.model_validate_json(line)
            except ValidationError:
                continue  # a server that prints its log among its answers
            awaited.discard(getattr(told.root, "id", ""))
            await to_us.send(SessionMessage(told))
        if heard.ended:
            said = f": {heard.said.strip()[-300:]}" if heard.said.strip() else ""
            raise _Unreachable(f"its program ended (exit code {heard.exit_code}){said}")


def _why(task: "asyncio.Task[None]") -> str:
    """What ended a session, in the words of whoever knew it."""
    error: BaseException | None = None if task.cancelled() else task.exception()
    while isinstance(error, BaseExceptionGroup):
        error = next(
            (each for each in error.exceptions if isinstance(each, _Unreachable)), error.exceptions[0]
        )
    return " ".join(str(error).split())[:300] if error and str(error) else "the connection ended"


def _called(result: "CallToolResult") -> Called:
    from mcp.types import EmbeddedResource, ImageContent, TextContent, TextResourceContents

    texts: list[str] = []
    pictures: list[Picture] = []
    for block in result.content:
        match block:
            case TextContent(text=text):
                texts.append(text)
            case ImageContent() if (picture := _picture(block.data, block.mimeType)) and len(pictures) < 4:
                pictures.append(picture)
            case EmbeddedResource(resource=TextResourceContents(text=text)):
                texts.append(text)
            case _:
                texts.append(f"[{block.type}, not shown]")
    return Called(text=clip("\n".join(texts), MOST_TEXT), ok=not result.isError, pictures=tuple(pictures))


def _picture(data: str, media: str) -> Picture | None:
    try:
        return Picture.model_validate({"media": media, "data": base64.b64decode(data, validate=True)})
    except ValueError:  # no base64, or no picture of a kind that models are shown
        return None
