"""The action server inside the container. It connects to the host or accepts the host's connection, and runs actions.

It is started as `python -I -c BOOTSTRAP_CODE DIRECTORY ARGUMENTS`. Python runs in isolated mode, and our own directory
comes first on the import path. A `runtime/` directory in the work tree therefore cannot replace our package.

The agent's commands run as the same user as this process. A hostile command can kill or stop this process, or
connect to the same socket itself. It cannot read the connection key: the host deletes the key file before the
first command runs, and other processes of this user cannot read this process's memory.

Even so, the host trusts no response. Each response must have one of our types, stay within limits of size and
time, and match its request. Otherwise, the host raises a typed error. At worst, a response contains false
information about this container.
"""

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from patchwright.runtime import processes
from patchwright.runtime.cgroup import OomKillCounter
from patchwright.runtime.egress_forwarder import forward_connections, peer_uid
from patchwright.runtime.execution.executor import Executor
from patchwright.runtime.features import SandboxFeatures
from patchwright.runtime.observations import ActionFailure, Observation
from patchwright.runtime.wire_protocol import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    ActionRequest,
    ActionResponse,
    FrameTooLarge,
    Hello,
    read_frame,
    write_frame,
)

# Without this code, each start would take longer for these reasons: the garbage collector, which finds nothing
# during imports (8 ms), pydantic's search for plugins in all installed packages (11 ms), TLS, which asyncio imports
# if it exists (4 ms), and the types of pydantic's schemas, which only type checkers read (6 ms).
BOOTSTRAP_CODE = """\
import gc, sys, types
gc.disable()
sys.modules["pydantic.plugin._loader"] = types.SimpleNamespace(get_plugins=tuple)
sys.modules["ssl"] = None
import asyncio
del sys.modules["ssl"]
sys.path.insert(0, sys.argv.pop(1))
import typing_extensions
TypedDict = typing_extensions.TypedDict
class UncheckedDict(dict):
    def __init_subclass__(cls, **_): pass
typing_extensions.TypedDict = UncheckedDict
import pydantic_core.core_schema
typing_extensions.TypedDict = TypedDict
from patchwright.runtime.execution.action_server import main
main()
"""
# The server exits if no host is connected for this many seconds. A host process that takes over must connect
# before that.
HOST_TIMEOUT = 60
MAX_STORED_RESULTS = 2
_MIN_RETRY_DELAY, _MAX_RETRY_DELAY = 0.01, 0.25  # Seconds between two attempts to connect.


class ActionServer:
    """Runs each request only once, even if the host repeats the request over several connections."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._running: dict[int, asyncio.Task[Observation]] = {}
        self._last_request_id = self._call_request_id = 0
        self._call_id = ""
        self._limits = processes.read_limits()

    async def dial(self, socket: str, key: str) -> None:
        """Connect to the host that listens on the socket, and serve it. Reconnect whenever the connection drops.

        Returns if no host has listened for HOST_TIMEOUT seconds.
        """
        loop = asyncio.get_running_loop()
        delay, last_contact = _MIN_RETRY_DELAY, loop.time()
        while loop.time() - last_contact < HOST_TIMEOUT:
            try:
                reader, writer = await asyncio.open_unix_connection(socket)
            except OSError:
                await asyncio.sleep(delay)
                delay = min(2 * delay, _MAX_RETRY_DELAY)
                continue
            connected_at = loop.time()
            try:
                await write_frame(writer, self._hello(key))
                await self._serve_connection(reader, writer)
            except OSError:
                pass  # The connection dropped. The result is sent over the next connection.
            finally:
                writer.close()
            # A host that rejects this server closes the connection at once.
            if loop.time() - connected_at > _MAX_RETRY_DELAY:
                delay, last_contact = _MIN_RETRY_DELAY, loop.time()
            await asyncio.sleep(delay)

    async def listen(self, name: str, host_uid: int) -> None:
        """Serve a host that connects through processes of the user `host_uid`. No command runs as that user.

        `name` is the name of an abstract Unix socket. Other containers cannot connect to it, because each
        container has its own network and its own abstract sockets.

        Returns if no host has connected for HOST_TIMEOUT seconds.
        """
        loop = asyncio.get_running_loop()
        connections, last_contact = 0, loop.time()

        async def admit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections, last_contact
            if peer_uid(writer) != host_uid:
                writer.close()
                return
            connections += 1
            try:
                await write_frame(writer, self._hello())
                await self._serve_connection(reader, writer)
            except OSError:
                pass
            finally:
                connections, last_contact = connections - 1, loop.time()
                writer.close()

        async with await asyncio.start_unix_server(admit, f"\0{name}"):
            while connections or loop.time() - last_contact < HOST_TIMEOUT:  # noqa: ASYNC110  # no event ends it
                await asyncio.sleep(1)

    def _hello(self, key: str = "") -> Hello:
        return Hello(
            version=PROTOCOL_VERSION,
            key=key,
            last_request_id=self._last_request_id,
            call_id=self._call_id,
            call_request_id=self._call_request_id,
            process_limits=self._limits,
        )

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it closes."""
        replies: set[asyncio.Task[None]] = set()
        try:
            while True:
                request = ActionRequest.model_validate_json(await read_frame(reader, MAX_FRAME_BYTES))
                reply = asyncio.create_task(self._send_response(request, writer))
                replies.add(reply)
                reply.add_done_callback(replies.discard)
        except (FrameTooLarge, ValidationError) as exc:
            failure = ActionFailure(reason="malformed", message=f"This is not a valid request: {exc}"[:1000])
            await write_frame(writer, ActionResponse(id=0, observation=failure))
        except asyncio.IncompleteReadError:
            return
        finally:
            for reply in replies:
                reply.cancel()  # Canceling this task stops only the response. The action continues.

    async def _send_response(self, request: ActionRequest, writer: asyncio.StreamWriter) -> None:
        observation = await self._run_request(request)
        with contextlib.suppress(OSError):  # The host repeats the request on the next connection.
            await write_frame(writer, ActionResponse(id=request.id, observation=observation))

    async def _run_request(self, request: ActionRequest) -> Observation:
        request_id = request.id
        if (task := self._running.get(request_id)) is None:
            if request_id <= self._last_request_id:
                return ActionFailure(
                    reason="lost", message="this action has run, but its result is no longer stored"
                )
            self._last_request_id = request_id
            if request.call_id:
                self._call_id, self._call_request_id = request.call_id, request_id
            task = self._running[request_id] = asyncio.create_task(self._executor.act(request.action))
            for old in [old for old in self._running if old <= request_id - MAX_STORED_RESULTS]:
                if old != self._call_request_id and self._running[old].done():
                    del self._running[old]
        return await asyncio.shield(task)


@dataclass(frozen=True, slots=True)
class ServerArguments:
    """Command-line arguments of the server, each in the form `--name value`. They are parsed without
    argparse, because argparse would delay the start of every sandbox by 10 ms.
    """

    root: str
    """The work tree."""
    scratch: str
    """A directory for temporary files."""
    socket: str = ""
    """The Unix socket on which the host listens."""
    key: str = ""
    """The file with the connection key."""
    listen: str = ""
    """The abstract socket on which the server listens for the host. Used instead of `socket` and `key`."""
    host: str = "0"
    """Id of a user. The host connects to the abstract socket through processes of this user."""
    features: str = ""
    """The directory of the sandbox features. Without this argument, the server uses the features that are
    installed for its own Python.
    """
    egress: str = ""
    """The address of the egress proxy. It is the path of the proxy's Unix socket, or an @ followed by the name of an
    abstract socket. The host connects to this abstract socket. If the address is empty, the sandbox has no network.
    """

    @classmethod
    def parse(cls, argv: Sequence[str]) -> "ServerArguments":
        names = [name.removeprefix("--") for name in argv[::2]]
        return cls(**dict(zip(names, argv[1::2], strict=True)))


async def _serve(arguments: ServerArguments, env: Mapping[str, str]) -> None:
    features = SandboxFeatures(Path(arguments.features)) if arguments.features else None
    executor = Executor(Path(arguments.root), Path(arguments.scratch), env, OomKillCounter(), features)
    preparation = asyncio.create_task(executor.prepare())
    server, host = ActionServer(executor), int(arguments.host)
    if arguments.listen:
        serving = asyncio.ensure_future(server.listen(arguments.listen, host))
    else:
        key = Path(arguments.key).read_text()  # noqa: ASYNC240  # once, before anything else
        serving = asyncio.ensure_future(server.dial(arguments.socket, key))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    forwarding = forward_connections(arguments.egress, host) if arguments.egress else contextlib.nullcontext()
    try:
        with contextlib.suppress(asyncio.CancelledError):
            async with forwarding:
                await serving
    finally:
        preparation.cancel()
        await asyncio.wait([preparation])
        await executor.close()


def main() -> None:
    processes.hide_memory()
    # The imported modules stay in memory, so the garbage collector does not need to examine them.
    gc.freeze()
    gc.enable()
    # Commands may inherit the container's environment, because the host puts no secrets into it.
    asyncio.run(_serve(ServerArguments.parse(sys.argv[1:]), dict(os.environ)))
