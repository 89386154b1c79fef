"""`patchwright action` runs one job of a GitHub Actions workflow."""

import argparse
from pathlib import Path

from patchwright.bot.cli.options import add_settings_options
from patchwright.bot.terminal.exit_codes import JOB_EXIT_CODES
from patchwright.bot.terminal.help_screens import Subparsers, add_command


def add(commands: Subparsers) -> None:
    """Adds the command to the command line."""
    command = add_command(
        commands,
        "action",
        "handle the event that started a GitHub Actions workflow",
        "Handle the event in GITHUB_EVENT_PATH, and write step outputs and a job summary. See action.yml.\n\n"
        "Use two jobs, so that no job has both the model's key and write access:\n"
        "  patchwright action --resolve DIR    resolve the issue with a read-only token, save the result in DIR\n"
        "  patchwright action --publish DIR    check and publish the result; needs no model or sandbox",
        JOB_EXIT_CODES,
    )
    directory = command.add_mutually_exclusive_group()
    directory.add_argument(
        "--resolve", metavar="DIR", help="write nothing to GitHub; save the result in this directory"
    )
    directory.add_argument(
        "--publish",
        metavar="DIR",
        help="check and publish the result that another job saved in this directory",
    )
    add_settings_options(command)
    command.set_defaults(handler=run)


async def run(options: argparse.Namespace) -> int:
    """Handles the event that started a GitHub Actions workflow."""
    from patchwright.bot.cli.settings_loading import load_settings
    from patchwright.bot.github_action.workflow_jobs import run_workflow_job
    from patchwright.bot.terminal.output import print_stderr

    resolve_directory, publish_directory = (
        Path(path) if path else None for path in (options.resolve, options.publish)
    )
    return await run_workflow_job(
        lambda: load_settings(options, directory=None),
        print_stderr,
        resolve_directory=resolve_directory,
        publish_directory=publish_directory,
    )
