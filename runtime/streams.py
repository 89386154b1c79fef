"""Programs that are talked to line by line for as long as the sandbox lives: servers of tools, say."""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtime import processes
from runtime.observations import Heard
from runtime.text import Capture, shorten

MOST = 8  # programs at a time
HELD = 8 << 20  # bytes of lines that wait to be heard; a program that says more is ended
LONGEST = 4 << 20  # bytes of one line
TOLD = 2_000  # characters of what it wrote to standard error


class Stream:
    """One program: lines go in, lines come out, what it writes to standard error is kept in part."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lines = bytearray()
        self._unended = bytearray()
        self._news = asyncio.Event()
        self._said = Capture(1 << 16)
        self._broken = ""
        self._reading = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._listen())]

    @classmethod
    async def start(cls, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> "Stream":
        """Raises OSError when there is no such program."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env=dict(env),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        return cls(process)

    async def converse(self, lines: bytes, wait: float) -> Heard:
        """Say these lines, then hear what has come, at once if there is any, else within `wait` seconds."""
        stdin = self._process.stdin
        assert stdin is not None
        if lines:
            with contextlib.suppress(OSError, TimeoutError):  # it has ended, or does not listen: heard tells
                stdin.write(lines)
                async with asyncio.timeout(wait):
                    await stdin.drain()
        if not self._lines and not self._has_ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._news.wait()
        heard = bytes(self._lines)
        self._lines.clear()
        if not self._has_ended:
            self._news.clear()
        return Heard(
            lines=heard,
            ended=self._has_ended,
            exit_code=self._process.returncode,
            said=self._broken or shorten(self._said.take(), TOLD),
        )

    async def close(self) -> None:
        """End it, with everything that it started."""
        for task in self._reading:
            task.cancel()
        processes.kill_session(self._process.pid)
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        await asyncio.gather(*self._reading, return_exceptions=True)

    @property
    def _has_ended(self) -> bool:
        return all(task.done() for task in self._reading) or bool(self._broken)

    async def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            while data := await stdout.read(1 << 16):
                self._unended += data
                if whole := data.rfind(b"\n") + 1:
                    whole += len(self._unended) - len(data)
                    self._lines += self._unended[:whole]
                    del self._unended[:whole]
                    self._news.set()
                if len(self._unended) > LONGEST:
                    return self._give_up(f"it said a line of more than {LONGEST >> 20} MiB")
                if len(self._lines) > HELD:
                    return self._give_up(f"it said more than {HELD >> 20} MiB at once")
        finally:
            self._news.set()

    async def _listen(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        try:
            while data := await stderr.read(1 << 16):
                self._said.add(data)
            await self._process.wait()
        finally:
            self._news.set()

    def _give_up(self, why: str) -> None:
        self._broken = why
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
