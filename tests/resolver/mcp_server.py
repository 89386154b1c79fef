"""A real MCP server for the tests: `python mcp_server.py` on standard input, or `python mcp_server.py PORT` by HTTP."""

import os
import sys

from mcp.server.fastmcp import FastMCP, Image
from mcp.server.transport_security import TransportSecuritySettings

ANY_NAME = TransportSecuritySettings(enable_dns_rebinding_protection=False)
server = FastMCP("numbers", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000, transport_security=ANY_NAME)
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63f8cfc0f01f0005000"
    "1ff56c72c1a0000000049454e44ae426082"
)


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def where() -> str:
    """Say where this runs."""
    return f"{os.getcwd()} {os.environ.get('ADDED', 'nothing')} {'GITHUB_TOKEN' in os.environ}"


@server.tool()
def count(to: int = 2) -> str:
    """Counts; needs no arguments."""
    return " ".join(map(str, range(1, to + 1)))


@server.tool()
def draw() -> Image:
    """Draw one pixel."""
    return Image(data=PIXEL, format="png")


@server.tool()
def flood(size: int) -> str:
    """Say very much."""
    return "x" * size


@server.tool()
def fail() -> str:
    """Fail."""
    raise RuntimeError("no such number")


@server.tool()
def die() -> str:
    """End the server."""
    print("I go", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def chatter() -> str:
    """Print among the answers, as careless servers do."""
    print("not JSON", flush=True)
    return "said"


if __name__ == "__main__":
    server.run("streamable-http" if len(sys.argv) > 1 else "stdio")
