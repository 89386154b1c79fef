"""The persistent shell. It runs one command at a time. At most one command may wait for input."""

import asyncio
import re
import signal as signals
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchwright.runtime.actions import MAX_TIMEOUT, Key
from patchwright.runtime.bash import COLUMNS, CTRL_C, CTRL_D, NO_VARIABLES, Bash
from patchwright.runtime.observations import ShellResult
from patchwright.runtime.output_file import OutputFiles
from patchwright.runtime.output_text import CapturedOutput, clip_captured
from patchwright.runtime.path_guard import ToolInputError

MAX_LINE_BYTES = 4095  # Maximum bytes of a line. The terminal drops the rest of a longer line (n_tty(4)).

_SYNTAX_ERROR = re.compile("unexpected EOF|unexpected end of file|syntax error")
PLAIN_OUTPUT_ENV = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat"}
# Without these variables, programs that write to a pipe would assume 80 columns, and Python would buffer its
# output. Buffered output is lost if the command is killed at its timeout.
PIPED_OUTPUT_ENV = {"COLUMNS": str(COLUMNS), "PYTHONUNBUFFERED": "1"}
# With these variables, git does not open an editor and does not ask for a password.
NON_INTERACTIVE_ENV = {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "VIRTUAL_ENV_DISABLE_PROMPT": "1"}


@dataclass(frozen=True, slots=True)
class _RunningCommand:
    """A command that was sent to bash."""

    command: str
    interactive: bool
    completion: "asyncio.Future[int | None]"
    """Exit status of the command; None if bash itself has ended."""
    background_pids: frozenset[int]
    """Pids of the background jobs that were running before the command."""
    deadline: float
    """Time at which the command is killed even if it is interactive, as a value of time.monotonic()."""


class Shell:
    """Keeps one bash process running, and starts a new one when it has ended."""

    def __init__(self, cwd: Path, scratch: Path, env: Mapping[str, str]) -> None:
        self._start_directory = cwd.resolve()
        self._reported_cwd = str(self._start_directory)
        """The working directory that was last reported to the agent."""
        self._env = {**env, **PLAIN_OUTPUT_ENV, **PIPED_OUTPUT_ENV, **NON_INTERACTIVE_ENV}
        self._output_files = OutputFiles(scratch)
        self._bash: Bash | None = None
        self._interactive: _RunningCommand | None = None
        """The interactive command that is still running after its call has returned; None if there is none.
        """
        self._current: _RunningCommand | None = None
        """The command that `run` or `send` currently waits for; None if there is none."""

    async def start(self) -> Bash:
        """Return the running bash process, or start a new one."""
        self._bash = self._bash or await Bash.start(self._start_directory, self._env)
        return self._bash

    async def run(
        self,
        command: str,
        timeout: float,
        *,
        interactive: bool = False,
        secret_env: Mapping[str, str] = NO_VARIABLES,
    ) -> ShellResult:
        """Run one command. If it takes longer than `timeout` seconds, kill the command and everything that it
        started.

        An interactive command is not killed. It continues, and `send` can type into it. `secret_env` contains
        variables that only the new command gets. Raises ToolInputError while an interactive command is still running.
        """
        started_at = time.monotonic()
        notes: list[str] = []
        if self._interactive is not None:
            if not self._interactive.completion.done():
                raise ToolInputError("refused", _busy_message(self._interactive.command))
            notes.append(
                f"the interactive command ended before this command ({_describe_exit(self._interactive)})"
            )
            self._interactive = None
        try:
            # A background job or another process has ended bash.
            if self._bash is not None and self._bash.has_ended:
                notes.append("before this command " + await self._discard(self._bash))
            bash = await self.start()
            background_pids = frozenset(bash.children())
            completion = bash.start_command(command, interactive=interactive, secret_env=secret_env)
            running = _RunningCommand(
                command, interactive, completion, background_pids, started_at + MAX_TIMEOUT
            )
            return await self._wait(bash, running, timeout, started_at, notes)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def send(self, text: str, key: Key | None, timeout: float) -> ShellResult:
        """Type into the interactive command, then wait until it ends or `timeout` seconds have passed.

        Raises ToolInputError if no interactive command is running.
        """
        started_at = time.monotonic()
        if self._interactive is None or self._bash is None:
            raise ToolInputError(
                "refused", "no command waits for input: start one with run_shell and interactive set to true"
            )
        running, bash = self._interactive, self._bash
        if max(map(len, text.encode("utf-8", "replace").split(b"\n"))) > MAX_LINE_BYTES:
            raise ToolInputError(
                "malformed",
                f"a terminal accepts lines of at most {MAX_LINE_BYTES} bytes: write longer text to a file",
            )
        notes: list[str] = []
        try:
            if not running.completion.done():
                if key == "kill" or started_at > running.deadline:
                    notes.append("the command was killed with everything it had started")
                    await bash.interrupt(running.completion, running.background_pids)
                else:
                    bash.type_keys(_encode_keys(text, key))
            elif text or key:
                notes.append("nothing was typed, because the command had already ended")
            return await self._wait(bash, running, timeout, started_at, notes)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def interrupt(self) -> bool:
        """Kill the command that `run` or `send` is waiting for, and everything that this command started.
        Return False if there is no such command.
        """
        running, bash = self._current or self._interactive, self._bash
        if running is None or bash is None or running.completion.done():
            return False
        await bash.interrupt(running.completion, running.background_pids)
        return True

    async def close(self) -> None:
        """Kill bash and everything that it started."""
        self._interactive = None
        if self._bash is not None:
            bash, self._bash = self._bash, None
            await bash.close()

    async def _wait(
        self, bash: Bash, running: _RunningCommand, timeout: float, started_at: float, notes: list[str]
    ) -> ShellResult:
        """Wait until the command ends, but at most `timeout` seconds. Return the result."""
        completion, killed = running.completion, False
        self._current = running
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(completion)
        except TimeoutError:
            if not running.interactive:
                killed = True
                notes.append(_timeout_message(timeout))
                await bash.interrupt(completion, running.background_pids)
        finally:
            self._current = None
        cwd = bash.cwd() or str(self._start_directory)
        still_runs = running.interactive and not completion.done()
        self._interactive = running if still_runs else None
        if still_runs:
            notes.append("the command is still running: continue with send_input")
        elif not completion.done() or completion.result() is None:
            notes.append(await self._discard(bash))
            cwd = str(self._start_directory)
        # The directory may have changed at the end of a long output. The agent would easily miss this, and
        # would run the next command in the wrong place.
        if cwd != self._reported_cwd:
            notes.append(f"the shell is now in {cwd}")
            self._reported_cwd = cwd
        status = completion.result() if completion.done() else None
        captured = bash.take_output()
        output = clip_captured(captured)
        if killed:
            # bash prints this message when the shell itself kills the command. `note` explains it more
            # clearly.
            output = output.removesuffix("Killed\n\n")
        elif (
            status
            and _SYNTAX_ERROR.search(output)
            and (problem := await _check_syntax(running.command, self._env))
        ):
            notes.append(
                f"bash cannot parse the command ({problem}); the lines before the error may have run"
            )
        if note := await self._output_files.save(captured):
            notes.append(note)
        code = bash.exit_code if status is None else status
        return ShellResult(
            output=output,
            exit_code=None if killed or still_runs else code,
            cwd=cwd,
            seconds=round(time.monotonic() - started_at, 3),
            note="; ".join(notes) or None,
        )

    async def _discard(self, bash: Bash) -> str:
        self._bash = None
        await bash.close()
        match bash.exit_code:
            case None if bash.exit_signal is None:
                how = "did not respond and was killed"
            case None:
                how = f"was ended by signal {bash.exit_signal}"
            case code:
                how = f"ended with status {code}"
        return f"the shell {how}; a new shell starts in {self._start_directory} without variables, functions and jobs"


def _encode_keys(text: str, key: Key | None) -> bytes:
    """Return the bytes to type: the text, Enter, and then the key."""
    typed = text.encode("utf-8", "replace")
    if typed and not typed.endswith(b"\n"):
        typed += b"\n"
    return typed + {"ctrl-c": CTRL_C, "ctrl-d": CTRL_D}.get(key or "", b"")


def _busy_message(command: str) -> str:
    line = command if len(command) <= 80 else command[:80] + "..."
    return (
        f"the interactive command `{line}` is still running: use send_input to type into it or to wait for it, "
        'or to end it with the key "ctrl-c" or "kill"'
    )


def _timeout_message(timeout: float) -> str:
    longer = f"set a longer timeout (up to {MAX_TIMEOUT:,} s), " if timeout < MAX_TIMEOUT else ""
    return (
        f"the command was killed at its timeout of {timeout:g} s, with everything it had started: {longer}run a "
        "narrower command, or run it in the background (&) with its output in a file"
    )


def _describe_exit(command: _RunningCommand) -> str:
    status = command.completion.result()
    if status is None:
        return "with its shell"
    if status > 128 and status - 128 in set(signals.Signals):
        return f"by signal {signals.Signals(status - 128).name}"
    return f"exit code {status}"


async def _check_syntax(command: str, env: Mapping[str, str]) -> str | None:
    """Return bash's error message if bash cannot parse the command; otherwise None."""
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-n",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=dict(env),
    )
    try:
        async with asyncio.timeout(5):
            _, stderr = await process.communicate(command.encode("utf-8", "replace"))
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    if not process.returncode:
        return None
    first: CapturedOutput = CapturedOutput(stderr.split(b"\n")[0].removeprefix(b"bash: "))
    return clip_captured(first, 200)
