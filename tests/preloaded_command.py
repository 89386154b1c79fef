"""Runs `patchwright ARGUMENTS` or `python3 -m pytest` in a process that has already imported its modules.

Importing them takes two seconds of CPU time per process, and five seconds with litellm. So all processes of one test
run share a server: it imports the modules once and forks itself for each command. A server that a test starts has its
child processes forked there, too. `preloaded_command` returns the start of a command line for `subprocess`. Its process
has the arguments, environment, directory, files, signals and exit code of the real command, but no terminal, and its id
is not the id of the process that does the work.
"""

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

COMMAND = (sys.executable, "-m", "patchwright")
"""The start of a command line for tests that need the process itself, for example to kill it."""

PROGRAM = "--program"
REQUEST_BYTES = 1 << 20
CLIENT = Path(__file__).with_name("preloaded_client.py")


def preloaded_command() -> tuple[str, ...]:
    """Returns the start of a command line that works like `python -m patchwright`. Starts the server if necessary."""
    return _forward_to(_start_server("patchwright"))


def preloaded_python() -> tuple[str, ...]:
    """Returns the start of a command line that works like `python FILE` for a program that uses patchwright."""
    return (*preloaded_command(), PROGRAM)


def preloaded_pytest() -> tuple[str, ...]:
    """Returns the start of a command line that works like `python3 -m pytest`."""
    return _forward_to(_start_server("pytest"))


@functools.cache
def _start_server(module: str) -> str:
    """Returns the address of a server that runs commands of a module."""
    from tests.preloaded_client import connect  # not at the top, because this file is also a program

    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", os.getpid())
    address = Path(tempfile.gettempdir(), f"pw-{run}-{module}.sock")
    with address.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not address.exists():
            server = subprocess.Popen(
                [sys.executable, "-P", __file__, module, str(address)],
                # A test may have imported litellm, so variables that `_preload` returns may be set here already.
                env={"PATH": os.environ["PATH"]},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
            )
            assert server.stdout is not None and server.stdout.readline() == b"ready\n"
        _LEASES.append(connect(str(address)))
    return str(address)


def _forward_to(address: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(CLIENT), address)


_LEASES: list[socket.socket] = []
"""Open connections without a request. The server ends with the last process that holds one."""


def _serve(module: str, address: str) -> list[str] | None:
    """Forks a process for each request. Returns the arguments of the command in such a process, and None here."""
    defaults = _preload_pytest() if module == "pytest" else _preload(address)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no supervisor becomes a zombie
    print("ready", flush=True)
    had_lease = False
    while not had_lease or len(selector.get_map()) > 1:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                selector.register(connection, selectors.EVENT_READ)
                had_lease = True
                continue
            connection = key.fileobj  # type: ignore[assignment]
            selector.unregister(connection)
            if connection.recv(1, socket.MSG_PEEK) and os.fork() == 0:
                selector.close()
                listener.close()
                return _supervise(connection, defaults)
            connection.close()
    os.unlink(address)
    os.unlink(Path(address).with_suffix(".lock"))
    return None


def _preload(address: str) -> dict[str, str]:
    """Imports all modules and compiles all templates. Returns the environment variables that this sets, unless they
    are set.
    """
    import asyncio

    import patchwright
    from patchwright import templates
    from patchwright.resolver.llm.litellm import preload_litellm
    from patchwright.resolver.rendering.jinja_templates import get_environment

    before = dict(os.environ)
    for module in pkgutil.walk_packages(patchwright.__path__, "patchwright."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    for template in (texts := Path(templates.__path__[0])).rglob("*.j2"):
        get_environment().get_template(template.relative_to(texts).as_posix())
    asyncio.run(preload_litellm())
    with contextlib.suppress(ModuleNotFoundError):  # The tests of other packages run without the bot.
        from patchwright.bot.cli import server_commands

        server_commands.PATCHWRIGHT = _forward_to(
            address
        )  # the child processes of servers are forked here, too
    gc.freeze()
    return {name: value for name, value in os.environ.items() if name not in before}


def _preload_pytest() -> dict[str, str]:
    for module in ("pytest", *_pytest_plugins()):
        importlib.import_module(module)
    gc.freeze()
    return {}


def _pytest_plugins() -> list[str]:
    from _pytest.config import default_plugins

    return [f"_pytest.{name}" for name in default_plugins]


def _supervise(connection: socket.socket, defaults: dict[str, str]) -> list[str]:
    """Forks the process of the command and waits for it. Returns only in the forked process, with its arguments."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, files, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 3)
    while not data.endswith(b"\n"):
        data += connection.recv(REQUEST_BYTES)
    request = json.loads(data)
    pid = os.fork()
    if pid == 0:
        connection.close()
        _become(files, defaults | request["environment"], request["directory"])
        return list(request["arguments"])
    for file in files:
        os.close(file)
    ended = os.pidfd_open(pid)
    selector = selectors.DefaultSelector()
    selector.register(connection, selectors.EVENT_READ)
    selector.register(ended, selectors.EVENT_READ)
    while True:
        ready = [key.fileobj for key, _ in selector.select()]
        if ended in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with contextlib.suppress(OSError):
                connection.send(str(code).encode())
            os._exit(0)
        received = connection.recv(1)
        os.kill(pid, received[0] if received else signal.SIGKILL)
        if not received:  # the other process is gone
            selector.unregister(connection)


def _become(files: list[int], environment: dict[str, str], directory: str) -> None:
    """Gives this process the files, environment, and directory of the one that asked for it."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    time.tzset()
    sys.stdin = os.fdopen(0, encoding="utf-8", errors="surrogateescape")
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace")


def _run_command(module: str, arguments: list[str]) -> NoReturn:
    """Runs the command in this process. Does not free the many modules at its end, which takes longer than most
    commands.
    """
    sys.argv = [module, *arguments]
    if module == "pytest":
        # as `python3 -m` does
        sys.path[:0] = [os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    code: object = 1
    try:
        if arguments[:1] == [PROGRAM]:
            _run_program(*arguments[1:])
            code = 0
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as exc:
        code = exc.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    with contextlib.suppress(OSError):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _run_program(file: str, *arguments: str) -> None:
    sys.argv = [file, *arguments]
    sys.path.insert(0, str(Path(file).parent))
    runpy.run_path(file, run_name="__main__")


if __name__ == "__main__":
    command_arguments = _serve(sys.argv[1], sys.argv[2])
    if command_arguments is not None:
        _run_command(sys.argv[1], command_arguments)
