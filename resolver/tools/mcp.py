"""Provides the tools of the MCP servers that the operator configured. A server is a program in the sandbox,
or is reached over HTTP.

Tool descriptions and results are untrusted text. Their length is limited, and the model is told that they are
untrusted. Source: modelcontextprotocol.io/specification/2025-06-18
"""

import asyncio
import base64
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from patchwright.resolver.actions import ExternalToolResult
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.json_schemas import validation_error
from patchwright.resolver.llm.model import ToolSpec
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.settings.run_settings import McpServer
from patchwright.resolver.tool_actions.unchecked_actions import CallTool
from patchwright.resolver.tools.mcp_transport import McpConnector, McpEndpoint
from patchwright.resolver.tools.tool import Tool
from patchwright.runtime.actions import ProcessExchange, StartProcess
from patchwright.runtime.observations import ActionFailure, ImageData, ProcessOutput
from patchwright.runtime.output_text import clip
from patchwright.runtime.sandbox import Sandbox

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import CallToolResult
    from mcp.types import Tool as ToolDefinition

START_TIMEOUT = 30.0  # seconds for a server to start and list its tools
CALL_TIMEOUT = 120.0  # seconds for one call
MAX_TOOLS = 50  # per server
MAX_TEXT = 30_000  # characters of one result
T = TypeVar("T")
MAX_SCHEMA = 20_000  # characters; applies to a tool's description and to its schema


@asynccontextmanager
async def connect_mcp_tools(
    servers: Mapping[str, McpServer], sandbox: Sandbox, warn: Callable[[str], object], connector: McpConnector
) -> AsyncIterator[Sequence[Tool]]:
    """Yields the tools of all servers. The tools work only inside the context. Servers that fail to start are
    skipped with a warning.

    Raises SettingsError if the extra `mcp` is not installed.
    """
    if not servers:
        yield ()
        return
    try:
        import mcp  # noqa: F401  # imported late, because the import takes 0.4 s
    except ImportError as exc:
        raise SettingsError(
            "MCP servers are configured, but `mcp` is not installed: pip install 'patchwright[mcp]'"
        ) from exc
    async with AsyncExitStack() as stack:
        tools: list[Tool] = []
        for name, server in servers.items():
            endpoint = await stack.enter_async_context(connector.connect(server.url)) if server.url else None
            connection = _Connection(name, server, sandbox, endpoint)
            try:
                definitions = await connection.list_tools()
            except _ServerUnreachable as reason:
                warn(f"the MCP server {name} is skipped: {reason}")
                continue
            finally:
                stack.push_async_callback(connection.close)
            selected = [
                definition
                for definition in definitions
                if server.tools is None or definition.name in server.tools
            ]
            tools += [McpTool(name, definition, connection) for definition in selected[:MAX_TOOLS]]
        yield tuple({tool.spec.name: tool for tool in tools}.values())


class McpTool:
    """One tool of an MCP server."""

    kind: Literal["call_tool"] = "call_tool"

    def __init__(self, server: str, definition: "ToolDefinition", connection: "_Connection") -> None:
        self._definition = definition
        self._connection = connection
        name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}_{definition.name}")[:64]
        text = clip(definition.description or definition.title or definition.name, MAX_SCHEMA)
        schema = definition.inputSchema if len(str(definition.inputSchema)) <= MAX_SCHEMA else {}
        properties, required = schema.get("properties"), schema.get("required")
        self.spec = ToolSpec(
            name=name,
            description=render_prompt("external_tool.md.j2", text=text, server=server),
            parameters={
                **schema,
                "type": "object",
                "properties": properties if isinstance(properties, dict) else {},
                "required": required if isinstance(required, list) else [],
            },
        )

    def parse(self, arguments: dict[str, Any]) -> CallTool:
        # If the schema is invalid, all arguments are accepted, and the server validates them.
        if problem := validation_error(arguments, self._definition.inputSchema):
            raise ValueError(problem)
        return CallTool(name=self.spec.name, arguments=arguments)

    async def execute(self, action: CallTool) -> ExternalToolResult | ActionFailure:
        try:
            return _parse_result(await self._connection.call_tool(self._definition.name, action.arguments))
        except _ServerUnreachable as reason:
            return ActionFailure(
                reason="io", message=f"{self.spec.name} failed: {reason}. Continue without this tool."
            )


class _ServerUnreachable(Exception):
    """The server cannot be reached; the message gives the reason."""


class _Connection:
    """A session with one server. The session is opened when it is first used, and opened again if it was
    lost.

    The session runs in its own asyncio task, because the task that opens an MCP session must also close it.
    """

    def __init__(self, name: str, server: McpServer, sandbox: Sandbox, endpoint: McpEndpoint | None) -> None:
        self._name = name
        self._server = server
        self._sandbox = sandbox
        self._endpoint = endpoint
        self._session: ClientSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def list_tools(self) -> "list[ToolDefinition]":
        result = await self._request(lambda session: session.list_tools(), START_TIMEOUT)
        return result.tools

    async def call_tool(self, tool: str, arguments: dict[str, Any]) -> "CallToolResult":
        timeout = timedelta(seconds=CALL_TIMEOUT)
        return await self._request(
            lambda session: session.call_tool(tool, arguments, timeout), CALL_TIMEOUT + 5
        )

    async def close(self) -> None:
        task, self._task, self._session = self._task, None, None
        self._closing.set()
        if task is not None:
            await asyncio.wait([task], timeout=5)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _request(self, send: "Callable[[ClientSession], Awaitable[T]]", timeout: float) -> T:
        from mcp import McpError

        session = await self._open_session()
        assert self._task is not None
        response = asyncio.ensure_future(send(session))
        awaitables: set[asyncio.Future[Any]] = {response, self._task}
        await asyncio.wait(awaitables, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        try:
            if response.done():
                return response.result()
        except McpError as exc:
            raise self._build_error(f"it reports: {str(exc)[:300]}") from exc
        finally:
            response.cancel()
        reason = _get_failure_reason(self._task) if self._task.done() else f"no response within {timeout:g} s"
        await self.close()  # the next call opens a new session
        raise self._build_error(reason)

    def _build_error(self, reason: str) -> _ServerUnreachable:
        """Returns the error to raise. If the proxy denied the connection, the error contains the proxy's
        reason instead of `reason`, because the proxy's reason is more precise.
        """
        denial = self._endpoint.take_denial() if self._endpoint else None
        return _ServerUnreachable(denial or reason)

    async def _open_session(self) -> "ClientSession":
        if self._session is None or self._task is None or self._task.done():
            await self.close()
            self._closing = asyncio.Event()
            ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
            self._task = asyncio.ensure_future(self._run_session(ready, self._closing))
            awaitables: set[asyncio.Future[Any]] = {ready, self._task}
            await asyncio.wait(awaitables, timeout=START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                reason = (
                    _get_failure_reason(self._task)
                    if self._task.done()
                    else f"the server did not start within {START_TIMEOUT:g} s"
                )
                await self.close()
                raise self._build_error(reason)
            self._session = ready.result()
        return self._session

    async def _run_session(self, ready: "asyncio.Future[ClientSession]", closing: asyncio.Event) -> None:
        from mcp import ClientSession

        transport = self._connect_http(self._endpoint) if self._endpoint else self._connect_stdio()
        async with transport as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            ready.set_result(session)
            await closing.wait()

    @asynccontextmanager
    async def _connect_http(self, endpoint: McpEndpoint) -> AsyncIterator[tuple[Any, Any]]:
        from mcp.client.streamable_http import streamable_http_client

        assert self._server.url is not None
        headers = {name: value.get_secret_value() for name, value in self._server.headers.items()}
        async with (
            endpoint.build_client(headers) as client,
            streamable_http_client(self._server.url, http_client=client) as (read, write, _),
        ):
            yield read, write

    @asynccontextmanager
    async def _connect_stdio(self) -> AsyncIterator[tuple[Any, Any]]:
        import anyio

        name = f"mcp-{self._name}"
        started = await self._sandbox.act(
            StartProcess(name=name, argv=self._server.command, env=self._server.env)
        )
        if isinstance(started, ActionFailure):
            raise _ServerUnreachable(started.message)
        incoming, read = anyio.create_memory_object_stream[Any](100)
        write, outgoing = anyio.create_memory_object_stream[Any](100)
        async with asyncio.TaskGroup() as group, incoming, read, write, outgoing:
            relay = group.create_task(_relay_messages(self._sandbox, name, outgoing, incoming))
            try:
                yield read, write
            finally:
                relay.cancel()


async def _relay_messages(sandbox: Sandbox, name: str, outgoing: Any, incoming: Any) -> None:
    """Relays messages between an MCP session and a program in the sandbox.

    The function polls the sandbox only while a response is pending, because the sandbox runs only one action
    at a time.
    """
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp.types import JSONRPCMessage, JSONRPCRequest
    from pydantic import ValidationError

    pending_ids: set[str | int] = set()
    incomplete_line = b""
    while True:
        output = b""
        with contextlib.suppress(anyio.WouldBlock):
            while True:
                session_message = (
                    outgoing.receive_nowait() if pending_ids or output else await outgoing.receive()
                )
                root = session_message.message.root
                if isinstance(root, JSONRPCRequest):
                    pending_ids.add(root.id)
                output += (
                    session_message.message.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n"
                )
        exchange = await sandbox.act(
            ProcessExchange(name=name, lines=output, wait_seconds=0.5 if pending_ids else 0)
        )
        if not isinstance(exchange, ProcessOutput):
            raise _ServerUnreachable(getattr(exchange, "message", "the sandbox does not respond"))
        *lines, incomplete_line = (incomplete_line + exchange.lines).split(b"\n")
        for line in lines:
            try:
                message = JSONRPCMessage.model_validate_json(line)
            except ValidationError:
                continue  # the server prints log lines to its standard output
            pending_ids.discard(getattr(message.root, "id", ""))
            await incoming.send(SessionMessage(message))
        if exchange.has_ended:
            details = f": {exchange.stderr.strip()[-300:]}" if exchange.stderr.strip() else ""
            raise _ServerUnreachable(f"the server's program ended (exit code {exchange.exit_code}){details}")


def _get_failure_reason(task: "asyncio.Task[None]") -> str:
    """Returns the innermost reason why a session ended."""
    error: BaseException | None = None if task.cancelled() else task.exception()
    while isinstance(error, BaseExceptionGroup):
        error = next(
            (nested for nested in error.exceptions if isinstance(nested, _ServerUnreachable)),
            error.exceptions[0],
        )
    return " ".join(str(error).split())[:300] if error and str(error) else "the connection ended"


def _parse_result(result: "CallToolResult") -> ExternalToolResult:
    from mcp.types import EmbeddedResource, ImageContent, TextContent, TextResourceContents

    texts: list[str] = []
    images: list[ImageData] = []
    for block in result.content:
        match block:
            case TextContent(text=text):
                texts.append(text)
            case ImageContent() if (image := _parse_image(block.data, block.mimeType)) and len(images) < 4:
                images.append(image)
            case EmbeddedResource(resource=TextResourceContents(text=text)):
                texts.append(text)
            case _:
                texts.append(f"[{block.type}, not shown]")
    return ExternalToolResult(
        text=clip("\n".join(texts), MAX_TEXT), ok=not result.isError, images=tuple(images)
    )


def _parse_image(data: str, media_type: str) -> ImageData | None:
    try:
        return ImageData.model_validate(
            {"media_type": media_type, "data": base64.b64decode(data, validate=True)}
        )
    except ValueError:  # invalid base64 or an unsupported image type
        return None
