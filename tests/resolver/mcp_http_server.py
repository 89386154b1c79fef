"""Serves the MCP server of the tests over HTTP, and calls its tools."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from patchwright.resolver.llm.model import RawToolCall
from patchwright.resolver.settings.run_settings import McpServer
from patchwright.resolver.tools.tool import ToolRegistry

SERVER = str(Path(__file__).with_name("mcp_server.py"))


@asynccontextmanager
async def serve_mcp_over_http() -> AsyncIterator[McpServer]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, SERVER, str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                break
        yield McpServer(url=f"http://127.0.0.1:{port}/mcp")
    finally:
        process.kill()
        await process.wait()


async def call_tool(tools: ToolRegistry, name: str, **arguments: Any) -> object:
    return await tools.execute(tools.parse(RawToolCall(id="1", name=name, arguments=json.dumps(arguments))))
