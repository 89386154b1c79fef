"""Long-running programs that exchange lines with the host, such as tool servers."""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchwright.runtime import processes
from patchwright.runtime.observations import ProcessOutput
from patchwright.runtime.output_text import OutputCapture, clip_captured

MAX_PROCESSES = 8  # Maximum number of programs at the same time.
# Maximum bytes of lines that were not read yet. A program that prints more is killed.
MAX_BUFFERED_BYTES = 8 << 20
MAX_LINE_BYTES = 4 << 20  # maximum bytes of one line
MAX_STDERR_CHARS = 2_000  # Maximum characters of the standard error output that are returned.


class LineProcess:
    """One program that reads and writes lines. Only a part of its standard error output is kept."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lines = bytearray()
        self._partial_line = bytearray()
        self._has_news = asyncio.Event()
        self._stderr = OutputCapture(1 << 16)
        self._abort_reason = ""
        self._tasks = [asyncio.ensure_future(self._read_stdout()), asyncio.ensure_future(self._read_stderr())]

    @classmethod
    async def start(cls, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> "LineProcess":
        """Start the program. Raises OSError if it does not exist."""
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

    async def exchange(self, lines: bytes, wait_seconds: float) -> ProcessOutput:
        """Write lines to the program, then return its output. If there is output already, return it at once.
        Otherwise, wait for output for at most `wait_seconds`.
        """
        stdin = self._process.stdin
        assert stdin is not None
        if lines:
            # The program has ended, or does not read its input. The result shows which of the two is true.
            with contextlib.suppress(OSError, TimeoutError):
                stdin.write(lines)
                async with asyncio.timeout(wait_seconds):
                    await stdin.drain()
        if not self._lines and not self._has_ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    await self._has_news.wait()
        output = bytes(self._lines)
        self._lines.clear()
        if not self._has_ended:
            self._has_news.clear()
        return ProcessOutput(
            lines=output,
            has_ended=self._has_ended,
            exit_code=self._process.returncode,
            stderr=self._abort_reason or clip_captured(self._stderr.take(), MAX_STDERR_CHARS),
        )

    async def close(self) -> None:
        """Kill the program and everything that it started."""
        for task in self._tasks:
            task.cancel()
        processes.kill_session(self._process.pid)
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _has_ended(self) -> bool:
        return all(task.done() for task in self._tasks) or bool(self._abort_reason)

    async def _read_stdout(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            while data := await stdout.read(1 << 16):
                self._partial_line += data
                if length := data.rfind(b"\n") + 1:
                    length += len(self._partial_line) - len(data)
                    self._lines += self._partial_line[:length]
                    del self._partial_line[:length]
                    self._has_news.set()
                if len(self._partial_line) > MAX_LINE_BYTES:
                    return self._abort(f"killed: it printed a line of more than {MAX_LINE_BYTES >> 20} MiB")
                if len(self._lines) > MAX_BUFFERED_BYTES:
                    return self._abort(f"killed: it printed more than {MAX_BUFFERED_BYTES >> 20} MiB at once")
        finally:
            self._has_news.set()

    async def _read_stderr(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        try:
            while data := await stderr.read(1 << 16):
                self._stderr.add(data)
            await self._process.wait()
        finally:
            self._has_news.set()

    def _abort(self, reason: str) -> None:
        self._abort_reason = reason
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
