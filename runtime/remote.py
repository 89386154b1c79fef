"""The host's side of the wire: a `Sandbox` that lives elsewhere, and dials in.

The host listens, because a container that owned the socket could put a link to any other socket in its place.
Nothing that comes over the wire chooses a class, a path or a connection; all is bounded in bytes and seconds.
"""

import asyncio
import contextlib
import hmac
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, assert_never

from pydantic import ValidationError

from runtime.actions import (
    Converse,
    CreateFile,
    Execute,
    InsertText,
    Interrupt,
    MarkTree,
    Provide,
    ReadBytes,
    ReplaceText,
    RunLent,
    RunPython,
    RunShell,
    SandboxAction,
    SearchCode,
    SendInput,
    StartStream,
    UndoEdit,
    UseBrowser,
    ViewFile,
    WriteBytes,
)
from runtime.errors import ProtocolBroken, SandboxLost
from runtime.observations import (
    Content,
    Edited,
    Executed,
    Failed,
    Heard,
    Marked,
    Noted,
    Observation,
    Page,
    Ran,
    RanPython,
    Viewed,
    Wanted,
    Written,
)
from runtime.sandbox import call
from runtime.wire import (
    HELLO,
    KEY,
    SOCKET,
    VERSION,
    Answer,
    FrameTooLarge,
    Hello,
    Request,
    largest_answer,
    receive,
    send,
)

SLACK = 20.0  # seconds beyond an action's own timeout until the machine counts as lost
START = 30.0  # seconds beyond its timeout for a cell whose kernel starts first, or has to be restarted
BROWSER = 180.0  # seconds for the calls of one action together; each has its own, shorter limit
FILES = 40.0  # seconds for an action on files, which has no timeout of its own
REDIAL = 10.0  # seconds that a dropped connection has to come back
INTRODUCTION = 5.0  # seconds for the first frame of a connection
STRANGERS = 8  # connections at a time that have not said the key yet
_OF_A_CALL = (
    *(RunShell, RunLent, SendInput, RunPython, Provide),
    *(SearchCode, ViewFile, CreateFile, ReplaceText, InsertText, UndoEdit),
)
"""What an agent's call comes down to; what else is asked on its behalf only prepares or looks."""


Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Entrance(Protocol):
    """Where the machine at the other end comes in."""

    @property
    def hello(self) -> Hello:
        """What the machine said when it came."""

    async def line(self, timeout: float) -> Line:
        """The live connection. Raises TimeoutError when there is none within `timeout` seconds."""

    def hang_up(self, line: Line | None = None) -> None:
        """Drop the connection, if it is still this one; another can be made."""


class Door:
    """A listening Unix socket that lets in whoever knows the key; a newcomer takes the place of the last one."""

    def __init__(self, directory: Path, key: str) -> None:
        self._directory = directory
        self._key = key
        self.hello = Hello(version=VERSION)
        self._strangers = 0
        self._line: Line | None = None
        self._changed = asyncio.Condition()

    @classmethod
    @asynccontextmanager
    async def open(cls, directory: Path, key: str | None = None) -> AsyncIterator["Door"]:
        """Listen in a directory, which the other side must be able to enter and nobody else.

        The key is written beside the socket for the server to read, and deleted when it has said it. One that
        is given here is known to the server already: it was told by a process that is gone.
        """
        door = cls(directory, key or secrets.token_hex(32))
        if key is None:
            _publish(directory / KEY, door.key)
        server = await asyncio.start_unix_server(door._admit, directory / SOCKET)
        # For the sandbox's user; the directory decides who gets as far as here.
        os.chmod(directory / SOCKET, 0o666)  # noqa: S103
        try:
            yield door
        finally:
            server.close()
            door.hang_up()
            for name in (KEY, SOCKET):
                (directory / name).unlink(missing_ok=True)

    @property
    def key(self) -> str:
        """For whoever takes over from this process."""
        return self._key

    async def line(self, timeout: float) -> Line:
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(lambda: self._line is not None)
            assert self._line is not None
            return self._line

    def hang_up(self, line: Line | None = None) -> None:
        if self._line is not None and line in (None, self._line):
            self._line[1].close()
            self._line = None

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._strangers >= STRANGERS:
            writer.close()
            return
        self._strangers += 1
        try:
            async with asyncio.timeout(INTRODUCTION):
                hello = Hello.model_validate_json(await receive(reader, HELLO))
            known = hmac.compare_digest(hello.key.encode(), self._key.encode()) and hello.version == VERSION
        except (TimeoutError, ValidationError, FrameTooLarge, asyncio.IncompleteReadError, OSError):
            known = False
        finally:
            self._strangers -= 1
        if not known:
            writer.close()
            return
        (self._directory / KEY).unlink(missing_ok=True)  # before any command can look for it
        async with self._changed:
            self.hang_up()
            self._line, self.hello = (reader, writer), hello
            self._changed.notify_all()


class RemoteSandbox:
    """A sandbox behind a door."""

    def __init__(
        self,
        door: Entrance,
        root: str,
        scratch: str,
        fate: Callable[[], Awaitable[SandboxLost | None]] | None = None,
        slack: float = SLACK,
        left: Hello | None = None,
    ) -> None:
        """`fate` says what became of the machine, if it is not running any more.

        `slack` are the seconds that it gets beyond an action's own timeout; `left` tells what was asked of it
        before, by a process that is gone.
        """
        self._door = door
        self._root = root
        self._scratch = scratch
        self._fate = fate
        self._slack = slack
        self._turn = asyncio.Lock()
        self._asked = left.last if left else 0
        self._left = left
        self._broken: ProtocolBroken | SandboxLost | None = None

    @property
    def root(self) -> str:
        return self._root

    @property
    def scratch(self) -> str:
        return self._scratch

    async def act(self, action: SandboxAction) -> Observation:
        async with self._turn:
            if self._broken is not None:
                raise self._broken
            try:
                return await self._ask(self._request(action))
            except (ProtocolBroken, SandboxLost) as error:
                self._broken = error
                self._door.hang_up()
                raise
            except asyncio.CancelledError:
                self._door.hang_up()  # its answer must not be taken for that of the next action
                raise

    def _request(self, action: SandboxAction) -> Request:
        """The next one, or once more that of the process that is gone, for the call that is asked for again.

        Calls come one after the other: another than the last that was heard of was never begun.
        """
        asking = call.get() if isinstance(action, _OF_A_CALL) else ""
        if asking and self._left and self._left.call == asking:
            number, self._left = self._left.called, None
            return Request(id=number, action=action, call=asking)
        self._asked += 1
        return Request(id=self._asked, action=action, call=asking)

    def hang_up(self) -> None:
        """Drop the connection; whatever is asked now waits for the other side to dial again."""
        self._door.hang_up()

    async def _ask(self, request: Request) -> Observation:
        patience = _seconds(request.action) + self._slack
        try:
            async with asyncio.timeout(patience):
                while True:
                    reader, writer = line = await self._line()
                    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                        await send(writer, request)
                        return _observation(await receive(reader, largest_answer(request.action)), request)
                    # Dropped. The same id again: the server runs it once and remembers the answer.
                    self._door.hang_up(line)
        except TimeoutError as error:
            raise SandboxLost(f"the sandbox gave no answer within {patience:g} s") from error
        except FrameTooLarge as error:
            raise ProtocolBroken(f"the sandbox sent {error}") from error

    async def _line(self) -> Line:
        with contextlib.suppress(TimeoutError):
            return await self._door.line(timeout=1)
        if self._fate is not None and (fate := await self._fate()) is not None:
            raise fate
        try:
            return await self._door.line(timeout=REDIAL - 1)
        except TimeoutError as error:
            raise SandboxLost(f"the sandbox hung up and did not come back within {REDIAL:g} s") from error


def _seconds(action: SandboxAction) -> float:
    match action:
        case RunShell(timeout=timeout) | SendInput(timeout=timeout) | Execute(timeout=timeout):
            return timeout
        case RunLent(run=RunShell(timeout=timeout)):
            return timeout
        case RunPython(timeout=timeout) | Provide(timeout=timeout):
            return timeout + START
        case UseBrowser():
            return BROWSER
        case _:
            return FILES


def _observation(frame: bytes, request: Request) -> Observation:
    try:
        answer = Answer.model_validate_json(frame)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        raise ProtocolBroken(f"the sandbox sent what is no answer: {first}") from error
    if answer.id != request.id:
        raise ProtocolBroken(f"the sandbox answered request {answer.id}, asked was {request.id}")
    if not isinstance(answer.observation, _fitting(request.action)):
        raise ProtocolBroken(f"the sandbox answered {request.action.kind} with {answer.observation.kind}")
    return answer.observation


def _fitting(action: SandboxAction) -> tuple[type[Observation], ...]:
    match action:
        case RunShell() | RunLent() | SendInput():
            return (Ran, Failed)
        case Execute():
            return (Executed, Failed)
        case RunPython() | Provide():
            return (RanPython, Wanted, Failed)
        case UseBrowser():
            return (Page, Failed)
        case ViewFile() | SearchCode():
            return (Viewed, Failed)
        case CreateFile() | ReplaceText() | InsertText() | UndoEdit():
            return (Edited, Failed)
        case StartStream():
            return (Noted, Failed)
        case Converse():
            return (Heard, Failed)
        case Interrupt():
            return (Noted, Failed)
        case MarkTree():
            return (Marked, Failed)
        case ReadBytes():
            return (Content, Failed)
        case WriteBytes():
            return (Written, Failed)
        case _:
            assert_never(action)


def _publish(path: Path, key: str) -> None:
    path.write_text(key)
    path.chmod(0o644)
