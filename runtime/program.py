"""One program outside of the shell: bounded output, bounded time, nothing left running in its session."""

import asyncio
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from runtime import processes
from runtime.text import Capture, Captured

STREAM = 4 << 20  # bytes kept of each stream
DRAIN = 0.2  # seconds to wait for the end of output that something left behind still holds open


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended."""

    code: int | None
    """Exit status, 128 and its number for a signal. None: killed at its timeout."""
    stdout: Captured
    stderr: Captured


async def run(argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float) -> Ended:
    """Run a program with empty standard input; what it leaves in the background is killed as well.

    Raises OSError when it cannot be started.
    """
    process = _spawn(argv, cwd, env)
    out, err = Capture(STREAM), Capture(STREAM)
    try:
        with _reading(process.stdout, out) as out_ended, _reading(process.stderr, err) as err_ended:
            try:
                in_time = await exited(process, timeout)
            finally:
                # Not asyncio's own subprocess: its wait() waits for the end of the output too, which a
                # program in the background can hold open for as long as it likes.
                if process.returncode is None:  # else its pid may already be somebody else's
                    processes.kill([process.pid, *processes.descendants(process.pid)])
                processes.kill_session(process.pid)
            await exited(process, DRAIN)
            await asyncio.wait([out_ended, err_ended], timeout=DRAIN)
    finally:
        process.wait()
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return Ended(code if in_time else None, out.take(), err.take())


async def exited(process: "subprocess.Popen[bytes]", timeout: float) -> bool:
    """Wait until a child has ended; False when it still runs after `timeout` seconds."""
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
def _reading(stream: IO[bytes] | None, into: Capture) -> "Iterator[asyncio.Future[None]]":
    """Collect a pipe while the context lasts; yields what is done at its end."""
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
            into.add(data)
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
