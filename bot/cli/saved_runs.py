"""The commands that read saved runs: `runs`, `view`, `export` and `replay`."""

import argparse

from patchwright.bot.cli.options import JSON_ERROR_HELP, add_config_and_json_options, add_run_argument
from patchwright.bot.terminal.exit_codes import CHECK_EXIT_CODES
from patchwright.bot.terminal.help_screens import Subparsers, add_command


def add_runs(commands: Subparsers) -> None:
    """Adds `runs` to the command line."""
    command = add_command(
        commands,
        "runs",
        "list the runs on this machine",
        "List the runs on this machine, newest first, with state, verdict, cost and time of the last change.\n\n"
        "  patchwright runs durations --state stopped",
    )
    command.add_argument(
        "text", nargs="?", metavar="TEXT", help="only runs whose name, repository or title contains this text"
    )
    command.add_argument(
        "--state",
        metavar="STATE",
        type=lambda state: state.replace(" ", "_"),
        help="only runs in this state: running, published, input_required, stopped ...",
    )
    command.add_argument(
        "--verdict", metavar="VERDICT", help="only runs with this verdict: fixed, conditional, unproven ..."
    )
    command.add_argument("--all", action="store_true", help="list all runs, not only the newest 20")
    add_config_and_json_options(command)
    command.set_defaults(handler=run)


def add_view(commands: Subparsers) -> None:
    """Adds `view` to the command line."""
    command = add_command(
        commands,
        "view",
        "export a run as an HTML file",
        "Export a run as one self-contained HTML file: steps with their output, edits as diffs, tests, images and\n"
        "cost. Secrets are masked. Prints the path of the file.\n\n"
        "  patchwright view last",
    )
    add_run_argument(command)
    command.add_argument(
        "--out", metavar="FILE", help="output file (default: view.html in the run's directory)"
    )
    command.add_argument(
        "--open",
        action=argparse.BooleanOptionalAction,
        help="open it in a browser (default if a terminal and a browser are available)",
    )
    add_config_and_json_options(command)
    command.set_defaults(handler=run)


def add_export(commands: Subparsers) -> None:
    """Adds `export` to the command line."""
    command = add_command(
        commands,
        "export",
        "print the events of a run as JSON lines",
        "Print the events of a run and of its subagents as JSON lines. Secrets are masked.\n\n"
        "  patchwright export last --out run.jsonl",
    )
    add_run_argument(command)
    command.add_argument("--out", metavar="FILE", help="output file (default: standard output)")
    command.add_argument("--config", metavar="FILE", help="settings file (default ./patchwright.toml)")
    command.add_argument("--json", action="store_true", help=JSON_ERROR_HELP)
    command.set_defaults(handler=run)


def add_replay(commands: Subparsers) -> None:
    """Adds `replay` to the command line."""
    command = add_command(
        commands,
        "replay",
        "rebuild the prompts of a run from its log",
        "Rebuild the prompt of each step of a run without a model or sandbox. Compare it with the prompt that was\n"
        "sent. With --step, print one prompt. Exits with 0 if all are identical, otherwise with 3.\n\n"
        "  patchwright replay last --step 4",
        CHECK_EXIT_CODES,
    )
    add_run_argument(command)
    command.add_argument("--step", type=int, metavar="N", help="print the prompt of step N")
    add_config_and_json_options(command)
    command.set_defaults(handler=run)


async def run(options: argparse.Namespace) -> int:
    """Runs a command that reads runs from the local disk or the archive."""
    from patchwright.bot.cli.settings_loading import load_settings
    from patchwright.bot.commands.inspect_commands import run_inspect_command
    from patchwright.bot.composition import composition_root
    from patchwright.bot.credentials import collect_secrets

    settings, environ = load_settings(options), composition_root.read_environment()
    return run_inspect_command(options, settings, collect_secrets(settings, environ), environ)
