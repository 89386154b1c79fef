"""`patchwright mcp` offers a server's jobs to another agent over MCP."""

import argparse

from patchwright.bot.cli.options import JSON_ERROR_HELP
from patchwright.bot.terminal.exit_codes import SUCCESS
from patchwright.bot.terminal.help_screens import Subparsers, add_command


def add(commands: Subparsers) -> None:
    """Adds `mcp` to the command line."""
    command = add_command(
        commands,
        "mcp",
        "let another agent start and stop jobs, over MCP",
        "Serve MCP on standard input and output, for an agent that starts this command. Its tools are resolve_issue,\n"
        "run_status and stop_run. They use a Patchwright server and the API key in PATCHWRIGHT_API_KEY. Agents that\n"
        "support streamable HTTP can use the server's own path /mcp instead. See docs/http-api.md.\n\n"
        "  PATCHWRIGHT_API_KEY=$(patchwright api-key create my-agent) patchwright mcp",
        has_settings=False,
    )
    command.add_argument(
        "--server", metavar="URL", default="http://127.0.0.1:8000", help="the server (default %(default)s)"
    )
    command.add_argument("--json", action="store_true", help=JSON_ERROR_HELP)
    command.set_defaults(handler=run)


async def run(options: argparse.Namespace) -> int:
    """Serves MCP until the input ends."""
    from patchwright.bot.api.mcp_server import NOT_INSTALLED, serve_stdio
    from patchwright.resolver.errors import SettingsError
    from patchwright.sdk.environment import api_key
    from patchwright.sdk.server_client import ServerError

    key = api_key()
    if key is None:
        raise SettingsError(
            "PATCHWRIGHT_API_KEY is not set. Create a key on the server: patchwright api-key create NAME."
        )
    try:
        await serve_stdio(options.server, key)
    except ImportError as exc:
        raise SettingsError(NOT_INSTALLED) from exc
    except ServerError as exc:
        raise SettingsError(f"{exc} Check --server and PATCHWRIGHT_API_KEY.") from exc
    return SUCCESS
