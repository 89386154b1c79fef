"""Asks the person at the terminal for consent: to run commands without isolation, and to run a risky call."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext

from patchwright.bot.composition.sandbox_factory import find_engine_problem, requires_docker
from patchwright.bot.terminal.live_display import LiveDisplay
from patchwright.bot.terminal.output import print_stderr, strip_control_chars
from patchwright.resolver.command_parser import parse_request
from patchwright.resolver.confirmation import DECISION_TIMEOUT, ConfirmationRequest
from patchwright.resolver.domain import Job
from patchwright.resolver.events import Message
from patchwright.resolver.run_log import Listener
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
    return (await _read_line()).strip().lower() in ("y", "yes")


async def _read_line() -> str:
    answered = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, answered.set)
    try:  # If this thread waited for the answer, Ctrl-C would take effect only after the next line.
        await answered.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline()


AskPerson = Callable[[ConfirmationRequest, Job], Awaitable[Message | None]]


def find_person(listener: Listener, *, is_json: bool) -> AskPerson | None:
    """Returns a function that asks the person at the terminal whether a call may run; None if there is no terminal."""
    has_display = isinstance(listener, LiveDisplay)  # It replaces `sys.stderr`.
    if is_json or not (sys.stdin.isatty() and (has_display or sys.stderr.isatty())):
        return None

    async def ask(request: ConfirmationRequest, job: Job) -> Message | None:
        from patchwright.resolver.pipeline.call_decisions import build_decision_message

        with listener.paused() if isinstance(listener, LiveDisplay) else nullcontext(sys.stderr) as terminal:
            text = f"The agent wants to run this call, because {request.reason} (risk: {request.risk}):"
            print(f"\n{strip_control_chars(text)}\n{strip_control_chars(request.call)}", file=terminal)
            print(CALL_QUESTION, end="", file=terminal, flush=True)
            try:
                async with asyncio.timeout(DECISION_TIMEOUT.total_seconds()):
                    answer = await _read_line()
            except TimeoutError:
                print("\nNobody answered, so the call is rejected.", file=terminal)
                job, answer = job.model_copy(update={"expired_call": request.code}), "n\n"
        if not answer:  # Ctrl-D: the call waits until the run is continued.
            return None
        return build_decision_message(job, parse_request(_as_command(answer.strip())), request)

    return ask


CALL_QUESTION = (
    "Run it? y: yes; a: yes, and all like this; n: no; or write what the agent should do instead: "
)


def _as_command(answer: str) -> str:
    match answer.lower():
        case "y" | "yes":
            return "approve"
        case "a" | "all":
            return "approve all like this"
        case "" | "n" | "no":
            return "reject"
        case _:
            return f"reject: {answer}"
