"""Runs IPython in the sandbox. A sandbox has at most one session. The session starts with the first cell, and
lasts as long as the sandbox.
"""

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

from patchwright.runtime.features import SandboxFeatures
from patchwright.runtime.kernel.cell_output import (
    HOST_REQUEST_PREFIX,
    MAX_CELL_IMAGE_BYTES,
    MAX_IMAGE_BYTES,
    MAX_IMAGES,
)
from patchwright.runtime.kernel.kernel_process import KernelProcess, KernelStartError
from patchwright.runtime.observations import ActionFailure, CellResult, HostRequest, ImageData
from patchwright.runtime.output_file import OutputFiles
from patchwright.runtime.output_text import clip_captured
from patchwright.runtime.shell import NON_INTERACTIVE_ENV, PLAIN_OUTPUT_ENV

INTERRUPT_TIMEOUT = 5.0  # Seconds in which a cell must end after its first interrupt.
INTERRUPT_INTERVAL = 1.0  # Seconds between two interrupts of the same cell.
# Maximum characters of the output that background processes print between two cells.
MAX_EARLIER_CHARS = 2_000
# Maximum bytes of one message from the session. The images of a cell take at most 10.7 MiB in base64.
MAX_MESSAGE_BYTES = 12 << 20


class Cell:
    """Code that was sent to the session."""

    def __init__(self, notes: list[str], earlier_output: str, background_pids: Iterable[int]) -> None:
        loop = asyncio.get_running_loop()
        self.started_at = time.monotonic()
        self.id = ""
        self.notes = notes
        self.earlier_output = earlier_output
        """Output that the background processes of earlier cells had printed when this cell started."""
        self.background_pids = frozenset(background_pids)
        """Processes that earlier cells have left running."""
        self.was_interrupted = False
        self.reply: asyncio.Future[dict[str, Any] | None] = loop.create_future()
        """The session's reply to the cell; None if the session ended during the cell."""
        self.host_request: asyncio.Future[str] = loop.create_future()
        """A request to the host that the cell waits for."""


class KernelSession:
    """The process of a session, and Jupyter's channels to it."""

    def __init__(self, process: KernelProcess, client: Any) -> None:
        self.process = process
        self._client = client
        self._cell: Cell | None = None
        self._readers = [
            asyncio.create_task(self._read_replies()),
            asyncio.create_task(self._read_host_requests()),
        ]
        for end in (process.ended, *self._readers):
            end.add_done_callback(self._on_end)

    @classmethod
    async def start(
        cls, root: Path, scratch: Path, env: Mapping[str, str], features: SandboxFeatures
    ) -> "KernelSession":
        """Start a session. Raises KernelStartError."""
        # Loading the client takes half a second, and so does starting the process. They run at the same time.
        loading = asyncio.create_task(asyncio.to_thread(_load_client_class, features.packages("kernel")))
        try:
            process = await KernelProcess.start(root, scratch, env, features)
        except BaseException:
            loading.cancel()
            raise
        try:
            client = (await loading)()
        except BaseException:
            await process.close()
            raise
        client.context.maxmsgsize = MAX_MESSAGE_BYTES
        client.load_connection_info(process.connection)
        client.start_channels(iopub=False, hb=False, control=False)
        return cls(process, client)

    def execute(self, cell: Cell, code: str) -> None:
        self._cell = cell
        if self.process.ended.done():
            cell.reply.set_result(None)
        else:
            cell.id = self._client.execute(code, allow_stdin=True, stop_on_error=False)

    def send_host_reply(self, cell: Cell, text: str, *, failed: bool) -> None:
        """Send the host's reply to the skill that is waiting for it."""
        cell.host_request = asyncio.get_running_loop().create_future()
        if not self.process.ended.done():
            self._client.input(json.dumps({"text": text, "failed": failed}))

    async def interrupt(self, cell: Cell) -> None:
        """Interrupt a cell repeatedly until it ends. If it does not end, kill the session."""
        deadline = time.monotonic() + INTERRUPT_TIMEOUT
        cell.was_interrupted = True
        while not cell.reply.done() and time.monotonic() < deadline:
            self.process.interrupt(exclude=cell.background_pids)
            await asyncio.wait([cell.reply], timeout=INTERRUPT_INTERVAL)
        if not cell.reply.done():
            await self.close()
        else:
            # This also kills the processes that the cell has started since its interrupt.
            self.process.kill_children(exclude=cell.background_pids)

    async def close(self) -> None:
        for task in self._readers:
            task.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        self._client.stop_channels()
        self._client.context.destroy(linger=0)
        await self.process.close()

    def _on_end(self, _: object) -> None:
        """End the session. Called when its process has ended, or when a reader has failed because of an
        invalid message.
        """
        if self._cell is not None and not self._cell.reply.done():
            self._cell.reply.set_result(None)

    async def _read_replies(self) -> None:
        while True:
            message = await self._client.get_shell_msg(timeout=None)
            cell = self._cell
            if cell is not None and _is_answer_to(message, cell, "execute_reply") and not cell.reply.done():
                cell.reply.set_result(_message_content(message))

    async def _read_host_requests(self) -> None:
        while True:
            message = await self._client.get_stdin_msg(timeout=None)
            cell = self._cell
            if (
                cell is not None
                and _is_answer_to(message, cell, "input_request")
                and not cell.host_request.done()
            ):
                cell.host_request.set_result(str(_message_content(message).get("prompt", "")))


class KernelManager:
    """Keeps one IPython session running, and starts a new one when it has ended."""

    def __init__(self, root: Path, scratch: Path, env: Mapping[str, str], features: SandboxFeatures) -> None:
        self._root = root
        self._scratch = scratch
        self._env = {**env, **PLAIN_OUTPUT_ENV, **NON_INTERACTIVE_ENV}
        self._features = features
        self._output_files = OutputFiles(scratch, "cell")
        self._session: KernelSession | None = None
        self._cell: Cell | None = None
        """The cell that is running or is waiting for the host; None if there is none."""

    async def run(self, code: str, timeout: float) -> CellResult | HostRequest | ActionFailure:
        """Run a cell for at most `timeout` seconds."""
        if not self._features.has("kernel"):
            return ActionFailure(reason="missing", message=self._features.missing_message("kernel"))
        notes: list[str] = []
        try:
            if self._cell is not None and self._session is not None:
                await self._session.interrupt(self._cell)
                self._session.process.take_output()
                notes.append("the previous cell was still waiting for a reply and was interrupted")
                self._cell = None
            if self._session is not None and self._session.process.ended.done():
                notes.append("before this cell " + await self._discard(self._session))
            if self._session is None:
                try:
                    self._session = await KernelSession.start(
                        self._root, self._scratch, self._env, self._features
                    )
                except KernelStartError as reason:
                    return ActionFailure(
                        reason="missing", message=f"{reason}: run python3 with run_shell instead"
                    )
                if self._session.process.note:
                    notes.append(self._session.process.note)
            process = self._session.process
            if stray_note := process.kill_strays():
                notes.append(stray_note)
            earlier_output = clip_captured(process.take_output(), MAX_EARLIER_CHARS)
            if earlier_output:
                earlier_output += "" if earlier_output.endswith("\n") else "\n"
                lines = earlier_output.count("\n")
                count = "line is" if lines == 1 else f"{lines} lines are"
                notes.append(f"the first {count} output of processes that earlier cells have left running")
            self._cell = cell = Cell(notes, earlier_output, process.children())
            self._session.execute(cell, code)
            return await self._wait(self._session, cell, timeout)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def resume(
        self, text: str, timeout: float, *, failed: bool
    ) -> CellResult | HostRequest | ActionFailure:
        """Send a reply to the cell that waits for it. Then run the cell for at most `timeout` seconds."""
        if self._cell is None or self._session is None:
            return ActionFailure(reason="refused", message="no cell is waiting for a reply")
        try:
            self._session.send_host_reply(self._cell, text, failed=failed)
            return await self._wait(self._session, self._cell, timeout)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def interrupt(self) -> bool:
        """Interrupt the cell that `run` is waiting for. Return False if there is none."""
        if self._cell is None or self._session is None:
            return False
        await self._session.interrupt(self._cell)
        return True

    async def close(self) -> None:
        """End the session. Kill all processes that the session started."""
        self._cell = None
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _wait(self, session: KernelSession, cell: Cell, timeout: float) -> CellResult | HostRequest:
        """Wait until the cell ends or sends a request, or `timeout` seconds have passed."""
        deadline = time.monotonic() + timeout
        while not cell.reply.done():
            futures: list[asyncio.Future[Any]] = [cell.reply, cell.host_request]
            remaining = deadline - time.monotonic()
            done, _ = await asyncio.wait(futures, timeout=remaining, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                await session.interrupt(cell)
                suffix = "" if session.process.ended.done() else "; the session keeps its variables"
                cell.notes.append(f"the cell was interrupted at its timeout of {timeout:g} s{suffix}")
            elif not cell.reply.done():
                request = _parse_host_request(cell.host_request.result())
                if isinstance(request, HostRequest):
                    return request
                session.send_host_reply(cell, request, failed=True)
        self._cell = None
        reply = cell.reply.result()
        if reply is None:
            cell.notes.append(await self._discard(session))
        elif stray_note := session.process.kill_strays():
            cell.notes.append(stray_note)
        captured = session.process.take_output()
        images = _parse_images(reply or {}, cell.notes)
        if note := await self._output_files.save(captured):
            cell.notes.append(note)
        return CellResult(
            output=cell.earlier_output + clip_captured(captured),
            ok=reply is not None and reply.get("ok") is True and not cell.was_interrupted,
            images=images,
            seconds=round(time.monotonic() - cell.started_at, 3),
            note="; ".join(cell.notes) or None,
        )

    async def _discard(self, session: KernelSession) -> str:
        self._session = None
        await session.close()
        return (
            f"the Python session {session.process.exit_description}; all variables, functions and imports are lost; "
            f"the next cell starts a new one in {self._root}"
        )


def _load_client_class(packages: Path | None) -> Any:
    if packages is not None and str(packages) not in sys.path:
        sys.path.append(str(packages))
    try:
        from jupyter_client.asynchronous.client import AsyncKernelClient
    except ImportError as error:
        raise KernelStartError(f"the session's client cannot be loaded: {error}") from error
    return AsyncKernelClient


def _is_answer_to(message: dict[str, Any], cell: Cell, kind: str) -> bool:
    return bool(message["msg_type"] == kind and message["parent_header"].get("msg_id") == cell.id)


def _message_content(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    return content if isinstance(content, dict) else {}


def _parse_host_request(prompt: str) -> HostRequest | str:
    """Return the request of a skill, or the reason to reject it. Requests must be checked, because any code in
    the session can send them.
    """
    if not prompt.startswith(HOST_REQUEST_PREFIX):
        return "there is no standard input"
    try:
        return HostRequest.model_validate_json(prompt.removeprefix(HOST_REQUEST_PREFIX))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}"[:200] for each in problems[:3])


def _parse_images(reply: Mapping[str, Any], notes: list[str]) -> tuple[ImageData, ...]:
    """Return the images of a cell. They are validated because the session is not trusted."""
    images: dict[int, ImageData] = {}
    entries, total = reply.get("images"), 0
    for entry in entries[:MAX_IMAGES] if isinstance(entries, list) else ():
        with contextlib.suppress(ValidationError, binascii.Error, KeyError, TypeError, ValueError):
            image = ImageData(
                media_type=entry["media_type"], data=base64.b64decode(entry["data"], validate=True)
            )
            if (total := total + len(image.data)) <= MAX_CELL_IMAGE_BYTES:
                images[int(str(entry["number"])[:6])] = image
    shown = reply.get("shown")
    if isinstance(shown, int) and len(images) < shown < 1_000_000:
        limit = f"{MAX_IMAGES} images of at most {MAX_IMAGE_BYTES >> 20} MiB, {MAX_CELL_IMAGE_BYTES >> 20} MiB in total"
        numbers = ", ".join(map(str, images)) or "none"
        notes.append(
            f"the cell showed {shown} images, but only these are returned: {numbers} (at most {limit})"
        )
    return tuple(images.values())
