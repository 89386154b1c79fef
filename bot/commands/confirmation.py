"""Asks the person at the terminal for consent."""

import asyncio
import sys
from collections.abc import Mapping

from patchwright.bot.composition.sandbox_factory import find_engine_problem, requires_docker
from patchwright.bot.terminal.output import print_stderr, strip_control_chars
from patchwright.resolver.settings.settings import Settings


async def offer_local_sandbox(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """Offers the local sandbox to the person at the terminal if Docker is unavailable. If the person agrees,
    returns settings with the local sandbox.

    Otherwise returns the settings unchanged. Asks only if the settings allow both Docker and the local sandbox.
    """
    if settings.sandbox != "auto" or requires_docker(settings):
        return settings
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return settings
    problem = await find_engine_problem(environ)
    if problem is None:
        return settings
    print_stderr(f"{strip_control_chars(problem)}.")
    if not await _confirm("Let the model run its commands on this machine instead, without isolation?"):
        return settings
    return settings.model_copy(update={"sandbox": "local"})


async def _confirm(question: str) -> bool:
    """Asks a question on standard error. Only the answers `y` and `yes` mean yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answered = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, answered.set)
    try:  # If this thread waited for the answer, Ctrl-C would take effect only after the next line.
        await answered.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
