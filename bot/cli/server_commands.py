"""The commands of a server: `serve` and `work`."""

import argparse
import sys

from patchwright.bot.cli.options import JSON_ERROR_HELP, add_settings_options
from patchwright.bot.terminal.exit_codes import INTERRUPTED
from patchwright.bot.terminal.help_screens import Subparsers, add_command

PATCHWRIGHT = (sys.executable, "-P", "-m", "patchwright")
"""The start of the command lines of the server's child processes."""


def add_serve(commands: Subparsers) -> None:
    """Adds `serve` to the command line."""
    command = add_command(
        commands,
        "serve",
        "run the server: receive webhooks and resolve labeled issues",
        "Receive GitHub webhooks at POST /webhook and run jobs in a worker process (see `patchwright work`).\n"
        "/healthz, /readyz and /metrics report the server's state.\n\n"
        "Without configuration, the first start prints a URL and a code for the setup page. There you choose a model\n"
        "and create a GitHub App. Otherwise set PATCHWRIGHT_WEBHOOK_SECRET, PATCHWRIGHT_MODEL, and either\n"
        "GITHUB_TOKEN or an App's ID and private key. With --poll, you need no webhook and no webhook secret. If\n"
        "you use --poll with GITHUB_TOKEN, also set PATCHWRIGHT_ALLOWED_REPOSITORIES.\n\n"
        "  patchwright serve --host 0.0.0.0 --port 8000",
    )
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    command.add_argument("--port", type=int, default=8000, help="port to listen on (default %(default)s)")
    command.add_argument(
        "--poll",
        action="store_true",
        default=None,
        help="poll GitHub every 30 s instead of receiving webhooks; works behind a firewall",
    )
    command.add_argument(
        "--no-worker",
        action="store_true",
        help="only receive webhooks; `patchwright work` runs the jobs elsewhere (needs REDIS_URL)",
    )
    add_settings_options(command, json_help=JSON_ERROR_HELP)
    command.set_defaults(handler=serve)


async def serve(options: argparse.Namespace) -> int:
    """Runs the server: the receiver, Redis and a worker process."""
    from patchwright.bot.cli.settings_loading import load_server_settings, settings_arguments
    from patchwright.bot.composition import composition_root
    from patchwright.resolver.errors import SettingsError

    settings = load_server_settings(options)
    command, images = list[str](), list[str]()
    if not options.no_worker:
        exclusive = ["--exclusive"] if settings.redis_url is None else []
        command = [*PATCHWRIGHT, "work", *settings_arguments(options), *exclusive]
        images = [*PATCHWRIGHT, "prepare", *settings_arguments(options, "config", "sandbox", "image")]
    elif settings.redis_url is None:
        raise SettingsError(
            "REDIS_URL is not set. With --no-worker, set it to the Redis that the workers use."
        )
    probe = [*PATCHWRIGHT, "probe", "--json", *settings_arguments(options, "config")]
    serving = composition_root.start_server(
        settings, lambda: load_server_settings(options), command, probe, images, options.host, options.port
    )
    return INTERRUPTED if await serving else 0


def add_work(commands: Subparsers) -> None:
    """Adds `work` to the command line."""
    command = add_command(
        commands,
        "work",
        "run a worker that takes jobs from a server",
        "Take jobs from the Redis at REDIS_URL and run them. Start as many workers as you like, each with its own\n"
        "Docker engine. `patchwright serve` starts one worker itself. Use the same settings as for the server.\n\n"
        "  REDIS_URL=redis://queue:6379/0 patchwright work",
    )
    command.add_argument(
        "--exclusive",
        action="store_true",
        help="no other worker uses this Redis, so restart the jobs of a killed worker at once",
    )
    add_settings_options(command, json_help=JSON_ERROR_HELP)
    command.set_defaults(handler=work)


async def work(options: argparse.Namespace) -> int:
    """Runs a worker. The server that it works for may run on this machine or on another one."""
    from patchwright.bot.cli.settings_loading import load_server_settings
    from patchwright.bot.terminal.output import print_stderr

    settings = load_server_settings(options)  # first, so that an invalid setting is reported at once
    from patchwright.bot.cli.evaluate import build_evaluator
    from patchwright.bot.composition.worker_root import start_worker

    interrupted = await start_worker(settings, print_stderr, build_evaluator, exclusive=options.exclusive)
    return INTERRUPTED if interrupted else 0
