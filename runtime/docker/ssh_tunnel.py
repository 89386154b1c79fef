"""Forwards the socket of a remote engine to this machine. Uses the user's own `ssh`, with its keys and known
hosts.
"""

import contextlib
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from patchwright.runtime.errors import EngineUnavailable

CONNECT_TIMEOUT = 30.0  # seconds
_REMOTE_SOCKET = "/var/run/docker.sock"
_HOST_OR_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class SshTunnel:
    """A running `ssh` that forwards a local socket. Its methods block, and run in the engine's thread."""

    def __init__(self, url: str) -> None:
        """Connect. Raises EngineUnavailable, which contains the message of `ssh`."""
        self._directory = Path(tempfile.mkdtemp(prefix="pw-ssh-"))  # mode 0700
        socket = self._directory / "s"
        try:
            # ssh runs `cat` on the remote machine instead of using -N. `cat` ends when its input ends. So ssh
            # ends, too, if this process is killed.
            self._ssh = subprocess.Popen(
                [*_ssh_command(url, socket), "cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C must not end ssh, because the cleanup still needs the engine
            )
        except OSError as error:
            self._remove()
            raise EngineUnavailable(f"a Docker engine over ssh needs the program `ssh`: {error}") from error
        except EngineUnavailable:
            self._remove()
            raise
        deadline = time.monotonic() + CONNECT_TIMEOUT
        while not socket.exists():
            if self._ssh.poll() is not None or time.monotonic() > deadline:
                self._ssh.kill()
                stderr = self._ssh.communicate()[1].decode("utf-8", "replace").strip()[-500:]
                self._remove()
                raise EngineUnavailable(f"ssh cannot reach the engine at {url}: {stderr or 'no response'}")
            time.sleep(0.02)
        self.url = f"unix://{socket}"

    def close(self) -> None:
        self._ssh.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._ssh.communicate(timeout=5)
        self._ssh.kill()
        self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def _ssh_command(url: str, socket: Path) -> list[str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise EngineUnavailable(f"{url} is not a valid engine URL: {error}") from error
    names = [parts.hostname or "", *([parts.username] if parts.username else [])]
    if parts.password or not all(_HOST_OR_USER.fullmatch(name) for name in names):
        raise EngineUnavailable(f"write the engine's URL as ssh://user@host:22, not {url}")
    remote_socket = unquote(parts.path) if parts.path.strip("/") else _REMOTE_SOCKET
    options = [
        *("-o", "BatchMode=yes"),  # ssh must not prompt, because no user could answer
        *("-o", "ExitOnForwardFailure=yes"),
        *("-o", "ServerAliveInterval=15"),
        *("-T", "-L", f"{socket}:{remote_socket}"),
        *(["-p", str(port)] if port else []),
        *(["-l", parts.username] if parts.username else []),
    ]
    return ["ssh", *options, "--", parts.hostname or ""]
