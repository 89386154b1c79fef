"""The commands that check the configuration: `probe` and `doctor`."""

import argparse

from patchwright.bot.cli.options import add_config_and_json_options
from patchwright.bot.terminal.exit_codes import CHECK_EXIT_CODES, SUCCESS, UNSUCCESSFUL
from patchwright.bot.terminal.help_screens import Subparsers, add_command


def add_probe(commands: Subparsers) -> None:
    """Adds `probe` to the command line."""
    command = add_command(
        commands,
        "probe",
        "test whether the model can drive the agent",
        "Ask the model and each fallback for one small tool call, and report which of them can drive the agent.\n"
        "Exits with 0 if all configured models can drive the agent, otherwise with 3.\n\n"
        "  patchwright probe --model anthropic/claude-sonnet-5",
        CHECK_EXIT_CODES,
    )
    command.add_argument("--model", metavar="NAME", help="litellm name, such as anthropic/claude-sonnet-5")
    command.add_argument(
        "--base-url", dest="model_base_url", metavar="URL", help="OpenAI-compatible endpoint"
    )
    add_config_and_json_options(command)
    command.set_defaults(handler=probe)


async def probe(options: argparse.Namespace) -> int:
    """Tests whether each configured model can drive the agent."""
    from patchwright.bot.cli.settings_loading import load_settings
    from patchwright.bot.commands.probe_command import run_probe
    from patchwright.bot.composition import composition_root

    settings, environ = load_settings(options), composition_root.read_environment()
    return SUCCESS if await run_probe(settings, environ, as_json=options.json) else UNSUCCESSFUL


def add_doctor(commands: Subparsers) -> None:
    """Adds `doctor` to the command line."""
    command = add_command(
        commands,
        "doctor",
        "check everything that a server or a run needs, and show how to fix problems",
        "Check access to GitHub, the webhook, Redis, the Docker engine with its images and limits, the model, disk,\n"
        "memory and clock. Requests a ping from GitHub and one small reply from the model. Changes no settings.\n"
        "Exits with 0 if no check failed, otherwise with 3.\n\n"
        "  patchwright doctor --config /etc/patchwright/patchwright.toml",
        CHECK_EXIT_CODES,
    )
    add_config_and_json_options(command)
    command.set_defaults(handler=doctor)


async def doctor(options: argparse.Namespace) -> int:
    """Checks that everything a run needs is available."""
    from patchwright.bot.cli.settings_loading import load_settings
    from patchwright.bot.composition import composition_root
    from patchwright.bot.credentials import collect_secrets, read_private_key
    from patchwright.bot.doctor.report import all_checks, print_report

    settings, environ = load_settings(options), composition_root.read_environment()
    checks = all_checks(settings, read_private_key(settings), environ)
    healthy = await print_report(checks, collect_secrets(settings, environ), environ, as_json=options.json)
    return SUCCESS if healthy else UNSUCCESSFUL
