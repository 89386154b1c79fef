"""What runs inside the kernel's process: IPython, its output on descriptor 1, and the skills.

A script for the repository's own Python (3.9 or newer), with nothing of ours importable in it; the process that
starts it passes a `Plan` as JSON. All that is printed goes to one pipe in the order in which it is written, also
what child processes and C extensions print; only pictures and the cell's end go through Jupyter's channels.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # our own directory: its modules must not shadow the standard library or the repository

import asyncio
import base64
import contextlib
import ctypes
import fcntl
import functools
import io
import itertools
import json
import os
import pdb
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module, util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypedDict

    class Plan(TypedDict):
        """How the session is to be."""

        root: str
        """Directory that is importable whatever the current one is."""
        home: str
        """A directory of its own, with `connection.json` in it."""
        ready: int
        """Descriptor that is written to when cells can be run, and closed."""
        packages: dict[str, str]
        """Version of Python -> directory with ipykernel for it."""
        first: bool
        """These packages go before the repository's own of the same names."""
        skills: str
        """Directory of the package that is imported as `agentskills`."""
        scratch: str
        """Directory for temporary files of skills."""
        documents: list[str] | None
        """How the program that reads documents is started; None: it is not here."""
        missing: str
        """What is said where it is not."""


WANT = "patchwright wants "  # what a request on Jupyter's stdin channel begins with when it is one of a skill
PICTURES = 4  # that a cell hands over: the largest
PICTURE_BYTES = 4 << 20  # of one
CELL_BYTES = 8 << 20  # of all pictures of a cell
MEDIA = ("image/png", "image/jpeg", "image/webp", "image/gif")
FORMS = ("text/markdown", "text/latex", "application/json", "image/svg+xml", "text/html")
NOBODY = (
    "nobody types here: put the value into the code. A program that asks questions, and a debugger "
    "(python3 -m pdb), can be driven with run_shell and interactive set to true"
)
_PDEATHSIG = 1  # prctl(2)
HEARD = 10.0  # seconds in which the host must have connected to hear requests
_KEPT_OUTPUT = 200  # lowest descriptor for the output: cells close and reuse the low ones


class Stream(io.TextIOWrapper):
    """A stream that a cell cannot close: IPython would die of it."""

    def close(self) -> None:
        pass


class Output:
    """Where a cell's output goes, whatever cells do to `sys.stdout` and to the descriptors 1 and 2."""

    def __init__(self) -> None:
        self._descriptor = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, _KEPT_OUTPUT)
        # Nothing is held back: it must not come after what a child process prints, nor twice from a fork.
        raw = io.FileIO(self._descriptor, "w", closefd=False)
        self._stream = Stream(raw, "utf-8", "backslashreplace", write_through=True)

    def restore(self) -> None:
        """Undo what the last cell has redirected or closed."""
        for standard in (1, 2):
            os.dup2(self._descriptor, standard)
        sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = self._stream  # type: ignore[misc]

    def line(self, text: str) -> None:
        """Write text that ends with its line."""
        self._stream.write(text if text.endswith("\n") else text + "\n")


class Gallery:
    """The pictures of one cell: the largest few are kept."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, str, bytes]] = []
        self._shown = 0

    def add(self, media: str, data: bytes) -> int:
        """The picture's number in this cell."""
        self._shown += 1
        found = sorted([*self._kept, (self._shown, media, data)], key=lambda kept: -len(kept[2]))
        self._kept, room = [], CELL_BYTES
        for kept in found:
            size = len(kept[2])
            if size <= min(room, PICTURE_BYTES) and len(self._kept) < PICTURES:
                self._kept.append(kept)
                room -= size
        return self._shown

    def take(self) -> dict[str, Any]:
        """What the cell's reply says of them; the next cell begins with none."""
        pictures = [
            {"number": number, "media": media, "data": base64.b64encode(data).decode()}
            for number, media, data in sorted(self._kept)
        ]
        taken = {"pictures": pictures, "shown": self._shown}
        self._kept, self._shown = [], 0
        return taken


def shown(data: dict[str, Any], gallery: Gallery) -> str:
    """A rich object as text; if it has a picture, that goes to the gallery."""
    for media in MEDIA:
        if picture := data.get(media):
            content = picture if isinstance(picture, bytes) else base64.b64decode(picture)
            return f"[picture {gallery.add(media, content)}: {media}, {len(content):,} bytes]"
    text = str(data.get("text/plain", ""))
    if text and not text.startswith("<IPython.core.display."):
        return text
    form = next((data[name] for name in FORMS if name in data), text)
    return form if isinstance(form, str) else json.dumps(form, indent=1, default=str)


def collapsed(traceback: list[str]) -> Iterator[str]:
    """A traceback whose repeated frames are counted, as Python's own does it."""
    for entry, same in itertools.groupby(traceback):
        times = sum(1 for _ in same)
        yield from [entry] * min(times, 3)
        if times > 3:
            yield f"  [the same frame {times - 3:,} more times]\n"


def nobody(*_: object, **__: object) -> str:
    raise EOFError(NOBODY)


def no_debugger(*_: object, **__: object) -> None:
    raise RuntimeError(NOBODY)


def leave(code: object = None) -> None:
    """End the cell; the session goes on."""
    raise SystemExit(code)


def figures(gallery: Gallery, output: Output) -> None:
    """Take the figures that a cell has left open, as a notebook does."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or not hasattr(pyplot, "get_fignums"):  # it is just being imported by a thread
        return
    for number in pyplot.get_fignums():
        drawn = io.BytesIO()
        pyplot.figure(number).savefig(drawn, format="png", bbox_inches="tight")
        output.line(shown({"image/png": drawn.getvalue()}, gallery))
    pyplot.close("all")


def application(plan: Plan, output: Output) -> Any:
    """Jupyter's kernel, made to print to the pipe and to leave no files outside of its own directory."""
    os.environ["IPYTHONDIR"] = plan["home"]
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # 0.2 s, and a word about itself at each start
    import zmq
    from ipykernel.displayhook import ZMQShellDisplayHook
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelapp import IPKernelApp
    from ipykernel.zmqshell import ZMQDisplayPublisher, ZMQInteractiveShell

    gallery = Gallery()

    class Results(ZMQShellDisplayHook):
        """Writes the value of a cell's last expression."""

        def start_displayhook(self) -> None:
            pass

        def write_output_prompt(self) -> None:
            pass

        def write_format_data(self, format_dict: dict[str, Any], md_dict: object = None) -> None:
            output.line(shown(format_dict, gallery))

        def finish_displayhook(self) -> None:
            pass

    class Displays(ZMQDisplayPublisher):
        """Writes what is displayed."""

        def publish(self, data: dict[str, Any], *_: object, **__: object) -> None:
            output.line(shown(data, gallery))

        def clear_output(self, wait: bool = False) -> None:
            pass

    class Shell(ZMQInteractiveShell):
        """Writes tracebacks, and lets child processes print for themselves."""

        displayhook_class = Results
        display_pub_class = Displays
        failed = False

        def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: list[str]) -> None:
            self._last_traceback = stb
            if issubclass(etype, SystemExit):
                code = getattr(evalue, "code", None)
                self.failed = self.failed or code not in (None, 0)
                output.line(f"[the cell ended itself: SystemExit({code!r}); the session goes on]")
                return
            self.failed = True
            output.line("\n".join(collapsed(stb)))

        @functools.wraps(ZMQInteractiveShell.run_cell_async)  # its parameters are looked at
        async def run_cell_async(self, *args: Any, **named: Any) -> Any:  # type: ignore[override]
            try:
                return await super().run_cell_async(*args, **named)
            except KeyboardInterrupt as error:  # out of a task it would end the loop, and with it the session
                raise asyncio.CancelledError from error

        def show_usage_error(self, exc: BaseException) -> None:
            self.failed = True
            super().show_usage_error(exc)  # type: ignore[no-untyped-call]

        def init_environment(self) -> None:
            pass  # it would ask every program for colours

        def system(self, command: str) -> None:
            self.system_raw(command)  # type: ignore[no-untyped-call]
            if code := self.user_ns.get("_exit_code"):
                output.line(f"[exit code {code}]")

        def set_next_input(self, text: str, replace: bool = False) -> None:
            output.line(text)  # there is no input line that a magic could fill in

    class Kernel(IPythonKernel):
        """Runs cells, and lets skills ask the host."""

        shell_class = Shell

        def pre_handler_hook(self) -> None:
            """Hear interrupts in cells alone: Jupyter hears them around each message, and forgets one it hits."""

        post_handler_hook = pre_handler_hook

        async def do_execute(self, *args: Any, **named: Any) -> dict[str, Any]:
            here = os.getpid()
            output.restore()
            shell: Any = self.shell
            shell.failed = False
            try:
                try:
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    reply: dict[str, Any] = await super().do_execute(*args, **named)  # type: ignore[no-untyped-call]
                finally:
                    signal.signal(signal.SIGINT, signal.SIG_IGN)
            except (KeyboardInterrupt, asyncio.CancelledError):  # it hit what is around the cell's own code
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # if it came just before this was done above
                shell.failed = True
                output.line("KeyboardInterrupt")
                reply = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
            if os.getpid() != here:
                os._exit(0)  # a fork that came back from its cell would take the session's messages
            return {"ok": not shell.failed, **gallery.take(), **reply}

        raw_input = getpass = staticmethod(nobody)

        @contextlib.contextmanager
        def _cancel_on_sigint(self, future: asyncio.Future[Any]) -> Iterator[None]:
            """Let an interrupt reach a cell that awaits: ipykernel 7.4 hears it when its loop wakes by itself."""
            loop = asyncio.get_running_loop()

            def interrupt(*_: object) -> None:
                if asyncio.current_task(loop) is future:
                    raise KeyboardInterrupt
                loop.call_soon_threadsafe(future.cancel)

            loop.add_signal_handler(signal.SIGINT, lambda: None)  # so that the signal wakes the loop
            signal.signal(signal.SIGINT, interrupt)
            try:
                yield
            finally:
                loop.remove_signal_handler(signal.SIGINT)

        def ask(self, sense: str, files: list[str], task: str = "", model: str | None = None) -> str:
            """What the host answers. Raises RuntimeError with the reason why it does not."""
            if threading.current_thread() is not threading.main_thread():
                raise RuntimeError("only the main thread of the session can ask for this")
            wanted = {"sense": sense, "files": list(files), "task": task, "model": model}
            answer = json.loads(self._asked(WANT + json.dumps(wanted)))
            if answer["failed"]:
                raise RuntimeError(answer["text"])
            return str(answer["text"])

        def _asked(self, request: str) -> str:
            # The host connects to each channel by itself: the first cell may come before the channel of requests
            # stands, and a request to nobody is dropped without a word unless the socket is told to complain.
            self.stdin_socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
            deadline = time.monotonic() + HEARD
            while True:
                try:
                    return str(IPythonKernel.raw_input(self, request))  # type: ignore[no-untyped-call]
                except zmq.ZMQError as error:
                    if error.errno != zmq.EHOSTUNREACH or time.monotonic() > deadline:
                        raise RuntimeError(f"the program cannot be reached: {error}") from error
                time.sleep(0.02)

    class App(IPKernelApp):
        """Reads no configuration of the machine's, and reports no crash but by dying of it."""

        def load_config_file(self, *_: object, **__: object) -> None:
            pass

        def init_crash_handler(self) -> None:
            pass

        def init_pdb(self) -> None:
            pdb.set_trace = no_debugger

        def init_gui_pylab(self) -> None:
            pass  # it would choose a backend for child processes too, which have not got it

    app = App.instance(
        connection_file=os.path.join(plan["home"], "connection.json"),
        kernel_class=Kernel,
        outstream_class=None,
        default_extensions=[],
        ignore_cwd=True,
        log_level=50,
    )
    app.config.HistoryManager.enabled = False
    app.config.InteractiveShell.colors = "nocolor"
    app.config.InteractiveShell.xmode = "Plain"
    app.config.InteractiveShell.display_page = True
    app.initialize([])  # type: ignore[no-untyped-call]
    del sys.modules["debugpy"], os.environ["IPYTHONDIR"]
    shell = app.kernel.shell
    shell.events.register("post_execute", lambda: figures(gallery, output))
    warnings.filterwarnings("ignore", message="To exit: use")
    shell.push({"exit": leave, "quit": leave}, interactive=False)
    return app


def load_skills(plan: Plan, ask: Callable[..., str]) -> dict[str, Any]:
    """What the package of skills calls public, imported as `agentskills` and connected to this session."""
    source = os.path.join(plan["skills"], "__init__.py")
    spec = util.spec_from_file_location("agentskills", source, submodule_search_locations=[plan["skills"]])
    assert spec is not None and spec.loader is not None
    package = sys.modules["agentskills"] = util.module_from_spec(spec)
    spec.loader.exec_module(package)
    host = import_module("agentskills.host")
    host.connect(ask=ask, documents=plan["documents"], missing=plan["missing"], scratch=plan["scratch"])
    return {name: getattr(package, name) for name in package.__all__}


def main() -> None:
    plan: Plan = json.loads(sys.argv[1])
    sys.argv = [""]
    sys.dont_write_bytecode = True  # importing the repository's modules must not add files to its tree
    if ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        sys.exit("error: this process cannot be bound to the life of its parent")
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")  # when memory runs out, this is to die before the server
    version = "{}.{}".format(*sys.version_info)
    if version not in plan["packages"]:
        sys.exit(f"there is no IPython for its version, {version}")
    packages = plan["packages"][version]
    if packages not in sys.path:
        sys.path.insert(0 if plan["first"] else len(sys.path), packages)
    output = Output()
    output.restore()
    app = application(plan, output)
    sys.path.insert(0, plan["root"])
    sys.breakpointhook = no_debugger
    app.kernel.shell.push(load_skills(plan, app.kernel.ask), interactive=False)
    os.write(plan["ready"], version.encode())
    os.close(plan["ready"])
    app.start()


if __name__ == "__main__":
    main()
