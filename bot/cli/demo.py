"""`patchwright demo` runs the demo."""

import argparse
from pathlib import Path

from patchwright.bot.terminal.help_screens import Subparsers, add_command


def add(commands: Subparsers) -> None:
    """Adds the command to the command line."""
    command = add_command(
        commands,
        "demo",
        "watch an issue become a pull request, without an account or API key",
        "Start a local GitHub fake with a sample repository and `patchwright serve`, label an issue, and watch it\n"
        "become a pull request. The model's replies are recorded; everything else is real.\n\n"
        "  patchwright demo --sandbox local",
        has_settings=False,
    )
    command.add_argument("--json", action="store_true", help="print the outcome as one JSON object")
    command.add_argument(
        "--sandbox", choices=("docker", "local", "auto"), default="auto", help="where commands run"
    )
    command.add_argument("--keep", metavar="DIR", help="keep the demo's data in this directory")
    command.set_defaults(handler=run)


async def run(options: argparse.Namespace) -> int:
    """Runs the demo, which resolves one issue with recorded model replies on a simulated GitHub."""
    from patchwright.bot.composition import composition_root
    from patchwright.bot.composition.sandbox_factory import choose_demo_sandbox
    from patchwright.bot.terminal.local_files import absolute_path
    from patchwright.bot.terminal.output import print_stderr
    from patchwright.demo.run import new_data_dir, run_demo

    environ = composition_root.read_environment()
    default_directory = Path(
        environ.get("PATCHWRIGHT_DATA") or composition_root.default_data_directory(environ)
    )
    data = absolute_path(options.keep) if options.keep else new_data_dir(default_directory)
    composition_root.check_data_directory(data, "--keep" if options.keep else "PATCHWRIGHT_DATA")
    overrides = {"sandbox": options.sandbox, "data": data, "sandbox_features": "none"}
    settings = composition_root.read_settings(
        overrides, composition_root.select_variables(environ, composition_root.IMAGE_VARIABLES), None, None
    )
    sandbox, fallback_reason = await choose_demo_sandbox(settings, environ, print_stderr)
    return await run_demo(sandbox, fallback_reason, data, environ, as_json=options.json)
