"""Kills the worker of a job when its run reaches a given point, observed from outside."""

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from typing import Literal, NamedTuple

HANGING, HANGS = (
    3,
    4.0,
)  # the model's reply with a command that is killed halfway, and its duration in seconds
PROOF = (3, 10, 20)  # tenths of a second after the end of the agent's work
LINE = re.compile(rb'\{"seq":(\d+),"timestamp":')


class Point(NamedTuple):
    """The point where a worker is killed."""

    what: Literal["line", "model", "command", "proof", "edit", "write"]
    number: int
    """Number of the line, the model's reply, the edit of the status comment, or any other write. For `proof`,
    tenths of a second after its start.
    """
    moment: Literal["before", "after"] = "before"


class Killer:
    """Kills the worker of the job once, when the run reaches the point."""

    def __init__(self, point: Point | None) -> None:
        self._point = point
        self.victim: int | None = None
        """Its process, once it is known."""
        self.at: float | None = None
        self._edits = self._writes = 0
        self.struck = asyncio.Event()

    def reached(self, point: Point) -> bool:
        """True if this was the point. A later line than the named one counts, because some lines have no
        fixed order.
        """
        target = self._point
        if self.victim is None or self.at is not None or target is None:
            return False
        late = target.what == "line" == point.what and point.number > target.number
        if point != target and not (late and point.moment == target.moment):
            return False
        os.kill(self.victim, signal.SIGKILL)
        self.at = time.monotonic()
        self.struck.set()
        return True

    def soon(self, point: Point, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self.reached, point)

    def witness(self, path: str, moment: Literal["before", "after"]) -> bool:
        """Observes requests to demo.github that change something, numbered from 1.

        Edits of the status comment are numbered apart: how many there are depends on how long the work takes.
        """
        if "/issues/comments/" in path:
            self._edits += moment == "before"
            return self.reached(Point("edit", self._edits, moment))
        self._writes += moment == "before"
        return self.reached(Point("write", self._writes, moment))

    def on_model_request(self, turn: int, request: object) -> None:
        """Observes requests to demo.recorded_model."""
        self.reached(Point("model", turn))
        if turn == HANGING:
            self.soon(Point("command", 0), HANGS / 2)

    @property
    def writes(self) -> int:
        return self._writes


class Relay:
    """A relay between a worker and Redis that sees which worker took the job, and each line of its log."""

    def __init__(self, redis: str, killer: Killer) -> None:
        self._redis = redis.removeprefix("unix://")
        self._killer = killer
        self.process: asyncio.subprocess.Process | None = None
        self.first_line: float | None = None
        """Time when this worker shared its first line."""
        self._proving = False

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        connections: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.add(asyncio.create_task(self._serve(reader, writer)))

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        try:
            yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_unix_connection(self._redis)
            lines: list[int] = []
            up = asyncio.create_task(self._up(reader, back, lines))
            down = asyncio.create_task(self._down(there, writer, lines))
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            for each in (back, writer):
                each.close()

    async def _up(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, lines: list[int]) -> None:
        tail = b""
        while chunk := await reader.read(1 << 20):
            here, tail = tail + chunk, chunk[-30:]
            process = self.process
            if b'"state":"running"' in here and self._killer.victim is None and process is not None:
                self._killer.victim = process.pid
            for number in map(int, LINE.findall(here)):
                if self._is_cut_off(Point("line", number, "before")):
                    return
                lines.append(number)
                self.first_line = self.first_line or time.monotonic()
            if b'"kind":"agent_stopped"' in here and not self._proving:
                self._proving = True
                for tenths in PROOF:
                    self._killer.soon(Point("proof", tenths), tenths / 10)
            back.write(chunk)
            await back.drain()

    async def _down(
        self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, lines: list[int]
    ) -> None:
        while chunk := await there.read(1 << 20):
            while lines:
                if self._is_cut_off(Point("line", lines.pop(0), "after")):
                    return
            writer.write(chunk)
            await writer.drain()

    def _is_cut_off(self, point: Point) -> bool:
        ours = self.process is not None and self._killer.victim == self.process.pid
        return ours and self._killer.reached(point)
