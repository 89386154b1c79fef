"""An MCP server for programs that are agents themselves. Its tools are requests to the HTTP API, with the same API
keys, scopes and errors. Source: modelcontextprotocol.io/specification/2025-06-18
"""

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import Field
from starlette.types import Receive, Scope, Send

from patchwright.bot.api.problem_details import problem_response
from patchwright.sdk.server_client import ServerClient, ServerError

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from patchwright.runtime.sandbox import Sandbox

INSTRUCTIONS = """\
Patchwright resolves issues of GitHub repositories: it works in a sandbox, proves its patch with the repository's own
tests, and opens a pull request. A run takes minutes. Start one with resolve_issue, then read run_status about once a
minute until its state is completed.
"""
STDIO_RETRIES = 2  # An agent sees an error early, and can repeat the call itself.
NOT_INSTALLED = "MCP is not installed here: pip install 'patchwright[mcp]'."

Repository = Annotated[str, Field(description="The repository, as owner/name.")]
Number = Annotated[int, Field(ge=1, description="The number of the issue or pull request.")]
Instructions = Annotated[
    str,
    Field(
        description="What to do, as in a comment that mentions the bot, such as `plan` or `handle negative numbers`. "
        "Empty: resolve the issue."
    ),
]
IdempotencyKey = Annotated[
    str,
    Field(description="A name for this request: a second request with the same name starts no second run."),
]
RunId = Annotated[str, Field(description="The id that resolve_issue returned.")]


class JobTools:
    """The tools. Each returns the API's response, or raises ServerError with the API's own sentence."""

    def __init__(self, client: ServerClient) -> None:
        self._client = client

    async def resolve_issue(
        self, repository: Repository, number: Number, instructions: Instructions = "", id: IdempotencyKey = ""
    ) -> dict[str, Any]:
        """Start a run that resolves an issue, or works on a pull request. Returns the run's id at once."""
        body = {"repository": repository, "number": number, "command": instructions, "id": id or None}
        return await self._request("POST", json=body)

    async def run_status(self, id: RunId) -> dict[str, Any]:
        """Read the state of a run (queued, running or completed), its result, and what it has cost so far."""
        return await self._request("GET", id)

    async def stop_run(self, id: RunId) -> dict[str, Any]:
        """Stop a run. It saves its work in a branch first."""
        return await self._request("DELETE", id)

    async def _request(self, method: str, *path: str, **options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            (await self._client.request(method, "jobs", *path, **options)).text
        )
        return answer


def create_mcp_server(client: ServerClient) -> "Server[None]":
    """Returns an MCP server with the tools of one client. Raises ImportError if the extra `mcp` is not installed."""
    from mcp.server.lowlevel import Server
    from mcp.types import Tool

    from patchwright.resolver.tools.entry_point_tools import FunctionTool

    server = Server("patchwright", instructions=INSTRUCTIONS)
    tools = JobTools(client)
    functions: dict[str, Callable[..., Any]] = {
        tool.__name__: tool for tool in (tools.resolve_issue, tools.run_status, tools.stop_run)
    }
    # The functions need no sandbox.
    specs = [FunctionTool(function, cast("Sandbox", None)).spec for function in functions.values()]

    @server.list_tools()  # type: ignore[no-untyped-call, untyped-decorator]
    async def list_tools() -> list[Tool]:
        return [Tool(**spec.to_mcp_tool()) for spec in specs]

    @server.call_tool()  # type: ignore[untyped-decorator]
    async def call_tool(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if name not in functions:
            raise ValueError(f"There is no tool {name}. The tools are {', '.join(functions)}.")
        response: dict[str, Any] = await functions[name](**arguments)
        return response

    return server


async def serve_stdio(url: str, api_key: str | None) -> None:
    """Serves MCP on standard input and output until the input ends. The tools use the Patchwright server at `url`.

    Raises ImportError if the extra `mcp` is not installed, and ServerError if the server does not answer or rejects
    the key.
    """
    client = ServerClient(url, api_key, retries=STDIO_RETRIES)
    try:
        from mcp.server.stdio import stdio_server

        server = create_mcp_server(client)
        await _check_key(client)
        async with stdio_server() as (reader, writer):
            await server.run(reader, writer, server.create_initialization_options())
    finally:
        await client.close()


async def _check_key(client: ServerClient) -> None:
    try:
        await client.request("GET", "jobs", "check")
    except ServerError as exc:
        # With a valid key, the server says that there is no such job, or that the key may not read jobs.
        if exc.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN):
            raise


class McpRoute:
    """The path `/mcp`: streamable HTTP without sessions, so that any server answers each request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        import httpx

        key = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1").partition(" ")[2].strip()
        # The tools send their requests to this same application, which checks the key and the scopes.
        client = ServerClient("http://localhost", key, transport=httpx.ASGITransport(scope["app"]))
        try:
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
            from mcp.server.transport_security import TransportSecuritySettings

            server = create_mcp_server(client)
        except ImportError:
            await problem_response(501, NOT_INSTALLED)(scope, receive, send)
            return
        try:
            # An API key protects the server against other websites: browsers do not send it by themselves.
            unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
            manager = StreamableHTTPSessionManager(
                server, json_response=True, stateless=True, security_settings=unchecked
            )
            async with manager.run():
                await manager.handle_request(scope, receive, send)
        finally:
            await client.close()
