"""The process of one Python session: its start in the repository's Python or in ours, its output, its end."""

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from runtime import processes
from runtime.plugins import Plugins
from runtime.text import Capture, Captured, shorten

BOOT = Path(__file__).with_name("boot.py")
SKILLS = Path(__file__).parents[1] / "skills"
VERSIONS = range(9, 21)  # of Python 3 that a kernel may be there for
START = 12.0  # seconds for one way to start it; 0.6 on an idle machine
# Processes, and forks of forks, that cells may leave running; more are a fork bomb.
MOST_LEFT, MOST_STRAYS = 64, 8
PIPE = 1 << 20  # bytes; how much a cell may print ahead of us
MARK = "PATCHWRIGHT_SESSION"  # in the environment of all that a session starts
_LONGEST_SOCKET = 107  # bytes; unix(7)
_SOCKETS = ("shell", "iopub", "stdin", "control", "hb")


class NotStarted(Exception):
    """No Python here can run a session; says why, and goes to the model."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to start a session."""

    python: str
    isolated: bool = False
    """It is ours, without the packages of the repository."""
    first: bool = False
    """The session's own packages go before the repository's of the same names."""

    def note(self, reason: str) -> str | None:
        """What whoever writes cells has to know of it; `reason` is why the ways before failed."""
        if self.isolated:
            version = "{}.{}".format(*sys.version_info)
            return (
                f"the repository's Python cannot run this session ({reason}): it is Python {version} without what "
                "is installed for the repository, which only run_shell reaches, with python3"
            )
        if self.first:
            return (
                f"with what is installed for the repository this session does not start ({reason}): IPython, "
                "tornado, traitlets, zmq and what they need are the session's own, so test those with run_shell"
            )
        return None


class KernelProcess:
    """A running session, before anything is said to it."""

    def __init__(self, process: "subprocess.Popen[bytes]", output: int, home: Path) -> None:
        self._process = process
        self._home = home
        self._output = Capture()
        self._pipe: int | None = output
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done when the process has ended, however that came."""
        self.note: str | None = None
        """What is to be known about this session, once."""
        self._killed = False
        self._watch = os.pidfd_open(process.pid)
        self._loop.add_reader(output, self._read)
        self._loop.add_reader(self._watch, self._exited)

    @classmethod
    async def start(
        cls, root: Path, scratch: Path, env: Mapping[str, str], plugins: Plugins
    ) -> "KernelProcess":
        """A session that is ready for its first cell. Raises NotStarted."""
        reason = "there is no python3 on the PATH"
        slow = False
        for way in _ways(env):
            if slow and way.first:
                continue  # it would be as slow, and whoever waits does so for START twice at most
            home = _home(scratch)
            process, output, ready = _spawn(way, root, scratch, home, env, plugins)
            kernel = cls(process, output, home)
            try:
                if (problem := await kernel._ready(ready)) is None:
                    kernel.note = way.note(reason)
                    return kernel
                reason, slow = problem, not kernel.ended.done()
            except BaseException:
                await kernel.close()
                raise
            await kernel.close()
        raise NotStarted(f"no Python session can be started here: {reason}")

    @property
    def connection(self) -> dict[str, Any]:
        """Where and with which key Jupyter's channels are."""
        said: dict[str, Any] = json.loads((self._home / "connection.json").read_text())
        return said

    @property
    def how(self) -> str:
        """How it ended, in words."""
        code = self._process.poll()
        if code is None or self._killed:
            return "did not listen and was killed"
        return (
            f"was ended by signal {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        )

    def take_output(self) -> Captured:
        """All that was printed since the last time."""
        self._drain()
        taken, self._output = self._output.take(), Capture()
        return taken

    def children(self) -> set[int]:
        return processes.children(self._process.pid)

    def interrupt(self, spare: Iterable[int]) -> None:
        """Do what Ctrl-C does to a program, and kill what it has started but for `spare`."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGINT)
            os.kill(self._process.pid, signal.SIGCONT)
        self.clear(spare)

    def clear(self, spare: Iterable[int]) -> None:
        """Kill what it has started but for `spare`."""
        processes.kill_below(self._process.pid, spare)

    def disperse(self) -> str | None:
        """Kill what cells have left running if it is so much that nothing else gets its turn; says so."""
        pid = self._process.pid
        if processes.members(pid) - 1 <= MOST_STRAYS:
            return None
        left = len(processes.session(pid)) - 1
        if left <= MOST_LEFT and len(processes.stray_forks(pid)) <= MOST_STRAYS:
            return None
        processes.kill_session(pid, spare=[pid])
        return f"cells had left {left} processes running, too many: all of them were killed"

    async def close(self) -> None:
        """Kill it with everything that it and its cells have started."""
        pid = self._process.pid
        if self._process.returncode is None:
            self._killed = True
            processes.kill_below(pid)
            processes.kill([pid])
            await self._loop.run_in_executor(None, self._process.wait)
        processes.kill_session(pid)
        processes.kill(processes.with_environment(f"{MARK}={self._home}"))
        if not self.ended.done():
            self.ended.set_result(None)
        if self._watch >= 0:
            self._loop.remove_reader(self._watch)
            os.close(self._watch)
            self._watch = -1
        self._drain()
        self._hang_up()
        await asyncio.to_thread(shutil.rmtree, self._home, ignore_errors=True)

    async def _ready(self, descriptor: int) -> str | None:
        """Why it is not ready to run cells, which it says within START seconds; None: it is."""
        said: asyncio.Future[bytes] = self._loop.create_future()

        def hear() -> None:
            if not said.done():
                said.set_result(os.read(descriptor, 16))

        self._loop.add_reader(descriptor, hear)
        try:
            async with asyncio.timeout(START):
                if await said:
                    return None
                await asyncio.shield(self.ended)
        except TimeoutError:
            return f"it did not start within {START:g} s"
        finally:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
        lines = shorten(self.take_output(), 2000).strip().splitlines()
        return lines[-1] if lines else self.how

    def _drain(self) -> None:
        """Read what is in the pipe now; what is printed meanwhile may go on for ever."""
        left = PIPE
        while left > 0 and self._pipe is not None and (read := self._read()):
            left -= read

    def _read(self) -> int:
        assert self._pipe is not None
        try:
            data = os.read(self._pipe, 1 << 18)
        except BlockingIOError:
            return 0
        self._output.add(data)
        if not data:  # nobody has the other end any more
            self._hang_up()
        return len(data)

    def _exited(self) -> None:
        self._loop.remove_reader(self._watch)
        self._process.wait()
        if not self.ended.done():
            self.ended.set_result(None)

    def _hang_up(self) -> None:
        if self._pipe is not None:
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = None


def _ways(env: Mapping[str, str]) -> Iterator[Way]:
    if (theirs := shutil.which("python3", path=env.get("PATH"))) is not None:
        yield Way(theirs)
        yield Way(theirs, first=True)
    yield Way(sys.executable, isolated=True)


def _spawn(
    way: Way, root: Path, scratch: Path, home: Path, env: Mapping[str, str], plugins: Plugins
) -> "tuple[subprocess.Popen[bytes], int, int]":
    """The process, the descriptor of its output, and the one on which it says that it is ready."""
    output, printed = os.pipe()
    ready, said = os.pipe()
    os.set_blocking(output, False)
    with contextlib.suppress(OSError):  # beyond the user's share of pipes it stays as it is
        fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, PIPE)
    plan = {
        "root": str(root),
        "home": str(home),
        "ready": said,
        "packages": _packages(plugins),
        "first": way.first,
        "skills": str(SKILLS),
        "scratch": str(scratch),
        "documents": plugins.documents_command(),
        "missing": plugins.missing("documents"),
    }
    try:
        process = subprocess.Popen(
            [way.python, *(["-I"] if way.isolated else []), str(BOOT), json.dumps(plan)],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            cwd=root,
            env={**env, MARK: str(home)},
            start_new_session=True,
            pass_fds=[said],
        )
    except OSError:
        os.close(output)
        os.close(ready)
        raise
    finally:
        os.close(printed)
        os.close(said)
    return process, output, ready


def _packages(plugins: Plugins) -> dict[str, str]:
    """Version of Python -> directory with ipykernel for it."""
    found = {f"3.{minor}": plugins.kernel_packages((3, minor)) for minor in VERSIONS}
    own = plugins.packages("kernel")
    if own is None and (spec := find_spec("ipykernel")) is not None and spec.origin is not None:
        own = Path(spec.origin).parents[1]
    found["{}.{}".format(*sys.version_info)] = own
    return {version: str(directory) for version, directory in found.items() if directory is not None}


def _home(scratch: Path) -> Path:
    """A new directory for a session, with a name so short that sockets can be in it."""
    name = len("/session-12345678/s-1")
    parent = scratch if len(os.fsencode(scratch)) + name <= _LONGEST_SOCKET else Path("/tmp")
    home = Path(tempfile.mkdtemp(prefix="session-", dir=parent))
    ports = {f"{socket}_port": number for number, socket in enumerate(_SOCKETS, start=1)}
    connection = {
        "transport": "ipc",
        "ip": str(home / "s"),
        "key": secrets.token_hex(32),
        "signature_scheme": "hmac-sha256",
        **ports,
    }
    (home / "connection.json").write_text(json.dumps(connection))
    return home
