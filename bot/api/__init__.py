"""The HTTP API: its routes, its API keys, and its errors. `docs/http-api.md` describes it.

Only `create_application` and the modules that it uses import FastAPI. The receiver needs no more than the paths below.
"""

DESCRIPTION_PATH = "/openapi.json"
"""The path of the OpenAPI description, which needs no API key."""
MCP_PATH = "/mcp"
API_PATHS = ("/jobs", "/conversations", "/workspaces", MCP_PATH, DESCRIPTION_PATH)
"""The first path segments that belong to the API. All other paths belong to the dashboard."""


def is_api_path(path: str) -> bool:
    """Returns True if the path belongs to the API."""
    return f"/{path[1:].partition('/')[0]}" in API_PATHS
