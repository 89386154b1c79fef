"""The process of one Python session. It runs in the repository's Python or in our own."""

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

from patchwright.runtime import processes
from patchwright.runtime.features import SandboxFeatures
from patchwright.runtime.output_text import CapturedOutput, OutputCapture, clip_captured

IPYKERNEL_MAIN = Path(__file__).with_name("ipykernel_main.py")
SKILLS_DIRECTORY = Path(__file__).parents[1] / "skills"
PYTHON_MINOR_VERSIONS = range(9, 21)  # minor versions of Python 3 for which a kernel may be installed
START_TIMEOUT = 12.0  # Maximum seconds for the start of a session. On an idle machine, it takes 0.6.
# Maximum number of processes, and of stray forks, that cells may leave running. More of them are a sign of a
# fork bomb.
MAX_LEFT_RUNNING, MAX_STRAY_FORKS = 64, 8
PIPE_BYTES = 1 << 20  # Maximum bytes that a cell may print before this process reads them.
# All processes that a session starts can be found by this variable in their environment.
SESSION_VARIABLE = "PATCHWRIGHT_SESSION"
_MAX_SOCKET_PATH = 107  # bytes; unix(7)
_CHANNELS = ("shell", "iopub", "stdin", "control", "hb")


class KernelStartError(Exception):
    """No Python in this sandbox can run a session. The message gives the reason and goes to the model."""


@dataclass(frozen=True, slots=True)
class LaunchOption:
    """One way to start a session."""

    python: str
    is_isolated: bool = False
    """True if our own Python is used, without the repository's packages."""
    own_packages_first: bool = False
    """True if the session's own packages take precedence over packages of the repository with the same names.
    """

    def describe(self, reason: str) -> str | None:
        """Return a note for the model about the effects of this option, or None if no note is needed.

        `reason` says why the options that were tried earlier failed.
        """
        if self.is_isolated:
            version = "{}.{}".format(*sys.version_info)
            return (
                f"the repository's Python cannot run this session ({reason}), so the session uses Python {version} "
                "without the repository's packages: to use these packages, run python3 with run_shell"
            )
        if self.own_packages_first:
            return (
                f"this session cannot start with the repository's packages ({reason}), so it uses its own IPython, "
                "tornado, traitlets, zmq and their dependencies: test these packages with run_shell"
            )
        return None


class KernelProcess:
    """The process of a running session. The module kernel_manager handles Jupyter's channels to it."""

    def __init__(self, process: "subprocess.Popen[bytes]", output: int, directory: Path) -> None:
        self._process = process
        self._directory = directory
        self._output = OutputCapture()
        self._pipe: int | None = output
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Completes when the process has ended for any reason."""
        self.note: str | None = None
        """A note for the model about this session. It is reported once."""
        self._killed = False
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(output, self._read)
        self._loop.add_reader(self._pidfd, self._on_exit)

    @classmethod
    async def start(
        cls, root: Path, scratch: Path, env: Mapping[str, str], features: SandboxFeatures
    ) -> "KernelProcess":
        """Start a session. Return it when it can run its first cell. Raises KernelStartError."""
        reason = "there is no python3 on the PATH"
        slow = False
        for option in _launch_options(env):
            if slow and option.own_packages_first:
                # This option would be just as slow. It is skipped, so that a caller waits for START_TIMEOUT
                # at most twice.
                continue
            directory = _create_session_directory(scratch)
            process, output, ready = _spawn(option, root, scratch, directory, env, features)
            kernel = cls(process, output, directory)
            try:
                if (problem := await kernel._wait_until_ready(ready)) is None:
                    kernel.note = option.describe(reason)
                    return kernel
                reason, slow = problem, not kernel.ended.done()
            except BaseException:
                await kernel.close()
                raise
            await kernel.close()
        raise KernelStartError(f"no Python session can be started here: {reason}")

    @property
    def connection(self) -> dict[str, Any]:
        """The connection info of Jupyter's channels. It contains their addresses and the key."""
        info: dict[str, Any] = json.loads((self._directory / "connection.json").read_text())
        return info

    @property
    def exit_description(self) -> str:
        """A phrase that describes how the process ended."""
        code = self._process.poll()
        if code is None or self._killed:
            return "did not respond and was killed"
        return (
            f"was ended by signal {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        )

    def take_output(self) -> CapturedOutput:
        """Return all output since the last call."""
        self._drain()
        output, self._output = self._output.take(), OutputCapture()
        return output

    def children(self) -> set[int]:
        return processes.child_pids(self._process.pid)

    def interrupt(self, exclude: Iterable[int]) -> None:
        """Interrupt the process as Ctrl-C does. Also kill its children, except those in `exclude`."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGINT)
            os.kill(self._process.pid, signal.SIGCONT)
        self.kill_children(exclude)

    def kill_children(self, exclude: Iterable[int]) -> None:
        """Kill all children of the process except those in `exclude`."""
        processes.kill_descendants(self._process.pid, exclude)

    def kill_strays(self) -> str | None:
        """If cells have left too many processes running, kill them and return a note. Otherwise, return None."""
        pid = self._process.pid
        if processes.count_session_members(pid) - 1 <= MAX_STRAY_FORKS:
            return None
        count = len(processes.session_pids(pid)) - 1
        if count <= MAX_LEFT_RUNNING and len(processes.find_stray_forks(pid)) <= MAX_STRAY_FORKS:
            return None
        processes.kill_session(pid, exclude=[pid])
        return f"cells had left too many processes running ({count}): all of them were killed"

    async def close(self) -> None:
        """Kill the process, and everything that the process and its cells have started."""
        pid = self._process.pid
        if self._process.returncode is None:
            self._killed = True
            processes.kill_descendants(pid)
            processes.kill([pid])
            await self._loop.run_in_executor(None, self._process.wait)
        processes.kill_session(pid)
        processes.kill(processes.find_by_environment(f"{SESSION_VARIABLE}={self._directory}"))
        if not self.ended.done():
            self.ended.set_result(None)
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        self._drain()
        self._close_pipe()
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    async def _wait_until_ready(self, descriptor: int) -> str | None:
        """Wait up to START_TIMEOUT seconds until cells can run. Return None on success, otherwise the reason
        for the failure.
        """
        readiness: asyncio.Future[bytes] = self._loop.create_future()

        def read() -> None:
            if not readiness.done():
                readiness.set_result(os.read(descriptor, 16))

        self._loop.add_reader(descriptor, read)
        try:
            async with asyncio.timeout(START_TIMEOUT):
                if await readiness:
                    return None
                await asyncio.shield(self.ended)
        except TimeoutError:
            return f"it did not start within {START_TIMEOUT:g} s"
        finally:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
        lines = clip_captured(self.take_output(), 2000).strip().splitlines()
        return lines[-1] if lines else self.exit_description

    def _drain(self) -> None:
        """Read what the pipe contains now, and then stop, because the output may be endless."""
        remaining = PIPE_BYTES
        while remaining > 0 and self._pipe is not None and (read := self._read()):
            remaining -= read

    def _read(self) -> int:
        assert self._pipe is not None
        try:
            data = os.read(self._pipe, 1 << 18)
        except BlockingIOError:
            return 0
        self._output.add(data)
        if not data:  # The other end of the pipe is closed.
            self._close_pipe()
        return len(data)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._process.wait()
        if not self.ended.done():
            self.ended.set_result(None)

    def _close_pipe(self) -> None:
        if self._pipe is not None:
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = None


def _launch_options(env: Mapping[str, str]) -> Iterator[LaunchOption]:
    if (project_python := shutil.which("python3", path=env.get("PATH"))) is not None:
        yield LaunchOption(project_python)
        yield LaunchOption(project_python, own_packages_first=True)
    yield LaunchOption(sys.executable, is_isolated=True)


def _spawn(
    option: LaunchOption,
    root: Path,
    scratch: Path,
    directory: Path,
    env: Mapping[str, str],
    features: SandboxFeatures,
) -> "tuple[subprocess.Popen[bytes], int, int]":
    """Start the process. Return the process and two file descriptors. The first reads the process's output, and
    the second reports that the process is ready.
    """
    output, output_writer = os.pipe()
    ready, ready_writer = os.pipe()
    os.set_blocking(output, False)
    # This fails if the user has reached the limit for pipes. The pipe is then smaller, which is harmless.
    with contextlib.suppress(OSError):
        fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    config = {
        "root": str(root),
        "directory": str(directory),
        "ready": ready_writer,
        "packages": _find_packages(features),
        "own_packages_first": option.own_packages_first,
        "skills": str(SKILLS_DIRECTORY),
        "scratch": str(scratch),
        "documents_command": features.documents_command(),
        "missing_message": features.missing_message("documents"),
    }
    try:
        process = subprocess.Popen(
            [option.python, *(["-I"] if option.is_isolated else []), str(IPYKERNEL_MAIN), json.dumps(config)],
            stdin=subprocess.DEVNULL,
            stdout=output_writer,
            stderr=output_writer,
            cwd=root,
            env={**env, SESSION_VARIABLE: str(directory)},
            start_new_session=True,
            pass_fds=[ready_writer],
        )
    except OSError:
        os.close(output)
        os.close(ready)
        raise
    finally:
        os.close(output_writer)
        os.close(ready_writer)
    return process, output, ready


def _find_packages(features: SandboxFeatures) -> dict[str, str]:
    """Find the directory that contains ipykernel for each Python version. Leave out versions without ipykernel."""
    directories = {f"3.{minor}": features.kernel_packages((3, minor)) for minor in PYTHON_MINOR_VERSIONS}
    own = features.packages("kernel")
    if own is None and (spec := find_spec("ipykernel")) is not None and spec.origin is not None:
        own = Path(spec.origin).parents[1]
    directories["{}.{}".format(*sys.version_info)] = own
    return {version: str(directory) for version, directory in directories.items() if directory is not None}


def _create_session_directory(scratch: Path) -> Path:
    """Create a directory for a session. The directory's path is short, because the paths of its sockets must
    be short.
    """
    longest_name = len("/session-12345678/s-1")
    parent = scratch if len(os.fsencode(scratch)) + longest_name <= _MAX_SOCKET_PATH else Path("/tmp")
    directory = Path(tempfile.mkdtemp(prefix="session-", dir=parent))
    ports = {f"{socket}_port": number for number, socket in enumerate(_CHANNELS, start=1)}
    connection = {
        "transport": "ipc",
        "ip": str(directory / "s"),
        "key": secrets.token_hex(32),
        "signature_scheme": "hmac-sha256",
        **ports,
    }
    (directory / "connection.json").write_text(json.dumps(connection))
    return directory
