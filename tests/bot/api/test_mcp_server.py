"""The MCP server: a real MCP client calls its tools over streamable HTTP and over standard input and output."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from patchwright.demo.loopback_server import LoopbackServer
from patchwright.resolver.domain import JobId
from tests.bot.api.clients import TOKEN, api_receiver
from tests.bot.inline_queue import InlineQueue
from tests.preloaded_command import preloaded_command

NAMES = ["resolve_issue", "run_status", "stop_run"]
REQUEST = {"repository": "acme/sample", "number": 7, "instructions": "handle zero", "id": "mine"}


@pytest.fixture
async def queue() -> InlineQueue:
    return InlineQueue()


@pytest.fixture
async def server(queue: InlineQueue) -> AsyncIterator[str]:
    made = LoopbackServer(api_receiver(queue))  # type: ignore[arg-type]
    await made.start()
    yield made.url
    await made.stop()


@asynccontextmanager
async def connect(url: str, key: str = TOKEN) -> AsyncIterator[ClientSession]:
    headers = {"authorization": f"Bearer {key}"}
    async with (
        httpx.AsyncClient(headers=headers) as http,
        streamable_http_client(f"{url}/mcp", http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


@asynccontextmanager
async def connect_stdio(url: str, key: str = TOKEN) -> AsyncIterator[ClientSession]:
    program, *arguments = preloaded_command()
    command = StdioServerParameters(
        command=program,
        args=[*arguments, "mcp", "--server", url],
        env={**os.environ, "PATCHWRIGHT_API_KEY": key},
    )
    async with stdio_client(command) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def call(session: ClientSession, tool: str, **arguments: Any) -> Any:
    result = await session.call_tool(tool, arguments)
    text = result.content[0].text  # type: ignore[union-attr]
    return text if result.isError else json.loads(text)


@pytest.mark.parametrize("opened", [connect, connect_stdio])
async def test_another_agent_starts_a_run_reads_it_and_stops_it(
    opened: Any, server: str, queue: InlineQueue
) -> None:
    async with opened(server) as session:
        tools = (await session.list_tools()).tools
        assert [tool.name for tool in tools] == NAMES
        assert tools[0].inputSchema["required"] == ["repository", "number"]
        assert all(tool.inputSchema["additionalProperties"] is False for tool in tools)
        assert await call(session, "resolve_issue", **REQUEST) == {"id": "mine"}
        assert await call(session, "resolve_issue", **REQUEST) == {"id": "mine"}
        status = await call(session, "run_status", id="mine")
        assert (status["state"], status["repository"], status["number"]) == ("queued", "acme/sample", 7)
        assert await call(session, "stop_run", id="mine") == {"id": "mine", "stopped": True}
        assert "Job not found." in await call(session, "run_status", id="other")
        assert "owner/name" in await call(session, "resolve_issue", repository="sample", number=7)
        assert "'comand' was unexpected" in await call(session, "stop_run", id="mine", comand="now")
        assert "The tools are resolve_issue, run_status" in await call(session, "stop_runs", id="mine")
    record = await queue.get_record(JobId("mine"))
    assert record is not None and record.job.command == "handle zero"
    assert len(queue.known) == 1


async def test_a_key_permits_over_mcp_what_it_permits_over_http(server: str) -> None:
    async with connect(server, "jobs:read") as session:
        assert "jobs:write" in await call(session, "resolve_issue", **REQUEST)
        assert "Job not found." in await call(session, "run_status", id="other")
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{server}/mcp", json={}, headers={"authorization": "Bearer wrong"})
    assert (answer.status_code, answer.json()["title"]) == (401, "Unauthorized")


@pytest.mark.parametrize(
    ("url", "key", "problem"),
    [
        ("", "", "PATCHWRIGHT_API_KEY is not set"),
        ("", "wrong", "The API key is not valid."),
        ("http://127.0.0.1:9", TOKEN, "The server http://127.0.0.1:9 does not answer"),
    ],
)
async def test_the_command_names_what_is_wrong_before_it_serves(
    url: str, key: str, problem: str, server: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(*preloaded_command(), "mcp", "--server", url or server),
        env={**os.environ, "PATCHWRIGHT_API_KEY": key},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert problem in error.decode()
