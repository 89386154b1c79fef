"""The action execution API inside the container: dials the host's socket, or is dialled, and answers.

Started as `python -I -c BOOT DIRECTORY ARGUMENTS`: isolated, and with our own directory first on the path, so
that a work tree with its own `runtime/` cannot shadow ours.

The agent's commands run as the same user as this process. A hostile one can kill it, stop it, or dial the same
socket itself. It cannot read the key: the host deletes the file before the first command runs, and our memory
is closed to other processes of this user. The host trusts no answer all the same: each is checked against our
types, bounded in bytes and seconds, and can only be the answer to what was asked; anything else is a typed error
there. The worst is a lie about what happened in this container, which a hostile command can tell anyway.
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

from runtime import processes
from runtime.cgroup import OomKills
from runtime.executor import Executor
from runtime.forward import forwarding, user
from runtime.observations import Failed, Observation
from runtime.plugins import Plugins
from runtime.wire import MOST, VERSION, Answer, FrameTooLarge, Hello, Request, receive, send

# Two things that every start would wait for: the collector finds nothing while modules are imported (8 ms), and
# pydantic would look for plugins of its own among all that is installed (11 ms).
BOOT = """\
import gc, sys, types
gc.disable()
sys.modules["pydantic.plugin._loader"] = types.SimpleNamespace(get_plugins=tuple)
sys.path.insert(0, sys.argv.pop(1))
from runtime.server import main
main()
"""
ALONE = 60  # seconds without a host until the server gives up: who takes over must come sooner
REMEMBERED = 2  # answers, beside that to the last call; the host waits for one before it asks for the next
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25  # seconds between two attempts to dial


class Server:
    """Runs each request once, however often and over however many connections it is asked for."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._running: dict[int, asyncio.Task[Observation]] = {}
        self._last = self._called = 0
        self._call = ""
        self._limits = processes.limits()

    async def serve(self, socket: str, key: str) -> None:
        """Answer whoever listens on the socket, and dial again when the connection drops.

        Returns when nobody has listened for ALONE seconds.
        """
        loop = asyncio.get_running_loop()
        pause, heard = _FIRST_PAUSE, loop.time()
        while loop.time() - heard < ALONE:
            try:
                reader, writer = await asyncio.open_unix_connection(socket)
            except OSError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            met = loop.time()
            try:
                await send(writer, self._hello(key))
                await self._converse(reader, writer)
            except OSError:
                pass  # dropped; the answer waits for the next connection
            finally:
                writer.close()
            if loop.time() - met > _LONGEST_PAUSE:  # a host that turns us away does so at once
                pause, heard = _FIRST_PAUSE, loop.time()
            await asyncio.sleep(pause)

    async def listen(self, name: str, host: int) -> None:
        """The same for a host that dials: through processes of the user `host`, which no command here is.

        `name` is in the abstract namespace, which belongs to the container as its network does.
        """
        loop = asyncio.get_running_loop()
        here, heard = 0, loop.time()

        async def admit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal here, heard
            if user(writer) != host:
                writer.close()
                return
            here += 1
            try:
                await send(writer, self._hello())
                await self._converse(reader, writer)
            except OSError:
                pass
            finally:
                here, heard = here - 1, loop.time()
                writer.close()

        async with await asyncio.start_unix_server(admit, f"\0{name}"):
            while here or loop.time() - heard < ALONE:  # noqa: ASYNC110  # a clock ends it, no event
                await asyncio.sleep(1)

    def _hello(self, key: str = "") -> Hello:
        seen = {"last": self._last, "call": self._call, "called": self._called}
        return Hello(version=VERSION, key=key, limits=self._limits, **seen)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        replies: set[asyncio.Task[None]] = set()
        try:
            while True:
                request = Request.model_validate_json(await receive(reader, MOST))
                reply = asyncio.create_task(self._reply(request, writer))
                replies.add(reply)
                reply.add_done_callback(replies.discard)
        except (asyncio.IncompleteReadError, FrameTooLarge, ValidationError):
            return
        finally:
            for reply in replies:
                reply.cancel()  # only the reply: the action goes on

    async def _reply(self, request: Request, writer: asyncio.StreamWriter) -> None:
        observation = await self._answer(request)
        with contextlib.suppress(OSError):  # asked again on the next connection
            await send(writer, Answer(id=request.id, observation=observation))

    async def _answer(self, request: Request) -> Observation:
        number = request.id
        if (running := self._running.get(number)) is None:
            if number <= self._last:
                return Failed(
                    reason="lost", message="this action has run, but its result is not kept any more"
                )
            self._last = number
            if request.call:
                self._call, self._called = request.call, number
            running = self._running[number] = asyncio.create_task(self._executor.act(request.action))
            for old in [old for old in self._running if old <= number - REMEMBERED]:
                if old != self._called and self._running[old].done():
                    del self._running[old]
        return await asyncio.shield(running)


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the server is started with, each as `--name value`; argparse takes 10 ms that every sandbox waits for."""

    root: str
    """The work tree."""
    scratch: str
    """A directory for temporary files."""
    socket: str = ""
    """The Unix socket on which the host listens."""
    key: str = ""
    """The file with the key that the host wants to hear."""
    listen: str = ""
    """Instead of these: the abstract socket to which the host comes."""
    host: str = "0"
    """The user that comes there for the host."""
    plugins: str = ""
    """The directory with the plugins; empty: those of this Python."""
    egress: str = ""
    """The proxy's Unix socket, or @ and where the host comes; empty: nothing leads out."""

    @classmethod
    def read(cls, given: Sequence[str]) -> "Arguments":
        names = [name.removeprefix("--") for name in given[::2]]
        return cls(**dict(zip(names, given[1::2], strict=True)))


async def _serve(arguments: Arguments, env: Mapping[str, str]) -> None:
    plugins = Plugins(Path(arguments.plugins)) if arguments.plugins else None
    executor = Executor(Path(arguments.root), Path(arguments.scratch), env, OomKills(), plugins)
    preparing = asyncio.create_task(executor.prepare())
    server, host = Server(executor), int(arguments.host)
    if arguments.listen:
        serving = asyncio.ensure_future(server.listen(arguments.listen, host))
    else:
        key = Path(arguments.key).read_text()  # noqa: ASYNC240  # once, before anything else
        serving = asyncio.ensure_future(server.serve(arguments.socket, key))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    way_out = forwarding(arguments.egress, host) if arguments.egress else contextlib.nullcontext()
    try:
        with contextlib.suppress(asyncio.CancelledError):
            async with way_out:
                await serving
    finally:
        preparing.cancel()
        await asyncio.wait([preparing])
        await executor.close()


def main() -> None:
    processes.hide_memory()
    gc.freeze()  # what was imported stays
    gc.enable()
    # The container's environment is the sandbox's own: the host has put nothing secret into it.
    asyncio.run(_serve(Arguments.read(sys.argv[1:]), dict(os.environ)))
