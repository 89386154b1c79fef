"""An engine behind ssh: its socket as one of this machine, by the user's own `ssh`, with its keys and known hosts."""

import contextlib
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from runtime.errors import EngineUnavailable

CONNECT = 30.0  # seconds
_SOCKET = "/var/run/docker.sock"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class Tunnel:
    """A running `ssh` that forwards a local socket. Blocking; for the engine's thread."""

    def __init__(self, url: str) -> None:
        """Connect. Raises EngineUnavailable with what ssh said."""
        self._directory = Path(tempfile.mkdtemp(prefix="pw-ssh-"))  # mode 0700
        socket = self._directory / "s"
        try:
            # A remote command that ends with its input, and not -N: so ssh ends when this process is killed.
            self._ssh = subprocess.Popen(
                [*_command(url, socket), "cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for us, who still have to clean up over there
            )
        except OSError as error:
            self._remove()
            raise EngineUnavailable(f"an engine behind ssh needs the program ssh: {error}") from error
        except EngineUnavailable:
            self._remove()
            raise
        deadline = time.monotonic() + CONNECT
        while not socket.exists():
            if self._ssh.poll() is not None or time.monotonic() > deadline:
                self._ssh.kill()
                said = self._ssh.communicate()[1].decode("utf-8", "replace").strip()[-500:]
                self._remove()
                raise EngineUnavailable(f"ssh does not reach the engine at {url}: {said or 'no answer'}")
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


def _command(url: str, socket: Path) -> list[str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise EngineUnavailable(f"{url} is not an engine's address: {error}") from error
    names = [parts.hostname or "", *([parts.username] if parts.username else [])]
    if parts.password or not all(_NAME.fullmatch(name) for name in names):
        raise EngineUnavailable(f"the engine's address should look like ssh://user@host:22, not {url}")
    there = unquote(parts.path) if parts.path.strip("/") else _SOCKET
    options = [
        *("-o", "BatchMode=yes"),  # nobody is there to answer
        *("-o", "ExitOnForwardFailure=yes"),
        *("-o", "ServerAliveInterval=15"),
        *("-T", "-L", f"{socket}:{there}"),
        *(["-p", str(port)] if port else []),
        *(["-l", parts.username] if parts.username else []),
    ]
    return ["ssh", *options, "--", parts.hostname or ""]
