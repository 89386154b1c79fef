"""Defines the command line. Each command imports its slow modules when it runs, so that `--help` responds at
once.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from patchwright.bot.cli import (
    action,
    api_key,
    checks,
    completion_command,
    demo,
    docker_proxy,
    evaluate,
    mcp,
    prepare,
    resolve,
    saved_runs,
    server_commands,
)
from patchwright.bot.terminal.exit_codes import INTERRUPTED, JOB_EXIT_CODES, USAGE_ERROR
from patchwright.bot.terminal.help_screens import (
    GETTING_STARTED,
    SETTINGS_HELP,
    CommandParser,
    HelpFormatter,
    exit_codes_help,
)
from patchwright.runtime import VERSION

COMMANDS = (
    resolve.add, server_commands.add_serve, server_commands.add_work, docker_proxy.add, action.add, demo.add,
    api_key.add, mcp.add, saved_runs.add_runs, saved_runs.add_view, saved_runs.add_export, saved_runs.add_replay,
    checks.add_probe, checks.add_doctor, evaluate.add_evaluate, evaluate.add_tune, prepare.add,
    completion_command.add,
)  # fmt: skip
"""Each function adds one command to the command line, in the order of `--help`. The command's parser sets
`handler`, a coroutine function that runs the command and returns the exit code.
"""


def build_parser() -> argparse.ArgumentParser:
    """Returns the argument parser with all commands."""
    parser = CommandParser(
        prog="patchwright",
        description="Label an issue `fix-me`, get a tested pull request.",
        epilog=f"{exit_codes_help(JOB_EXIT_CODES)}{SETTINGS_HELP}\nshell completion: patchwright completion --help",
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for add in COMMANDS:
        add(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    try:
        return _main(arguments)
    except KeyboardInterrupt:  # While modules are being imported; `run_command` handles it later.
        print("Stopped.", file=sys.stderr)
        return INTERRUPTED


def _main(arguments: Sequence[str] | None) -> int:
    parser = build_parser()
    if "_ARGCOMPLETE" in os.environ:
        from patchwright.bot.commands.completion import complete

        complete(parser)
    options = parser.parse_args(arguments)
    if options.version:
        print(f"patchwright {VERSION}")
        return 0
    if options.command is None:
        print(GETTING_STARTED, end="")
        return USAGE_ERROR
    from patchwright.bot.cli.command_runner import run_command

    return run_command(options)
