"""The persistent shell: commands one after the other, and at most one that waits for input."""

import asyncio
import re
import signal as signals
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runtime.actions import MAX_SECONDS, Key
from runtime.bash import END, INTERRUPT, NOTHING, Bash
from runtime.observations import Ran
from runtime.spill import Spill
from runtime.text import Captured, shorten
from runtime.tree import Unfit

LONGEST_LINE = 4095  # bytes; the terminal drops what is longer (n_tty(4))

_SYNTAX = re.compile("unexpected EOF|unexpected end of file|syntax error")
PLAIN = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat"}
# Nobody is there to answer a prompt or to type into an editor.
UNATTENDED = {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "VIRTUAL_ENV_DISABLE_PROMPT": "1"}


@dataclass(frozen=True, slots=True)
class _Going:
    """A command that was given to bash."""

    command: str
    interactive: bool
    ended: "asyncio.Future[int | None]"
    """Its exit status; None when bash itself has ended."""
    older: frozenset[int]
    """Background jobs that were there before it."""
    deadline: float
    """time.monotonic() when even an interactive command is killed."""


class Shell:
    """One bash at a time; a new one is started when it has ended."""

    def __init__(self, cwd: Path, scratch: Path, env: Mapping[str, str]) -> None:
        self._home = cwd.resolve()
        self._told = str(self._home)
        """The directory that the shell is in, as far as was said."""
        self._env = {**env, **PLAIN, **UNATTENDED}
        self._spill = Spill(scratch)
        self._bash: Bash | None = None
        self._open: _Going | None = None
        """The interactive command that was left running."""
        self._going: _Going | None = None
        """The command that somebody waits for."""

    async def start(self) -> Bash:
        """The bash that runs, or a new one."""
        self._bash = self._bash or await Bash.start(self._home, self._env)
        return self._bash

    async def run(
        self,
        command: str,
        timeout: float,
        *,
        interactive: bool = False,
        lent: Mapping[str, str] = NOTHING,
    ) -> Ran:
        """Run one command; it is killed with all it started after `timeout` seconds.

        An interactive one is left running instead, for `send`. `lent` are variables that only this command has.
        Raises Unfit while an interactive one still runs.
        """
        begun = time.monotonic()
        notes: list[str] = []
        if self._open is not None:
            if not self._open.ended.done():
                raise Unfit("refused", _occupied(self._open.command))
            notes.append(f"before this command the interactive one ended ({_how(self._open)})")
            self._open = None
        try:
            if self._bash is not None and self._bash.has_ended:  # by a background job, or from outside
                notes.append("before this command " + await self._replace(self._bash))
            bash = await self.start()
            older = frozenset(bash.children())
            ended = bash.feed(command, interactive=interactive, lent=lent)
            going = _Going(command, interactive, ended, older, begun + MAX_SECONDS)
            return await self._wait(bash, going, timeout, begun, notes)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def send(self, text: str, key: Key | None, timeout: float) -> Ran:
        """Type at the interactive command that was left running, then wait for its end or `timeout` seconds.

        Raises Unfit when there is none.
        """
        begun = time.monotonic()
        if self._open is None or self._bash is None:
            raise Unfit(
                "refused", "no command waits for input: start one with run_shell and interactive set to true"
            )
        going, bash = self._open, self._bash
        if max(map(len, text.encode("utf-8", "replace").split(b"\n"))) > LONGEST_LINE:
            raise Unfit("malformed", f"a terminal takes lines of at most {LONGEST_LINE} bytes: use a file")
        notes: list[str] = []
        try:
            if not going.ended.done():
                if key == "kill" or begun > going.deadline:
                    notes.append("killed, with everything it had started")
                    await bash.interrupt(going.ended, going.older)
                else:
                    bash.type(_keys(text, key))
            elif text or key:
                notes.append("the command had ended before this was typed")
            return await self._wait(bash, going, timeout, begun, notes)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def interrupt(self) -> bool:
        """End the command that runs, with all it started, from beside `run` or `send`; False: none runs."""
        going, bash = self._going or self._open, self._bash
        if going is None or bash is None or going.ended.done():
            return False
        await bash.interrupt(going.ended, going.older)
        return True

    async def close(self) -> None:
        """End bash and everything it started."""
        self._open = None
        if self._bash is not None:
            bash, self._bash = self._bash, None
            await bash.close()

    async def _wait(self, bash: Bash, going: _Going, timeout: float, begun: float, notes: list[str]) -> Ran:
        """What came of a command until it ended or `timeout` seconds were over."""
        ended, killed = going.ended, False
        self._going = going
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(ended)
        except TimeoutError:
            if not going.interactive:
                killed = True
                notes.append(_killed(timeout))
                await bash.interrupt(ended, going.older)
        finally:
            self._going = None
        cwd = bash.cwd() or str(self._home)
        waits = going.interactive and not ended.done()
        self._open = going if waits else None
        if waits:
            notes.append("the command still runs: go on with send_input")
        elif not ended.done() or ended.result() is None:
            notes.append(await self._replace(bash))
            cwd = str(self._home)
        if (
            cwd != self._told
        ):  # seen only at the end of a long output, it is missed, and the next command goes astray
            notes.append(f"the shell is in {cwd} from here on")
            self._told = cwd
        status = ended.result() if ended.done() else None
        captured = bash.take_output()
        output = shorten(captured)
        if killed:
            output = output.removesuffix("Killed\n\n")  # bash about our own kill: the note says it better
        elif status and _SYNTAX.search(output) and (problem := await _syntax(going.command, self._env)):
            notes.append(f"bash cannot read the command, lines before the error may have run ({problem})")
        if kept := await self._spill.keep(captured):
            notes.append(kept)
        code = bash.code if status is None else status
        return Ran(
            output=output,
            exit_code=None if killed or waits else code,
            cwd=cwd,
            seconds=round(time.monotonic() - begun, 3),
            note="; ".join(notes) or None,
        )

    async def _replace(self, bash: Bash) -> str:
        self._bash = None
        await bash.close()
        match bash.code:
            case None if bash.signal is None:
                how = "did not come back and was killed"
            case None:
                how = f"was ended by signal {bash.signal}"
            case code:
                how = f"ended with status {code}"
        return f"the shell {how}; a new one starts in {self._home} without its variables, functions and jobs"


def _keys(text: str, key: Key | None) -> bytes:
    """What is typed: a text is a line, and Enter is pressed after it."""
    typed = text.encode("utf-8", "replace")
    if typed and not typed.endswith(b"\n"):
        typed += b"\n"
    return typed + {"ctrl-c": INTERRUPT, "ctrl-d": END}.get(key or "", b"")


def _occupied(command: str) -> str:
    line = command if len(command) <= 80 else command[:80] + "..."
    return (
        f"the shell still runs the interactive command `{line}`: give it input or wait for it with send_input, "
        'or end it with send_input and the key "ctrl-c", or "kill"'
    )


def _killed(timeout: float) -> str:
    longer = f"give it a longer timeout (up to {MAX_SECONDS:,} s), " if timeout < MAX_SECONDS else ""
    return (
        f"killed at its timeout of {timeout:g} s, with everything it had started: {longer}narrow it, "
        "or start it in the background (&, output to a file) and look later"
    )


def _how(going: _Going) -> str:
    status = going.ended.result()
    if status is None:
        return "with its shell"
    if status > 128 and status - 128 in set(signals.Signals):
        return f"by signal {signals.Signals(status - 128).name}"
    return f"exit code {status}"


async def _syntax(command: str, env: Mapping[str, str]) -> str | None:
    """What bash says about a command that it cannot parse; None when it can."""
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
            _, said = await process.communicate(command.encode("utf-8", "replace"))
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    if not process.returncode:
        return None
    first: Captured = Captured(said.split(b"\n")[0].removeprefix(b"bash: "))
    return shorten(first, 200)
