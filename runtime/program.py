"""Runs one program outside the shell. Limits its output and its time. Afterward, no process of the program's
session is left.
"""

import asyncio
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from patchwright.runtime import processes
from patchwright.runtime.output_text import CapturedOutput, OutputCapture

MAX_STREAM_BYTES = 4 << 20  # Maximum bytes of each stream that are kept.
DRAIN_TIMEOUT = 0.2  # Seconds to wait for the end of an output stream that a background process keeps open.


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """Exit code and output of a program."""

    exit_code: int | None
    """Exit code of the program. 128 plus the signal number if a signal ended the program. None if the program
    was killed at its timeout.
    """
    stdout: CapturedOutput
    stderr: CapturedOutput


async def run(argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float) -> ProgramResult:
    """Run a program with empty standard input. Also kill the background processes that the program leaves.

    Raises OSError if the program cannot be started.
    """
    process = _spawn(argv, cwd, env)
    out, err = OutputCapture(MAX_STREAM_BYTES), OutputCapture(MAX_STREAM_BYTES)
    try:
        with _capture_pipe(process.stdout, out) as out_ended, _capture_pipe(process.stderr, err) as err_ended:
            try:
                in_time = await wait_for_exit(process, timeout)
            finally:
                # asyncio's own subprocess cannot be used. Its wait() also waits for the end of the output,
                # and a background program can keep the output open forever.
                if process.returncode is None:  # After a process has ended, another process may get its pid.
                    processes.kill([process.pid, *processes.descendant_pids(process.pid)])
                processes.kill_session(process.pid)
            await wait_for_exit(process, DRAIN_TIMEOUT)
            await asyncio.wait([out_ended, err_ended], timeout=DRAIN_TIMEOUT)
    finally:
        process.wait()
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return ProgramResult(code if in_time else None, out.take(), err.take())


async def wait_for_exit(process: "subprocess.Popen[bytes]", timeout: float) -> bool:
    """Wait until a child process has ended. Returns False if it is still running after `timeout` seconds."""
    if process.poll() is not None:
        return True
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    watch = os.pidfd_open(process.pid)
    loop.add_reader(watch, ended.set)
    try:
        async with asyncio.timeout(timeout):
            await ended.wait()
    except TimeoutError:
        return False
    else:
        return process.poll() is not None
    finally:
        loop.remove_reader(watch)
        os.close(watch)


def _spawn(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=dict(env),
        start_new_session=True,
    )


@contextmanager
def _capture_pipe(stream: IO[bytes] | None, capture: OutputCapture) -> "Iterator[asyncio.Future[None]]":
    """Collect the output of a pipe while the context is open. Yields a future that completes when the output
    ends.
    """
    assert stream is not None
    loop = asyncio.get_running_loop()
    end: asyncio.Future[None] = loop.create_future()
    fd = stream.fileno()
    os.set_blocking(fd, False)

    def read() -> None:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if data:
            capture.add(data)
            return
        loop.remove_reader(fd)
        if not end.done():
            end.set_result(None)

    loop.add_reader(fd, read)
    try:
        yield end
    finally:
        loop.remove_reader(fd)
        stream.close()
