"""IPython in the sandbox: one session, started with its first cell, whose state lasts as long as the sandbox."""

import asyncio
import base64
import binascii
import contextlib
import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from runtime.kernel.boot import CELL_BYTES, PICTURE_BYTES, PICTURES, WANT
from runtime.kernel.process import KernelProcess, NotStarted
from runtime.observations import Failed, Picture, RanPython, Wanted
from runtime.plugins import Plugins
from runtime.shell import PLAIN, UNATTENDED
from runtime.spill import Spill
from runtime.text import shorten

LISTEN = 5.0  # seconds that a cell gets to end after its first interrupt
AGAIN = 1.0  # seconds until it is interrupted once more
BEFORE = 2_000  # characters of what was printed between two cells
MESSAGE = 12 << 20  # bytes of one message from the session; its largest pictures in base64 are 10.7 MiB


class Cell:
    """Code that was given to the session."""

    def __init__(self, notes: list[str], before: str, older: Iterable[int]) -> None:
        loop = asyncio.get_running_loop()
        self.begun = time.monotonic()
        self.id = ""
        self.notes = notes
        self.before = before
        """What earlier cells have left running had printed until now."""
        self.older = frozenset(older)
        """Processes that earlier cells have left running."""
        self.interrupted = False
        self.ended: asyncio.Future[dict[str, Any] | None] = loop.create_future()
        """The session's reply; None when the session ended under the cell."""
        self.asked: asyncio.Future[str] = loop.create_future()
        """What it asks the host, which it waits for."""


class Session:
    """A session's process, and Jupyter's channels to it."""

    def __init__(self, process: KernelProcess, client: Any) -> None:
        self.process = process
        self._client = client
        self._cell: Cell | None = None
        self._listening = [
            asyncio.create_task(self._hear_replies()),
            asyncio.create_task(self._hear_requests()),
        ]
        for end in (process.ended, *self._listening):
            end.add_done_callback(self._gone)

    @classmethod
    async def start(cls, root: Path, scratch: Path, env: Mapping[str, str], plugins: Plugins) -> "Session":
        """Raises NotStarted."""
        # Both take half a second, and neither needs the other.
        loading = asyncio.create_task(asyncio.to_thread(_client_class, plugins.packages("kernel")))
        try:
            process = await KernelProcess.start(root, scratch, env, plugins)
        except BaseException:
            loading.cancel()
            raise
        try:
            client = (await loading)()
        except BaseException:
            await process.close()
            raise
        client.context.maxmsgsize = MESSAGE
        client.load_connection_info(process.connection)
        client.start_channels(iopub=False, hb=False, control=False)
        return cls(process, client)

    def feed(self, cell: Cell, code: str) -> None:
        self._cell = cell
        if self.process.ended.done():
            cell.ended.set_result(None)
        else:
            cell.id = self._client.execute(code, allow_stdin=True, stop_on_error=False)

    def answer(self, cell: Cell, text: str, *, failed: bool) -> None:
        """What a skill gets that has asked."""
        cell.asked = asyncio.get_running_loop().create_future()
        if not self.process.ended.done():
            self._client.input(json.dumps({"text": text, "failed": failed}))

    async def stop(self, cell: Cell) -> None:
        """Interrupt a cell until it ends; a session that does not listen is killed."""
        deadline = time.monotonic() + LISTEN
        cell.interrupted = True
        while not cell.ended.done() and time.monotonic() < deadline:
            self.process.interrupt(spare=cell.older)
            await asyncio.wait([cell.ended], timeout=AGAIN)
        if not cell.ended.done():
            await self.close()
        else:
            self.process.clear(spare=cell.older)  # also what it was about to start when it was interrupted

    async def close(self) -> None:
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        self._client.stop_channels()
        self._client.context.destroy(linger=0)
        await self.process.close()

    def _gone(self, _: object) -> None:
        """It has ended, or says what cannot be understood."""
        if self._cell is not None and not self._cell.ended.done():
            self._cell.ended.set_result(None)

    async def _hear_replies(self) -> None:
        while True:
            message = await self._client.get_shell_msg(timeout=None)
            cell = self._cell
            if cell is not None and _answers(message, cell, "execute_reply") and not cell.ended.done():
                cell.ended.set_result(_content(message))

    async def _hear_requests(self) -> None:
        while True:
            message = await self._client.get_stdin_msg(timeout=None)
            cell = self._cell
            if cell is not None and _answers(message, cell, "input_request") and not cell.asked.done():
                cell.asked.set_result(str(_content(message).get("prompt", "")))


class Kernel:
    """One IPython session at a time; a new one is started when it has ended."""

    def __init__(self, root: Path, scratch: Path, env: Mapping[str, str], plugins: Plugins) -> None:
        self._root = root
        self._scratch = scratch
        self._env = {**env, **PLAIN, **UNATTENDED}
        self._plugins = plugins
        self._spill = Spill(scratch, "cell")
        self._session: Session | None = None
        self._cell: Cell | None = None
        """What runs, or waits for the host."""

    async def run(self, code: str, timeout: float) -> RanPython | Wanted | Failed:
        """Run a cell, at most `timeout` seconds."""
        if not self._plugins.has("kernel"):
            return Failed(reason="missing", message=self._plugins.missing("kernel"))
        notes: list[str] = []
        try:
            if self._cell is not None and self._session is not None:
                await self._session.stop(self._cell)
                self._session.process.take_output()
                notes.append("the cell before this, which waited for an answer, was interrupted")
                self._cell = None
            if self._session is not None and self._session.process.ended.done():
                notes.append("before this cell " + await self._replace(self._session))
            if self._session is None:
                try:
                    self._session = await Session.start(self._root, self._scratch, self._env, self._plugins)
                except NotStarted as reason:
                    return Failed(reason="missing", message=f"{reason}: run python3 with run_shell instead")
                if self._session.process.note:
                    notes.append(self._session.process.note)
            process = self._session.process
            if dispersed := process.disperse():
                notes.append(dispersed)
            before = shorten(process.take_output(), BEFORE)
            if before:
                before += "" if before.endswith("\n") else "\n"
                lines = before.count("\n")
                which = "line comes" if lines == 1 else f"{lines} lines come"
                notes.append(f"the first {which} from what earlier cells left running")
            self._cell = cell = Cell(notes, before, process.children())
            self._session.feed(cell, code)
            return await self._wait(self._session, cell, timeout)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def provide(self, text: str, timeout: float, *, failed: bool) -> RanPython | Wanted | Failed:
        """Go on with the cell that waits for this, at most `timeout` seconds."""
        if self._cell is None or self._session is None:
            return Failed(reason="refused", message="no cell waits for anything")
        try:
            self._session.answer(self._cell, text, failed=failed)
            return await self._wait(self._session, self._cell, timeout)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def interrupt(self) -> bool:
        """End the cell that runs or waits, from beside `run`; False: none does."""
        if self._cell is None or self._session is None:
            return False
        await self._session.stop(self._cell)
        return True

    async def close(self) -> None:
        """End the session and everything that it started."""
        self._cell = None
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _wait(self, session: Session, cell: Cell, timeout: float) -> RanPython | Wanted:
        """What comes of a cell until it ends, asks for something, or `timeout` seconds are over."""
        deadline = time.monotonic() + timeout
        while not cell.ended.done():
            both: list[asyncio.Future[Any]] = [cell.ended, cell.asked]
            left = deadline - time.monotonic()
            done, _ = await asyncio.wait(both, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                await session.stop(cell)
                went_on = "" if session.process.ended.done() else ", the session keeps its variables"
                cell.notes.append(f"interrupted at its timeout of {timeout:g} s{went_on}")
            elif not cell.ended.done():
                wanted = _wanted(cell.asked.result())
                if isinstance(wanted, Wanted):
                    return wanted
                session.answer(cell, wanted, failed=True)
        self._cell = None
        reply = cell.ended.result()
        if reply is None:
            cell.notes.append(await self._replace(session))
        elif dispersed := session.process.disperse():
            cell.notes.append(dispersed)
        captured = session.process.take_output()
        pictures = _pictures(reply or {}, cell.notes)
        if kept := await self._spill.keep(captured):
            cell.notes.append(kept)
        return RanPython(
            output=cell.before + shorten(captured),
            ok=reply is not None and reply.get("ok") is True and not cell.interrupted,
            pictures=pictures,
            seconds=round(time.monotonic() - cell.begun, 3),
            note="; ".join(cell.notes) or None,
        )

    async def _replace(self, session: Session) -> str:
        self._session = None
        await session.close()
        return (
            f"the Python session {session.process.how}: its variables, functions and imports are gone; "
            f"the next cell starts a new one in {self._root}"
        )


def _client_class(packages: Path | None) -> Any:
    if packages is not None and str(packages) not in sys.path:
        sys.path.append(str(packages))
    try:
        from jupyter_client.asynchronous.client import AsyncKernelClient
    except ImportError as error:
        raise NotStarted(f"the session's client cannot be loaded: {error}") from error
    return AsyncKernelClient


def _answers(message: dict[str, Any], cell: Cell, kind: str) -> bool:
    return bool(message["msg_type"] == kind and message["parent_header"].get("msg_id") == cell.id)


def _content(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    return content if isinstance(content, dict) else {}


def _wanted(prompt: str) -> Wanted | str:
    """What a skill asks for; or why it gets no answer: any code in the session can ask."""
    if not prompt.startswith(WANT):
        return "nobody types here"
    try:
        return Wanted.model_validate_json(prompt.removeprefix(WANT))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}"[:200] for each in problems[:3])


def _pictures(reply: Mapping[str, Any], notes: list[str]) -> tuple[Picture, ...]:
    """The pictures of a cell, checked as whatever comes from the session."""
    kept: dict[int, Picture] = {}
    told, total = reply.get("pictures"), 0
    for said in told[:PICTURES] if isinstance(told, list) else ():
        with contextlib.suppress(ValidationError, binascii.Error, KeyError, TypeError, ValueError):
            picture = Picture(media=said["media"], data=base64.b64decode(said["data"], validate=True))
            if (total := total + len(picture.data)) <= CELL_BYTES:
                kept[int(str(said["number"])[:6])] = picture
    shown = reply.get("shown")
    if isinstance(shown, int) and len(kept) < shown < 1_000_000:
        limit = f"{PICTURES} pictures of at most {PICTURE_BYTES >> 20} MiB, {CELL_BYTES >> 20} MiB in all"
        numbers = ", ".join(map(str, kept)) or "none"
        notes.append(f"of its {shown} pictures you see {numbers}: a cell gives the largest {limit}")
    return tuple(kept.values())
