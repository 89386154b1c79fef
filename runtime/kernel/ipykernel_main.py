"""The script of the kernel process. It runs IPython and the skills. Its output goes to descriptor 1.

It runs in the repository's own Python (3.9 or newer), and cannot import our modules. The parent process
passes a `SessionConfig` as JSON. All output goes to one pipe, in the order in which it is written. This
includes the output of child processes and C extensions. Only images and the end of a cell go through Jupyter's
channels.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # Our own directory must not shadow the standard library or the repository.

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

    class SessionConfig(TypedDict):
        root: str
        """Directory whose modules can always be imported, even if a cell changes the current directory."""
        directory: str
        """The session's own directory, which contains `connection.json`."""
        ready: int
        """Descriptor to which the process writes as soon as cells can run. The process then closes it."""
        packages: dict[str, str]
        """Maps each Python version to the directory that contains ipykernel for it."""
        own_packages_first: bool
        """True if the packages in `packages` take precedence over the repository's packages of the same names."""
        skills: str
        """Directory of the package that is imported as `agentskills`."""
        scratch: str
        """Directory for temporary files of skills."""
        documents_command: list[str] | None
        """Command that starts the document converter; None if the converter is not installed."""
        missing_message: str
        """Error message of a skill that needs the document converter, if the converter is missing."""


HOST_REQUEST_PREFIX = "patchwright request "  # The beginning of a skill's request on Jupyter's stdin channel.
MAX_IMAGES = 4  # Number of images that a cell returns; the largest ones are kept.
MAX_IMAGE_BYTES = 4 << 20  # maximum bytes of one image
MAX_CELL_IMAGE_BYTES = 8 << 20  # maximum bytes of all images that a cell returns
IMAGE_MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
TEXT_MEDIA_TYPES = ("text/markdown", "text/latex", "application/json", "image/svg+xml", "text/html")
NO_INPUT_MESSAGE = (
    "there is no standard input: put the value into the code. Run a program that prompts for input, or a debugger "
    "(python3 -m pdb), with run_shell and interactive set to true"
)
_PDEATHSIG = 1  # prctl(2)
HOST_CONNECT_TIMEOUT = 10.0  # Seconds in which the host must connect to the stdin channel.
_MIN_OUTPUT_FD = 200  # Lowest descriptor for the output. Cells may close those with low numbers.


class UncloseableStream(io.TextIOWrapper):
    """A stream that a cell cannot close. IPython would exit if this stream were closed."""

    def close(self) -> None:
        pass


class CellOutput:
    """Receives the output of a cell, even if the cell changes `sys.stdout` or the descriptors 1 and 2."""

    def __init__(self) -> None:
        self._descriptor = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, _MIN_OUTPUT_FD)
        # Without a buffer, the text appears before the output of a later child process, and only once after a fork.
        raw = io.FileIO(self._descriptor, "w", closefd=False)
        self._stream = UncloseableStream(raw, "utf-8", "backslashreplace", write_through=True)

    def restore(self) -> None:
        """Undo the redirections of the last cell, and reopen the streams that it closed."""
        for standard in (1, 2):
            os.dup2(self._descriptor, standard)
        sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = self._stream  # type: ignore[misc]

    def write_line(self, text: str) -> None:
        """Write the text, and a line break if it does not end with one."""
        self._stream.write(text if text.endswith("\n") else text + "\n")


class ImageBuffer:
    """Collects the images of one cell. If a cell shows too many images, keeps the largest ones."""

    def __init__(self) -> None:
        self._images: list[tuple[int, str, bytes]] = []
        self._count = 0

    def add(self, media_type: str, data: bytes) -> int:
        """Add an image and return its number in this cell."""
        self._count += 1
        candidates = sorted(
            [*self._images, (self._count, media_type, data)], key=lambda image: -len(image[2])
        )
        self._images, budget = [], MAX_CELL_IMAGE_BYTES
        for image in candidates:
            size = len(image[2])
            if size <= min(budget, MAX_IMAGE_BYTES) and len(self._images) < MAX_IMAGES:
                self._images.append(image)
                budget -= size
        return self._count

    def take(self) -> dict[str, Any]:
        """Return the images for the reply to the cell, and empty the buffer."""
        images = [
            {"number": number, "media_type": media_type, "data": base64.b64encode(data).decode()}
            for number, media_type, data in sorted(self._images)
        ]
        result = {"images": images, "shown": self._count}
        self._images, self._count = [], 0
        return result


def render_rich_output(data: dict[str, Any], images: ImageBuffer) -> str:
    """Return the text for a displayed object. If the object is an image, add the image to the buffer."""
    for media_type in IMAGE_MEDIA_TYPES:
        if image := data.get(media_type):
            content = image if isinstance(image, bytes) else base64.b64decode(image)
            return f"[image {images.add(media_type, content)}: {media_type}, {len(content):,} bytes]"
    text = str(data.get("text/plain", ""))
    if text and not text.startswith("<IPython.core.display."):
        return text
    rendered = next((data[name] for name in TEXT_MEDIA_TYPES if name in data), text)
    return rendered if isinstance(rendered, str) else json.dumps(rendered, indent=1, default=str)


def collapse_traceback(traceback: list[str]) -> Iterator[str]:
    """Yield the lines of a traceback. Replaces repeated frames with their number, as Python itself does."""
    for entry, repeats in itertools.groupby(traceback):
        count = sum(1 for _ in repeats)
        yield from [entry] * min(count, 3)
        if count > 3:
            yield f"  [this frame is repeated {count - 3:,} more times]\n"


def refuse_input(*_: object, **__: object) -> str:
    raise EOFError(NO_INPUT_MESSAGE)


def refuse_debugger(*_: object, **__: object) -> None:
    raise RuntimeError(NO_INPUT_MESSAGE)


def exit_cell(code: object = None) -> None:
    """End the cell; the session continues."""
    raise SystemExit(code)


def show_figures(images: ImageBuffer, output: CellOutput) -> None:
    """Collect the figures that a cell has left open, and close them. Notebooks do the same."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or not hasattr(pyplot, "get_fignums"):  # Another thread is still importing matplotlib.
        return
    for number in pyplot.get_fignums():
        buffer = io.BytesIO()
        pyplot.figure(number).savefig(buffer, format="png", bbox_inches="tight")
        output.write_line(render_rich_output({"image/png": buffer.getvalue()}, images))
    pyplot.close("all")


def create_app(config: SessionConfig, output: CellOutput) -> Any:
    """Create Jupyter's kernel. It prints to the pipe and writes files only to its own directory."""
    os.environ["IPYTHONDIR"] = config["directory"]
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # it takes 0.2 s and prints a message
    import zmq
    from ipykernel.displayhook import ZMQShellDisplayHook
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelapp import IPKernelApp
    from ipykernel.zmqshell import ZMQDisplayPublisher, ZMQInteractiveShell

    images = ImageBuffer()

    # Writes the value of a cell's last expression.
    class ResultHook(ZMQShellDisplayHook):
        def start_displayhook(self) -> None:
            pass

        def write_output_prompt(self) -> None:
            pass

        def write_format_data(self, format_dict: dict[str, Any], md_dict: object = None) -> None:
            output.write_line(render_rich_output(format_dict, images))

        def finish_displayhook(self) -> None:
            pass

    # Writes displayed objects.
    class DisplayPublisher(ZMQDisplayPublisher):
        def publish(self, data: dict[str, Any], *_: object, **__: object) -> None:
            output.write_line(render_rich_output(data, images))

        def clear_output(self, wait: bool = False) -> None:
            pass

    # Writes tracebacks. Child processes print directly to the pipe.
    class SkillShell(ZMQInteractiveShell):
        displayhook_class = ResultHook
        display_pub_class = DisplayPublisher
        failed = False

        def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: list[str]) -> None:
            self._last_traceback = stb
            if issubclass(etype, SystemExit):
                code = getattr(evalue, "code", None)
                self.failed = self.failed or code not in (None, 0)
                output.write_line(f"[the cell exited with SystemExit({code!r}); the session continues]")
                return
            self.failed = True
            output.write_line("\n".join(collapse_traceback(stb)))

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
                output.write_line(f"[exit code {code}]")

        def set_next_input(self, text: str, replace: bool = False) -> None:
            output.write_line(text)  # The session has no input line that IPython could fill in.

    # Runs cells, and lets skills send requests to the host.
    class SkillKernel(IPythonKernel):
        shell_class = SkillShell

        def pre_handler_hook(self) -> None:
            """Do nothing. Jupyter's method would let an interrupt discard a message while no cell is running."""

        post_handler_hook = pre_handler_hook

        async def do_execute(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            pid = os.getpid()
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
            return {"ok": not shell.failed, **images.take(), **reply}

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

    # Does not read the machine's Jupyter configuration, and prints no crash report.
    class KernelApp(IPKernelApp):
        def load_config_file(self, *_: object, **__: object) -> None:
            pass

        def init_crash_handler(self) -> None:
            pass

        def init_pdb(self) -> None:
            pdb.set_trace = refuse_debugger

        def init_gui_pylab(self) -> None:
            pass  # IPython's own method would choose a plotting backend that child processes cannot use.

    app = KernelApp.instance(
        connection_file=os.path.join(config["directory"], "connection.json"),
        kernel_class=SkillKernel,
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
    shell.events.register("post_execute", lambda: show_figures(images, output))
    warnings.filterwarnings("ignore", message="To exit: use")
    shell.push({"exit": exit_cell, "quit": exit_cell}, interactive=False)
    return app


def load_skills(config: SessionConfig, ask_model: Callable[..., str]) -> dict[str, Any]:
    """Import the skills as `agentskills`, and connect them to this session. Return them by public name."""
    source = os.path.join(config["skills"], "__init__.py")
    spec = util.spec_from_file_location("agentskills", source, submodule_search_locations=[config["skills"]])
    assert spec is not None and spec.loader is not None
    package = sys.modules["agentskills"] = util.module_from_spec(spec)
    spec.loader.exec_module(package)
    host = import_module("agentskills.host")
    host.connect(
        ask_model=ask_model,
        documents_command=config["documents_command"],
        missing_message=config["missing_message"],
        scratch=config["scratch"],
    )
    return {name: getattr(package, name) for name in package.__all__}


def main() -> None:
    config: SessionConfig = json.loads(sys.argv[1])
    sys.argv = [""]
    sys.dont_write_bytecode = True  # importing the repository's modules must not add files to its tree
    if ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        sys.exit("error: the Linux kernel cannot end this process together with its parent")
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")  # When memory runs out, the kernel should kill this process before the server.
    version = "{}.{}".format(*sys.version_info)
    if version not in config["packages"]:
        sys.exit(f"there is no IPython for Python {version}")
    packages = config["packages"][version]
    if packages not in sys.path:
        sys.path.insert(0 if config["own_packages_first"] else len(sys.path), packages)
    output = CellOutput()
    output.restore()
    app = create_app(config, output)
    sys.path.insert(0, config["root"])
    sys.breakpointhook = refuse_debugger
    app.kernel.shell.push(load_skills(config, app.kernel.ask), interactive=False)
    os.write(config["ready"], version.encode())
    os.close(config["ready"])
    app.start()


if __name__ == "__main__":
    main()
