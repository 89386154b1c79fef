"""MCP servers as tools: a real one as a program in a sandbox, and by HTTP."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from resolver.actions import Called, Malformed
from resolver.llm.model import ToolCall
from resolver.settings.mcp_server import McpServer
from resolver.tools.mcp import mcp_tools
from resolver.tools.mcp_way import Outside
from resolver.tools.tool import Tools
from runtime.actions import RunShell
from runtime.local import LocalSandboxes
from runtime.observations import Failed, Ran
from runtime.sandbox import Sandbox
from tests.resolver.served_mcp import SERVER, by_http, call

BY_COMMAND = McpServer(command=(sys.executable, SERVER), env={"ADDED": "something"})


@pytest.fixture
async def sandbox(short_tmp: Path) -> AsyncIterator[Sandbox]:
    async with LocalSandboxes(short_tmp, {**os.environ, "GITHUB_TOKEN": "x"}).open("mcp") as opened:
        yield opened


@pytest.mark.parametrize("way", ["command", "http"])
async def test_a_servers_tools_are_listed_checked_and_called_like_our_own(sandbox: Sandbox, way: str) -> None:
    async with (
        by_http() as http,
        mcp_tools({"numbers": BY_COMMAND if way == "command" else http}, sandbox, print, Outside()) as found,
    ):
        tools = Tools(found)
        names = [spec.name for spec in tools.specs]
        assert names[:2] == ["numbers_add", "numbers_where"]
        assert tools.specs[0].description.startswith("Add two numbers.")
        assert await call(tools, "numbers_add", a=2, b=3) == Called(text="5")
        wrong = tools.parse(ToolCall(id="1", name="numbers_add", arguments='{"a": "x", "b": 1}'))
        assert isinstance(wrong, Malformed) and "`a`: 'x' is not of type 'integer'" in wrong.problem
        failed = await call(tools, "numbers_fail")
        assert isinstance(failed, Called) and not failed.ok and "no such number" in failed.text
        drawn = await call(tools, "numbers_draw")
        assert isinstance(drawn, Called) and [each.media for each in drawn.pictures] == ["image/png"]
        much = await call(tools, "numbers_flood", size=1_000_000)
        assert isinstance(much, Called) and len(much.text) < 40_000


async def test_a_command_runs_in_the_sandbox_with_its_environment_and_no_other(sandbox: Sandbox) -> None:
    async with mcp_tools({"numbers": BY_COMMAND}, sandbox, print, Outside()) as found:
        told = await call(Tools(found), "numbers_where")
        assert told == Called(text=f"{sandbox.root} something False")
        ran = await sandbox.act(RunShell(command="echo the shell is free"))
        assert isinstance(ran, Ran) and ran.output == "the shell is free\n"


async def test_a_server_that_dies_is_told_and_started_again_for_the_next_call(sandbox: Sandbox) -> None:
    async with mcp_tools({"numbers": BY_COMMAND}, sandbox, print, Outside()) as found:
        tools = Tools(found)
        seen = await call(tools, "numbers_die")
        assert isinstance(seen, Failed)
        assert seen.message.startswith("numbers_die gave no answer: its program ended (exit code 3)")
        assert await call(tools, "numbers_add", a=1, b=1) == Called(text="2")


async def test_a_wrong_call_of_a_tool_that_requires_nothing_is_told_its_shape(sandbox: Sandbox) -> None:
    async with mcp_tools({"numbers": BY_COMMAND}, sandbox, print, Outside()) as found:
        tools = Tools(found)
        wrong = tools.parse(ToolCall(id="1", name="numbers_count", arguments='{"to": "x"}'))
        assert isinstance(wrong, Malformed) and "- `to`: integer, 2 if left out." in wrong.problem
        assert await call(tools, "numbers_count") == Called(text="1 2")


async def test_what_a_server_prints_among_its_answers_is_passed_over(sandbox: Sandbox) -> None:
    async with mcp_tools({"numbers": BY_COMMAND}, sandbox, print, Outside()) as found:
        assert await call(Tools(found), "numbers_chatter") == Called(text="said")


async def test_only_the_tools_that_the_operator_named_are_offered(sandbox: Sandbox) -> None:
    server = BY_COMMAND.model_copy(update={"tools": ("add", "absent")})
    async with mcp_tools({"numbers": server}, sandbox, print, Outside()) as found:
        assert [tool.spec.name for tool in found] == ["numbers_add"]


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (McpServer(command=("no-such-program-here",)), "cannot be started"),
        (
            McpServer(command=("sh", "-c", "echo broken >&2; exit 4")),
            "its program ended (exit code 4): broken",
        ),
        (McpServer(url="http://127.0.0.1:9/mcp"), ""),
    ],
)
async def test_a_server_that_does_not_come_up_is_told_and_the_run_goes_on(
    sandbox: Sandbox, server: McpServer, told: str
) -> None:
    said: list[str] = []
    async with mcp_tools({"broken": server, "numbers": BY_COMMAND}, sandbox, said.append, Outside()) as found:
        assert "numbers_add" in [tool.spec.name for tool in found]
    (line,) = said
    assert line.startswith("the MCP server broken is left out: ") and told in line


@pytest.mark.parametrize("wrong", [{}, {"command": ["x"], "url": "http://x"}, {"url": "file:///etc/passwd"}])
def test_a_server_is_a_command_or_a_url(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        McpServer(**wrong)
