"""A terminal for tests: a real pty, with an emulator that renders what was written to it."""

import asyncio
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pyte


class Screen:
    """A terminal window."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self._master, self.slave = pty.openpty()
        self._screen = pyte.HistoryScreen(columns, lines, history=5000, ratio=0.001)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self._fed = 0
        self._reading = threading.Lock()
        self._closed = False
        self._reader = threading.Thread(target=self._read, daemon=True)  # A full pty would block its writer.
        self._reader.start()
        self._tell(columns, lines)

    def _read(self) -> None:
        while not self._closed:
            with self._reading:
                if select.select([self._master], [], [], 0)[0]:
                    self.raw += os.read(self._master, 1 << 16)
                    continue
            time.sleep(0.005)

    def resize(self, columns: int) -> None:
        """Changes the width. The height stays, because pyte 0.8 loses the cursor when it shrinks."""
        self._tell(columns, self._screen.lines)
        self._screen.resize(self._screen.lines, columns)

    def _tell(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Types these keys."""
        os.write(self._master, keys.encode())

    def read(self) -> None:
        """Feeds new output to the emulator until there is none left."""
        while True:
            time.sleep(0.02)  # The kernel delivers output with a delay.
            with self._reading:
                new, self._fed = self.raw[self._fed :], len(self.raw)
                more = select.select([self._master], [], [], 0)[0]
            self._stream.feed(new)
            if not new and not more:
                return

    @property
    def lines(self) -> list[str]:
        """The visible lines, without empty ones at the end."""
        self.read()
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip().split("\n")

    @property
    def line(self) -> str:
        """The line of the cursor."""
        row, _ = self.cursor
        lines = self.lines  # read after the cursor, because output may arrive in between
        return lines[min(row, len(lines) - 1)]

    @property
    def scrolled(self) -> list[str]:
        """The scrollback followed by the visible lines."""
        self.read()
        top = ["".join(row[n].data for n in range(self._screen.columns)) for row in self._screen.history.top]
        return [*(line.rstrip() for line in top), *self.lines]

    @property
    def cursor(self) -> tuple[int, int]:
        """Line and column of the cursor, from 0."""
        self.read()
        return self._screen.cursor.y, self._screen.cursor.x

    def colors(self, text: str) -> set[str]:
        """Returns the colors of the first occurrence of the text, and `bold` if all of it is bold."""
        for number, line in enumerate(self.lines):
            if text in line:
                row = self._screen.buffer[number]
                found = [row[n] for n in range(line.index(text), line.index(text) + len(text))]
                return {cell.fg for cell in found} | ({"bold"} if all(cell.bold for cell in found) else set())
        raise AssertionError(f"{text!r} is not on the screen: {self.lines}")

    async def until(self, condition: str | Callable[["Screen"], bool], seconds: float = 60) -> None:
        """Waits until the text (a regular expression) is visible, or the predicate is true."""
        try:
            async with asyncio.timeout(seconds):
                while not (
                    condition(self) if callable(condition) else re.search(condition, "\n".join(self.lines))
                ):
                    await asyncio.sleep(0.02)
        except TimeoutError as exc:
            raise AssertionError("never seen; there is\n" + "\n".join(self.scrolled)) from exc

    def run(
        self, command: list[str], env: Mapping[str, str], cwd: Path | None = None
    ) -> "subprocess.Popen[bytes]":
        """Starts a process with this controlling terminal, so that Ctrl-C reaches it."""

        def mine() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        return subprocess.Popen(
            command, env=dict(env), cwd=cwd, start_new_session=True, preexec_fn=mine,
            stdin=self.slave, stdout=self.slave, stderr=self.slave,
        )  # fmt: skip

    def close(self) -> None:
        self._closed = True
        self._reader.join()
        os.close(self._master)
        os.close(self.slave)


@contextmanager
def open_screen(columns: int = 80, lines: int = 24) -> Iterator[tuple[Screen, TextIO]]:
    """Yields a terminal window and a stream that writes to it."""
    screen = Screen(columns, lines)
    stream = os.fdopen(os.dup(screen.slave), "w", encoding="utf-8")
    try:
        yield screen, stream
    finally:
        stream.close()
        screen.close()
