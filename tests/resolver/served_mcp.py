"""The MCP server of the tests, served by HTTP, and how its tools are called."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from resolver.llm.model import ToolCall
from resolver.settings.mcp_server import McpServer
from resolver.tools.tool import Tools

SERVER = str(Path(__file__).with_name("mcp_server.py"))


@asynccontextmanager
async def by_http() -> AsyncIterator[McpServer]:
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


async def call(tools: Tools, name: str, **arguments: Any) -> object:
    return await tools.answer(tools.parse(ToolCall(id="1", name=name, arguments=json.dumps(arguments))))
