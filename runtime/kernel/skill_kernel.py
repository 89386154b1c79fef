"""Jupyter's kernel, with the output, the interrupts and the skills of our sessions.

Runs in the kernel process, on the repository's own Python (3.9 or newer).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import os
import pdb
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import zmq
from ipykernel.displayhook import ZMQShellDisplayHook
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQDisplayPublisher, ZMQInteractiveShell

from .cell_output import HOST_REQUEST_PREFIX, CellOutput, collapse_traceback

NO_INPUT_MESSAGE = (
    "there is no standard input: put the value into the code. Run a program that prompts for input, or a debugger "
    "(python3 -m pdb), with run_shell and interactive set to true"
)
HOST_CONNECT_TIMEOUT = 10.0  # Seconds in which the host must connect to the stdin channel.


def refuse_input(*_: object, **__: object) -> str:
    raise EOFError(NO_INPUT_MESSAGE)


def refuse_debugger(*_: object, **__: object) -> None:
    raise RuntimeError(NO_INPUT_MESSAGE)


def exit_cell(code: object = None) -> None:
    """End the cell; the session continues."""
    raise SystemExit(code)


def show_figures(output: CellOutput) -> None:
    """Collect the figures that a cell has left open, and close them. Notebooks do the same."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or not hasattr(pyplot, "get_fignums"):  # Another thread is still importing matplotlib.
        return
    for number in pyplot.get_fignums():
        buffer = io.BytesIO()
        pyplot.figure(number).savefig(buffer, format="png", bbox_inches="tight")
        output.show({"image/png": buffer.getvalue()})
    pyplot.close("all")


def find_output(part: Any) -> CellOutput:
    """Return the output of the application to which the kernel, the shell and the shell's parts belong."""
    while part.parent is not None:
        part = part.parent
    output: CellOutput = part.cell_output
    return output


class ResultHook(ZMQShellDisplayHook):
    """Writes the value of a cell's last expression."""

    def start_displayhook(self) -> None:
        pass

    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, format_dict: dict[str, Any], md_dict: object = None) -> None:
        find_output(self).show(format_dict)

    def finish_displayhook(self) -> None:
        pass


class DisplayPublisher(ZMQDisplayPublisher):
    """Writes displayed objects."""

    def publish(self, data: dict[str, Any], *_: object, **__: object) -> None:
        find_output(self).show(data)

    def clear_output(self, wait: bool = False) -> None:
        pass


class SkillShell(ZMQInteractiveShell):
    """Writes tracebacks. Child processes print directly to the pipe."""

    displayhook_class = ResultHook
    display_pub_class = DisplayPublisher
    failed = False

    def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: list[str]) -> None:
        self._last_traceback = stb
        if issubclass(etype, SystemExit):
            code = getattr(evalue, "code", None)
            self.failed = self.failed or code not in (None, 0)
            find_output(self).write_line(
                f"[the cell exited with SystemExit({code!r}); the session continues]"
            )
            return
        self.failed = True
        find_output(self).write_line("\n".join(collapse_traceback(stb)))

    @functools.wraps(ZMQInteractiveShell.run_cell_async)  # IPython inspects its parameters
    async def run_cell_async(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        try:
            return await super().run_cell_async(*args, **kwargs)
        except KeyboardInterrupt as error:  # A KeyboardInterrupt outside the task would end the session.
            raise asyncio.CancelledError from error

    def show_usage_error(self, exc: BaseException) -> None:
        self.failed = True
        super().show_usage_error(exc)  # type: ignore[no-untyped-call]

    def init_environment(self) -> None:
        pass  # IPython's own method would enable colors in every program.

    def system(self, command: str) -> None:
        self.system_raw(command)  # type: ignore[no-untyped-call]
        if code := self.user_ns.get("_exit_code"):
            find_output(self).write_line(f"[exit code {code}]")

    def set_next_input(self, text: str, replace: bool = False) -> None:
        find_output(self).write_line(text)  # The session has no input line that IPython could fill in.


class SkillKernel(IPythonKernel):
    """Runs cells, and lets skills send requests to the host."""

    shell_class = SkillShell

    def pre_handler_hook(self) -> None:
        """Do nothing. Jupyter's method would let an interrupt discard a message while no cell is running."""

    post_handler_hook = pre_handler_hook

    async def do_execute(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        pid = os.getpid()
        output = find_output(self)
        output.restore()
        shell: Any = self.shell
        shell.failed = False
        try:
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                reply: dict[str, Any] = await super().do_execute(*args, **kwargs)  # type: ignore[no-untyped-call]
            finally:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        except (KeyboardInterrupt, asyncio.CancelledError):  # An interrupt outside of the cell's code.
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # The interrupt may come before `finally`.
            shell.failed = True
            output.write_line("KeyboardInterrupt")
            reply = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
        if os.getpid() != pid:
            os._exit(0)  # If a forked child returned, it would receive the session's messages.
        return {"ok": not shell.failed, **output.images.take(), **reply}

    raw_input = getpass = staticmethod(refuse_input)

    @contextlib.contextmanager
    def _cancel_on_sigint(self, future: asyncio.Future[Any]) -> Iterator[None]:
        """Interrupt a cell at once, even during an `await`. ipykernel 7.4 would interrupt it later."""
        loop = asyncio.get_running_loop()

        def interrupt(*_: object) -> None:
            if asyncio.current_task(loop) is future:
                raise KeyboardInterrupt
            loop.call_soon_threadsafe(future.cancel)

        loop.add_signal_handler(signal.SIGINT, lambda: None)  # with this, the signal wakes up the loop
        signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def ask(self, modality: str, files: list[str], task: str = "", model: str | None = None) -> str:
        """Return the host's answer. If there is none, raise RuntimeError, which contains the reason."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("the host can be asked only from the main thread of the session")
        request = {"modality": modality, "files": list(files), "task": task, "model": model}
        reply = json.loads(self._send_request(HOST_REQUEST_PREFIX + json.dumps(request)))
        if reply["failed"]:
            raise RuntimeError(reply["text"])
        return str(reply["text"])

    def _send_request(self, request: str) -> str:
        # The host may connect this channel late. Without this option, the request would silently be lost.
        self.stdin_socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        deadline = time.monotonic() + HOST_CONNECT_TIMEOUT
        while True:
            try:
                return str(IPythonKernel.raw_input(self, request))  # type: ignore[no-untyped-call]
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH or time.monotonic() > deadline:
                    raise RuntimeError(f"the host cannot be reached: {error}") from error
            time.sleep(0.02)


class KernelApp(IPKernelApp):
    """Does not read the machine's Jupyter configuration, and prints no crash report."""

    cell_output: CellOutput

    def load_config_file(self, *_: object, **__: object) -> None:
        pass

    def init_crash_handler(self) -> None:
        pass

    def init_pdb(self) -> None:
        pdb.set_trace = refuse_debugger

    def init_gui_pylab(self) -> None:
        pass  # IPython's own method would choose a plotting backend that child processes cannot use.


def create_app(directory: str, output: CellOutput) -> KernelApp:
    """Create the application of the kernel. It prints to `output`, and writes files only to `directory`."""
    app = KernelApp.instance(
        connection_file=os.path.join(directory, "connection.json"),
        kernel_class=SkillKernel,
        outstream_class=None,
        default_extensions=[],
        ignore_cwd=True,
        log_level=50,
    )
    app.cell_output = output
    app.config.HistoryManager.enabled = False
    app.config.InteractiveShell.colors = "nocolor"
    app.config.InteractiveShell.xmode = "Plain"
    app.config.InteractiveShell.display_page = True
    app.initialize([])  # type: ignore[no-untyped-call]
    shell = app.kernel.shell
    shell.events.register("post_execute", lambda: show_figures(output))
    warnings.filterwarnings("ignore", message="To exit: use")
    shell.push({"exit": exit_cell, "quit": exit_cell}, interactive=False)
    return app
