"""The action execution API inside the container: dials the host's socket, or is dialled, and answers.

Started as `python -I -c BOOT DIRECTORY ARGUMENTS`: isolated, and with our own directory first on the path, so
that a work tree with its own `runtime/` cannot shadow ours.

The agent's commands run as the same user as this process. A hostile one can kill it, stop it, or dial the same
socket itself. It cannot read the key: the host deletes the file before the first command runs, and our memory
is closed to other processes of this user. The host trusts no answer all the same: each is checked against our
types, bounded in bytes and seconds, and can only be the answer to what was asked; anything else is a typed error
there. The worst is a lie about what happened in this container, which a hostile command can tell anyway.
"""

import argparse
import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from runtime import processes
from runtime.actions import SandboxAction
from runtime.cgroup import OomKills
from runtime.executor import Executor
from runtime.forward import forwarding, user
from runtime.observations import Failed, Observation
from runtime.plugins import Plugins
from runtime.wire import MOST, VERSION, Answer, FrameTooLarge, Hello, Request, receive, send

BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from runtime.server import main; main()"
ALONE = 60  # seconds without a host until the server gives up: who takes over must come sooner
REMEMBERED = 2  # answers; the host waits for one before it asks for the next
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25  # seconds between two attempts to dial


class Server:
    """Runs each request once, however often and over however many connections it is asked for."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._running: dict[int, asyncio.Task[Observation]] = {}
        self._last = 0
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
                await send(writer, Hello(version=VERSION, key=key, last=self._last, limits=self._limits))
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
                await send(writer, Hello(version=VERSION, last=self._last, limits=self._limits))
                await self._converse(reader, writer)
            except OSError:
                pass
            finally:
                here, heard = here - 1, loop.time()
                writer.close()

        async with await asyncio.start_unix_server(admit, f"\0{name}"):
            while here or loop.time() - heard < ALONE:  # noqa: ASYNC110  # a clock ends it, no event
                await asyncio.sleep(1)

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
        observation = await self._answer(request.id, request.action)
        with contextlib.suppress(OSError):  # asked again on the next connection
            await send(writer, Answer(id=request.id, observation=observation))

    async def _answer(self, number: int, action: SandboxAction) -> Observation:
        if (running := self._running.get(number)) is None:
            if number <= self._last:
                return Failed(
                    reason="lost", message="this action has run, but its result is not kept any more"
                )
            self._last = number
            running = self._running[number] = asyncio.create_task(self._executor.act(action))
            for old in [old for old in self._running if old <= number - REMEMBERED]:
                if self._running[old].done():
                    del self._running[old]
        return await asyncio.shield(running)


async def _serve(arguments: argparse.Namespace, env: Mapping[str, str]) -> None:
    plugins = Plugins(Path(arguments.plugins)) if arguments.plugins else None
    executor = Executor(Path(arguments.root), Path(arguments.scratch), env, OomKills(), plugins)
    server = Server(executor)
    if arguments.listen:
        serving = asyncio.ensure_future(server.listen(arguments.listen, arguments.host))
    else:
        key = Path(arguments.key).read_text()  # noqa: ASYNC240  # once, before anything else
        serving = asyncio.ensure_future(server.serve(arguments.socket, key))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    way_out = forwarding(arguments.egress, arguments.host) if arguments.egress else contextlib.nullcontext()
    try:
        with contextlib.suppress(asyncio.CancelledError):
            async with way_out:
                await serving
    finally:
        await executor.close()


def main() -> None:
    processes.hide_memory()
    parser = argparse.ArgumentParser(prog="runtime.server", description=__doc__)
    parser.add_argument("--socket", help="the Unix socket on which the host listens")
    parser.add_argument("--key", help="the file with the key that the host wants to hear")
    parser.add_argument("--listen", help="instead of these: the abstract socket to which the host comes")
    parser.add_argument("--host", type=int, default=0, help="the user that comes there for the host")
    parser.add_argument("--root", required=True, help="the work tree")
    parser.add_argument("--scratch", required=True, help="a directory for temporary files")
    parser.add_argument("--plugins", help="the directory with the plugins; none: those of this Python")
    parser.add_argument(
        "--egress", help="the proxy's Unix socket, or @ and where the host comes; none: nothing leads out"
    )
    # The container's environment is the sandbox's own: the host has put nothing secret into it.
    asyncio.run(_serve(parser.parse_args(), dict(os.environ)))
