"""`patchwright docker-proxy` runs the Docker proxy for workers."""

import argparse
import logging
import signal
from pathlib import Path

from patchwright.bot.cli.options import JSON_ERROR_HELP
from patchwright.bot.terminal.exit_codes import INTERRUPTED
from patchwright.bot.terminal.help_screens import Subparsers, add_command


def add(commands: Subparsers) -> None:
    """Adds the command to the command line."""
    command = add_command(
        commands,
        "docker-proxy",
        "run a Docker proxy that allows only sandbox containers",
        "Access to the Docker socket means root access to the machine. Run this proxy as a user with that access,\n"
        "and give the workers the proxy's socket instead. The proxy allows only Patchwright's images, and only\n"
        "containers with the isolation of a Patchwright sandbox.\n\n"
        "  patchwright docker-proxy --listen /run/patchwright/engine.sock --group 10001\n"
        "  DOCKER_HOST=unix:///run/patchwright/engine.sock patchwright work",
        has_settings=False,
    )
    command.add_argument("--listen", metavar="PATH", required=True, help="socket for the workers")
    command.add_argument(
        "--engine",
        metavar="PATH",
        default="/var/run/docker.sock",
        help="socket of the Docker engine (default %(default)s)",
    )
    command.add_argument("--group", metavar="GROUP", help="group that may connect, by name or number")
    command.add_argument("--json", action="store_true", help=JSON_ERROR_HELP)
    command.set_defaults(handler=run)


async def run(options: argparse.Namespace) -> int:
    """Runs the Docker proxy for workers until Ctrl-C or SIGTERM."""
    from patchwright.bot.docker_proxy.proxy import DockerProxy
    from patchwright.bot.signals import catch_stop_signals
    from patchwright.bot.terminal.local_files import absolute_path

    logging.getLogger("patchwright.bot").setLevel(logging.INFO)
    group = int(options.group) if (options.group or "").isdigit() else options.group
    with catch_stop_signals() as stop_signal:
        async with DockerProxy(Path(options.engine)).listen(absolute_path(options.listen), group):
            print(f"patchwright Docker proxy is listening on {options.listen}", flush=True)
            return INTERRUPTED if await stop_signal == signal.SIGINT else 0
