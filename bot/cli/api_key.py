"""The command `api-key`: creates, lists and revokes the keys of the HTTP API."""

import argparse

from patchwright.bot.cli.options import add_config_and_json_options
from patchwright.bot.terminal.exit_codes import SUCCESS
from patchwright.bot.terminal.help_screens import Subparsers, add_command


def add(commands: Subparsers) -> None:
    """Adds `api-key` to the command line."""
    command = add_command(
        commands,
        "api-key",
        "create, list and revoke keys of the server's HTTP API",
        "Create a key for a program that uses the server's HTTP API, list all keys, or revoke one. A key is shown\n"
        "only once: the server stores a digest of it. A revoked key stops working immediately. Run this command with\n"
        "the settings of the server, because the keys are in its Redis.\n\n"
        "  patchwright api-key create nightly --scope jobs:read\n"
        "  patchwright api-key list\n"
        "  patchwright api-key revoke nightly",
    )
    command.add_argument(
        "action", choices=("create", "list", "revoke"), metavar="ACTION", help="create, list or revoke"
    )
    command.add_argument("name", nargs="?", metavar="NAME", help="name of the key, for create and revoke")
    command.add_argument(
        "--scope",
        action="append",
        metavar="SCOPE",
        help="what a new key permits: jobs:read, jobs:write, conversations:read or conversations:write; may be "
        "repeated (default: everything)",
    )
    add_config_and_json_options(command)
    command.set_defaults(handler=run)


async def run(options: argparse.Namespace) -> int:
    """Creates, lists or revokes API keys."""
    from patchwright.bot.cli.settings_loading import load_settings
    from patchwright.bot.commands.api_key_command import run_api_key_command

    await run_api_key_command(
        load_settings(options), options.action, options.name, options.scope or (), as_json=options.json
    )
    return SUCCESS
