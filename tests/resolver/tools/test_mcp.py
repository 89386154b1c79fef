"""MCP servers as tools, with a real server as a program in a sandbox and over HTTP."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from patchwright.resolver.actions import ExternalToolResult
from patchwright.resolver.llm.model import RawToolCall
from patchwright.resolver.settings.run_settings import McpServer
from patchwright.resolver.tool_actions.unchecked_actions import MalformedCall
from patchwright.resolver.tools.mcp import connect_mcp_tools
from patchwright.resolver.tools.mcp_transport import McpConnector
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.runtime.actions import RunShell
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.observations import ActionFailure, ShellResult
from patchwright.runtime.sandbox import Sandbox
from tests.resolver.mcp_http_server import SERVER, call_tool, serve_mcp_over_http

BY_COMMAND = McpServer(command=(sys.executable, SERVER), env={"ADDED": "something"})


@pytest.fixture
async def sandbox(short_tmp: Path) -> AsyncIterator[Sandbox]:
    async with LocalSandboxes(short_tmp, {**os.environ, "GITHUB_TOKEN": "x"}).open("mcp") as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("way", ["command", "http"])
async def test_a_servers_tools_are_listed_validated_and_called(sandbox: Sandbox, way: str) -> None:
    async with (
        serve_mcp_over_http() as http,
        connect_mcp_tools(
            {"numbers": BY_COMMAND if way == "command" else http}, sandbox, print, McpConnector()
        ) as found,
    ):
        tools = ToolRegistry(found)
        names = [spec.name for spec in tools.specs]
        assert names[:2] == ["numbers_add", "numbers_where"]
        assert tools.specs[0].description.startswith("Add two numbers.")
        assert await call_tool(tools, "numbers_add", a=2, b=3) == ExternalToolResult(text="5")
        wrong = tools.parse(RawToolCall(id="1", name="numbers_add", arguments='{"a": "x", "b": 1}'))
        assert isinstance(wrong, MalformedCall) and "`a`: 'x' is not of type 'integer'" in wrong.problem
        failed = await call_tool(tools, "numbers_fail")
        assert isinstance(failed, ExternalToolResult) and not failed.ok and "no such number" in failed.text
        drawn = await call_tool(tools, "numbers_draw")
        assert isinstance(drawn, ExternalToolResult) and [each.media_type for each in drawn.images] == [
            "image/png"
        ]
        much = await call_tool(tools, "numbers_flood", size=1_000_000)
        assert isinstance(much, ExternalToolResult) and len(much.text) < 40_000


@pytest.mark.slow
async def test_a_command_runs_in_the_sandbox_with_its_environment_and_no_other(sandbox: Sandbox) -> None:
    server = BY_COMMAND.model_copy(update={"tools": ("where", "absent")})
    async with connect_mcp_tools({"numbers": server}, sandbox, print, McpConnector()) as found:
        assert [tool.spec.name for tool in found] == ["numbers_where"]  # the others are not configured
        result = await call_tool(ToolRegistry(found), "numbers_where")
        assert result == ExternalToolResult(text=f"{sandbox.root} something False")
        ran = await sandbox.act(RunShell(command="echo the shell is free"))
        assert isinstance(ran, ShellResult) and ran.output == "the shell is free\n"


@pytest.mark.slow
async def test_a_server_that_dies_is_restarted_for_the_next_call(sandbox: Sandbox) -> None:
    async with connect_mcp_tools({"numbers": BY_COMMAND}, sandbox, print, McpConnector()) as found:
        tools = ToolRegistry(found)
        result = await call_tool(tools, "numbers_die")
        assert isinstance(result, ActionFailure)
        assert result.message.startswith("numbers_die failed: the server's program ended (exit code 3)")
        assert await call_tool(tools, "numbers_add", a=1, b=1) == ExternalToolResult(text="2")


@pytest.mark.slow
async def test_a_wrong_call_gets_the_schema_even_without_required_fields(sandbox: Sandbox) -> None:
    async with connect_mcp_tools({"numbers": BY_COMMAND}, sandbox, print, McpConnector()) as found:
        tools = ToolRegistry(found)
        wrong = tools.parse(RawToolCall(id="1", name="numbers_count", arguments='{"to": "x"}'))
        assert isinstance(wrong, MalformedCall) and "- `to`: integer, 2 if left out." in wrong.problem
        assert await call_tool(tools, "numbers_count") == ExternalToolResult(text="1 2")


@pytest.mark.slow
async def test_log_lines_on_a_servers_stdout_are_ignored(sandbox: Sandbox) -> None:
    async with connect_mcp_tools({"numbers": BY_COMMAND}, sandbox, print, McpConnector()) as found:
        assert await call_tool(ToolRegistry(found), "numbers_chatter") == ExternalToolResult(text="said")


@pytest.mark.slow
async def test_only_the_configured_tools_are_offered(sandbox: Sandbox) -> None:
    server = BY_COMMAND.model_copy(update={"tools": ("add", "absent")})
    async with connect_mcp_tools({"numbers": server}, sandbox, print, McpConnector()) as found:
        assert [tool.spec.name for tool in found] == ["numbers_add"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (McpServer(command=("no-such-program-here",)), "cannot be started"),
        (
            McpServer(command=("sh", "-c", "echo broken >&2; exit 4")),
            "the server's program ended (exit code 4): broken",
        ),
        (McpServer(url="http://127.0.0.1:9/mcp"), ""),
    ],
)
async def test_a_server_that_fails_to_start_is_skipped_with_a_warning(
    sandbox: Sandbox, server: McpServer, expected: str
) -> None:
    received: list[str] = []
    async with connect_mcp_tools(
        {"broken": server, "numbers": BY_COMMAND}, sandbox, received.append, McpConnector()
    ) as found:
        assert "numbers_add" in [tool.spec.name for tool in found]
    (line,) = received
    assert line.startswith("the MCP server broken is skipped: ") and expected in line


@pytest.mark.parametrize("wrong", [{}, {"command": ["x"], "url": "http://x"}, {"url": "file:///etc/passwd"}])
def test_a_server_is_a_command_or_a_url(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        McpServer(**wrong)
