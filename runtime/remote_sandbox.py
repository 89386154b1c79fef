"""The host's side of the wire protocol: a `Sandbox` in a container. The server in the container connects to the host.

The host owns the socket and listens on it. If the container owned the socket, it could replace the socket
with a link to another socket of the host. The content of a message never decides which class, path or
connection the host uses. All messages have limits on size and time.
"""

import asyncio
import contextlib
import hmac
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import assert_never

from pydantic import ValidationError

from patchwright.runtime.actions import (
    BrowseLinks,
    CreateFile,
    Execute,
    FingerprintTree,
    HostReply,
    InsertText,
    Interrupt,
    ProcessExchange,
    ReadBytes,
    ReplaceText,
    RunPython,
    RunShell,
    RunShellWithSecrets,
    SandboxAction,
    SearchCode,
    SendInput,
    StartProcess,
    UndoEdit,
    UseBrowser,
    ViewFile,
    WriteBytes,
)
from patchwright.runtime.errors import ProtocolError, SandboxLost
from patchwright.runtime.observations import (
    Acknowledgment,
    ActionFailure,
    CellResult,
    EditResult,
    ExecuteResult,
    FileContent,
    HostRequest,
    Observation,
    PageSnapshot,
    ProcessOutput,
    ShellResult,
    TextResult,
    TreeFingerprint,
    WriteResult,
)
from patchwright.runtime.sandbox import current_call_id
from patchwright.runtime.wire_protocol import (
    KEY_FILE,
    MAX_HELLO_BYTES,
    PROTOCOL_VERSION,
    SOCKET_NAME,
    ActionRequest,
    ActionResponse,
    FrameTooLarge,
    Hello,
    max_response_bytes,
    read_frame,
    write_frame,
)

# If an action takes this many seconds longer than its own timeout, the sandbox counts as lost.
RESPONSE_GRACE = 20.0
# Additional seconds for a cell, because its kernel may have to be started first.
KERNEL_START_GRACE = 30.0
BROWSER_TIMEOUT = 180.0  # seconds for all calls of one action; each call has a shorter limit of its own
FILE_TIMEOUT = 40.0  # seconds for an action on files, because these actions have no timeout of their own
RECONNECT_TIMEOUT = 10.0  # Seconds in which the server must connect again after a connection has dropped.
HELLO_TIMEOUT = 5.0  # Seconds in which the first frame of a connection must arrive.
MAX_UNAUTHENTICATED = 8  # Maximum number of connections at the same time that have not sent the key yet.
_TOOL_CALL_ACTIONS = (
    *(RunShell, RunShellWithSecrets, SendInput, RunPython, HostReply),
    *(SearchCode, ViewFile, CreateFile, ReplaceText, InsertText, UndoEdit),
)
"""The actions that carry out a tool call of the agent. All other actions only prepare or inspect something.
"""


StreamPair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class SandboxTransport(ABC):
    """Provides the connection to the server in the sandbox. A new connection replaces the previous one."""

    def __init__(self) -> None:
        self.hello = Hello(version=PROTOCOL_VERSION)
        """The latest hello message from the server."""
        self.was_rejecting = (
            False  # The last client that tried to connect had another key or another version.
        )
        self._connection: StreamPair | None = None

    @abstractmethod
    async def get_connection(self, timeout: float) -> StreamPair:
        """Return the live connection. Raises TimeoutError if there is none within `timeout` seconds."""

    def disconnect(self, connection: StreamPair | None = None) -> None:
        """Close `connection`, or the current connection if `connection` is None. The server may connect again.

        Does nothing if a newer connection has already replaced `connection`.
        """
        if self._connection is not None and connection in (None, self._connection):
            self._connection[1].close()
            self._connection = None


class SocketTransport(SandboxTransport):
    """A Unix socket that listens for clients, and accepts only those that send the key."""

    def __init__(self, directory: Path, key: str) -> None:
        super().__init__()
        self._directory = directory
        self._key = key
        self._unauthenticated = 0
        self._changed = asyncio.Condition()

    @classmethod
    @asynccontextmanager
    async def listen(cls, directory: Path, key: str | None = None) -> AsyncIterator["SocketTransport"]:
        """Listen on a socket in this directory. Only the container may have access to the directory.

        The key is written to a file next to the socket, where the server can read it. The file is deleted
        after the server has sent the key. If `key` is given, no file is written, because the server already
        has the key from an earlier host process.
        """
        transport = cls(directory, key or secrets.token_hex(32))
        if key is None:
            _write_key(directory / KEY_FILE, transport.key)
        server = await asyncio.start_unix_server(transport._authenticate, directory / SOCKET_NAME)
        # The user of the sandbox must be able to connect. Only users with access to the directory can reach the
        # socket.
        os.chmod(directory / SOCKET_NAME, 0o666)  # noqa: S103
        try:
            yield transport
        finally:
            server.close()
            transport.disconnect()
            for name in (KEY_FILE, SOCKET_NAME):
                (directory / name).unlink(missing_ok=True)

    @property
    def key(self) -> str:
        """The key of the socket. Another host process needs this key to take over the sandbox."""
        return self._key

    async def get_connection(self, timeout: float) -> StreamPair:
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(lambda: self._connection is not None)
            assert self._connection is not None
            return self._connection

    async def _authenticate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._unauthenticated >= MAX_UNAUTHENTICATED:
            writer.close()
            return
        self._unauthenticated += 1
        try:
            async with asyncio.timeout(HELLO_TIMEOUT):
                hello = Hello.model_validate_json(await read_frame(reader, MAX_HELLO_BYTES))
            is_valid = (
                hmac.compare_digest(hello.key.encode(), self._key.encode())
                and hello.version == PROTOCOL_VERSION
            )
        except (TimeoutError, ValidationError, FrameTooLarge, asyncio.IncompleteReadError, OSError):
            is_valid = False
        finally:
            self._unauthenticated -= 1
        if not is_valid:
            self.was_rejecting = self._connection is None
            writer.close()
            return
        # The key file is deleted before any command can read it.
        (self._directory / KEY_FILE).unlink(missing_ok=True)
        async with self._changed:
            self.disconnect()
            self._connection, self.hello, self.was_rejecting = (reader, writer), hello, False
            self._changed.notify_all()


class RemoteSandbox:
    """A sandbox that is reached through a transport."""

    def __init__(
        self,
        transport: SandboxTransport,
        root: str,
        scratch: str,
        find_failure: Callable[[], Awaitable[SandboxLost | None]] | None = None,
        grace: float = RESPONSE_GRACE,
        previous: Hello | None = None,
    ) -> None:
        """`find_failure` returns the reason if the sandbox is no longer running, otherwise None.

        `grace` is the number of seconds to wait after an action's own timeout. `previous` is the server's hello
        message if this process takes over from another process. This message contains the ids of the last
        requests of that process.
        """
        self._transport = transport
        self._root = root
        self._scratch = scratch
        self._find_failure = find_failure
        self._grace = grace
        self._lock = asyncio.Lock()
        self._last_request_id = previous.last_request_id if previous else 0
        self._previous = previous
        self._failure: ProtocolError | SandboxLost | None = None

    @property
    def root(self) -> str:
        return self._root

    @property
    def scratch(self) -> str:
        return self._scratch

    async def act(self, action: SandboxAction) -> Observation:
        async with self._lock:
            if self._failure is not None:
                raise self._failure
            try:
                return await self._send_request(self._next_request(action))
            except (ProtocolError, SandboxLost) as error:
                self._failure = error
                self._transport.disconnect()
                raise
            except asyncio.CancelledError:
                # The response to this action must not be mistaken for the response to the next action.
                self._transport.disconnect()
                raise

    def _next_request(self, action: SandboxAction) -> ActionRequest:
        """Return a new request. If the previous host process has already sent a request for the same tool
        call, return that request again.

        Tool calls come one after the other. So the previous process cannot have sent a request for a later call.
        """
        call_id = current_call_id.get() if isinstance(action, _TOOL_CALL_ACTIONS) else ""
        if call_id and self._previous and self._previous.call_id == call_id:
            request_id, self._previous = self._previous.call_request_id, None
            return ActionRequest(id=request_id, action=action, call_id=call_id)
        self._last_request_id += 1
        return ActionRequest(id=self._last_request_id, action=action, call_id=call_id)

    def disconnect(self) -> None:
        """Close the connection. The next action waits until the other side connects again."""
        self._transport.disconnect()

    async def _send_request(self, request: ActionRequest) -> Observation:
        timeout = _action_timeout(request.action) + self._grace
        try:
            async with asyncio.timeout(timeout):
                while True:
                    reader, writer = connection = await self._get_connection()
                    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                        await write_frame(writer, request)
                        return _parse_observation(
                            await read_frame(reader, max_response_bytes(request.action)), request
                        )
                    # The connection dropped. The request is repeated with the same id. The server runs a
                    # request only once, and keeps its result.
                    self._transport.disconnect(connection)
        except TimeoutError as error:
            cause = ": its key or its version is wrong" if self._transport.was_rejecting else ""
            raise SandboxLost(f"the sandbox did not respond within {timeout:g} s{cause}") from error
        except FrameTooLarge as error:
            raise ProtocolError(f"the sandbox sent {error}") from error

    async def _get_connection(self) -> StreamPair:
        with contextlib.suppress(TimeoutError):
            return await self._transport.get_connection(timeout=1)
        if self._find_failure is not None and (failure := await self._find_failure()) is not None:
            raise failure
        try:
            return await self._transport.get_connection(timeout=RECONNECT_TIMEOUT - 1)
        except TimeoutError as error:
            raise SandboxLost(
                f"the sandbox disconnected and did not reconnect within {RECONNECT_TIMEOUT:g} s"
            ) from error


def _action_timeout(action: SandboxAction) -> float:
    match action:
        case RunShell(timeout=timeout) | SendInput(timeout=timeout) | Execute(timeout=timeout):
            return timeout
        case RunShellWithSecrets(shell=RunShell(timeout=timeout)):
            return timeout
        case RunPython(timeout=timeout) | HostReply(timeout=timeout):
            return timeout + KERNEL_START_GRACE
        case UseBrowser() | BrowseLinks():
            return BROWSER_TIMEOUT
        case _:
            return FILE_TIMEOUT


def _parse_observation(frame: bytes, request: ActionRequest) -> Observation:
    try:
        response = ActionResponse.model_validate_json(frame)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        raise ProtocolError(f"the sandbox sent an invalid response: {first}") from error
    if response.id != request.id:
        raise ProtocolError(f"the sandbox answered request {response.id} instead of {request.id}")
    if not isinstance(response.observation, _expected_results(request.action)):
        raise ProtocolError(f"the sandbox answered {request.action.kind} with {response.observation.kind}")
    return response.observation


def _expected_results(action: SandboxAction) -> tuple[type[Observation], ...]:
    match action:
        case RunShell() | RunShellWithSecrets() | SendInput():
            return (ShellResult, ActionFailure)
        case Execute():
            return (ExecuteResult, ActionFailure)
        case RunPython() | HostReply():
            return (CellResult, HostRequest, ActionFailure)
        case UseBrowser() | BrowseLinks():
            return (PageSnapshot, ActionFailure)
        case ViewFile() | SearchCode():
            return (TextResult, ActionFailure)
        case CreateFile() | ReplaceText() | InsertText() | UndoEdit():
            return (EditResult, ActionFailure)
        case StartProcess():
            return (Acknowledgment, ActionFailure)
        case ProcessExchange():
            return (ProcessOutput, ActionFailure)
        case Interrupt():
            return (Acknowledgment, ActionFailure)
        case FingerprintTree():
            return (TreeFingerprint, ActionFailure)
        case ReadBytes():
            return (FileContent, ActionFailure)
        case WriteBytes():
            return (WriteResult, ActionFailure)
        case _:
            assert_never(action)


def _write_key(path: Path, key: str) -> None:
    path.write_text(key)
    path.chmod(0o644)
