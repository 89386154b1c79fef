"""Runs the commands of the command line and maps their results and errors to exit codes."""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

from patchwright.bot.errors import ForgeUnavailable, WorkerFailed
from patchwright.bot.observe.logging_setup import TextFormatter
from patchwright.bot.terminal.exit_codes import ERROR, INTERRUPTED, SUCCESS, USAGE_ERROR
from patchwright.bot.terminal.output import end_sentence, print_json, strip_control_chars
from patchwright.resolver.errors import (
    Forbidden,
    LogLocked,
    ModelAccessDenied,
    NotFound,
    RepositoryUnusable,
    ResolverError,
    SettingsError,
    Unauthorized,
    UsageError,
)
from patchwright.runtime.errors import EngineStopped, EngineUnavailable, ImageUnavailable, SandboxError

OPERATOR_ERRORS = (
    SettingsError, UsageError, RepositoryUnusable, ModelAccessDenied, NotFound, Unauthorized, Forbidden,
    EngineUnavailable, ImageUnavailable, LogLocked,
)  # fmt: skip
"""Errors that the operator must fix by changing the command, the settings or the permissions, or by waiting."""
ERROR_HINTS = {
    Unauthorized: "Check GITHUB_TOKEN, or PATCHWRIGHT_APP_ID and its private key.",
    Forbidden: "The token needs read and write access to contents, issues and pull requests of the repository.",
    NotFound: "Check the URL, and that GITHUB_TOKEN or the App has access to the repository.",
    ForgeUnavailable: "Check the network and GITHUB_SERVER_URL.",
}

READ_ONLY_COMMANDS = frozenset({"runs", "view", "export", "replay", "probe", "doctor", "completion"})
"""The names of the commands that only print information and change nothing."""

STDERR = 2  # file descriptor
STOPPING = "Stopping. This can take up to 20 seconds."
CLEAR_FRAME = "\r\x1b[J"  # erases the live display, which draws itself again

T = TypeVar("T")


def run_command(options: argparse.Namespace) -> int:
    """Runs the selected command and returns its exit code. Prints each expected error as one sentence to
    standard error.
    """
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[lines])
    try:
        work = _with_interrupt_notice(options.handler(options))
        code = _loop_runner(options.command)(_cancel_on_sigterm(work))
        if options.command in READ_ONLY_COMMANDS:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        if options.command not in READ_ONLY_COMMANDS:
            raise
        # The reader has closed the pipe, as `| head` does. Without this line, Python would print another
        # error when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SUCCESS
    except WorkerFailed as exc:
        code = exc.exit_code if exc.exit_code in range(1, 128) else ERROR
        if options.json:  # The worker has already printed the reason to standard error.
            kind = type(exc).__name__
            print_json(
                {
                    "outcome": "error",
                    "error": f"{exc} See the standard error of the worker.",
                    "kind": kind,
                    "exit_code": code,
                }
            )
        return code
    except OPERATOR_ERRORS as exc:
        # EngineStopped is no usage error: the engine responded before it stopped.
        return report_error(options, exc, ERROR if isinstance(exc, EngineStopped) else USAGE_ERROR)
    except (ResolverError, SandboxError) as exc:
        return report_error(options, exc, ERROR)
    except (KeyboardInterrupt, asyncio.CancelledError):
        # The command has already stopped, so a second Ctrl-C must not print a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print(_stopped_text(options), file=sys.stderr)
        if options.json:
            saved_run = getattr(options, "saved_run", {})
            print_json({"outcome": "interrupted", "exit_code": INTERRUPTED, **saved_run})
        return INTERRUPTED


def _stopped_text(options: argparse.Namespace) -> str:
    if options.command != "resolve" or hasattr(options, "saved_run"):
        return "Stopped."
    if options.run:
        return "Stopped. The run was not changed."
    return "Stopped. The run had not started, so nothing was saved."


def _loop_runner(command: str) -> Callable[[Coroutine[Any, Any, int]], int]:
    """Returns the function that runs the event loop.

    `serve` uses uvloop, which halves the cost of a delivery (benchmarks/receiver.py). Other commands would
    not benefit.
    """
    if command != "serve":
        return asyncio.run
    import uvloop

    return uvloop.run


async def _cancel_on_sigterm(work: Coroutine[Any, Any, T]) -> T:
    """Awaits a command. Cancels the command if the process gets SIGTERM. The command can then close its
    resources, as after Ctrl-C.
    """
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


async def _with_interrupt_notice(work: Coroutine[Any, Any, T]) -> T:
    """Awaits a command. At the first Ctrl-C, prints at once that the command stops, because that takes time."""
    cancel = signal.getsignal(signal.SIGINT)

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        assert callable(cancel)
        signal.signal(signal.SIGINT, cancel)
        # litellm hands coroutines to threads, which no longer run them.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        # The event loop may be blocked by an import, and `print` may be interrupted by this handler.
        with contextlib.suppress(OSError):
            os.write(STDERR, f"{CLEAR_FRAME if os.isatty(STDERR) else ''}{STOPPING}\n".encode())
        cancel(number, frame)

    if callable(cancel):  # A job in the background of a shell script ignores Ctrl-C.
        signal.signal(signal.SIGINT, on_interrupt)
    return await work


def report_error(options: argparse.Namespace, error: Exception, code: int) -> int:
    """Prints the error to standard error. With --json, also prints it as a JSON object to standard output.
    Returns the exit code `code`.
    """
    hint = next((hint for kind, hint in ERROR_HINTS.items() if isinstance(error, kind)), None)
    text = f"{str(error).rstrip('.')}. {hint}" if hint else end_sentence(str(error))
    sentence = strip_control_chars(text)
    print(f"patchwright: {sentence}", file=sys.stderr)
    if options.json:
        print_json({"outcome": "error", "error": sentence, "kind": type(error).__name__, "exit_code": code})
    return code
