"""Action -> Observation in this process: the local sandbox, and what the server in the container serves."""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from runtime import program
from runtime.actions import (
    Converse,
    CreateFile,
    Execute,
    InsertText,
    Interrupt,
    MarkTree,
    Provide,
    ReadBytes,
    ReplaceText,
    RunLent,
    RunPython,
    RunShell,
    SandboxAction,
    SearchCode,
    SendInput,
    StartStream,
    UndoEdit,
    UseBrowser,
    ViewFile,
    WriteBytes,
)
from runtime.changes import Changes
from runtime.observations import (
    Content,
    Executed,
    Failed,
    Heard,
    Marked,
    Noted,
    Observation,
    Page,
    Ran,
    RanPython,
    Written,
)
from runtime.plugins import Plugins
from runtime.shell import Shell
from runtime.text import raw
from runtime.tree import Tree, Unfit, missing

if TYPE_CHECKING:
    from runtime.browser.browser import Browser
    from runtime.editor import Editor
    from runtime.kernel.kernel import Kernel
    from runtime.search.search import Searching
    from runtime.streams import Stream


class Executor:
    """A sandbox in this process: no wall around it, only its own work tree and environment."""

    def __init__(
        self,
        root: Path,
        scratch: Path,
        env: Mapping[str, str],
        oom_kills: Callable[[], int] = lambda: 0,
        plugins: Plugins | None = None,
    ) -> None:
        """`oom_kills` counts the processes that were killed at the sandbox's memory limit, if it has one.

        `plugins` None: those of this Python.
        """
        self._tree = Tree(root, scratch)
        self._env = dict(env)
        self._shell = Shell(self._tree.root, self._tree.scratch, env)
        self._plugins = plugins or Plugins()
        self._changes = Changes(self._tree.root)
        self._oom_kills = oom_kills
        self._killed = oom_kills()
        self._streams: dict[str, Stream] = {}
        self._turn = asyncio.Lock()

    # What follows is imported when it is first asked for: every sandbox waits for imports at its start, and most
    # use only some of it.

    @cached_property
    def _editor(self) -> "Editor":
        from runtime.documents.documents import Documents
        from runtime.editor import Editor

        return Editor(self._tree, Documents(self._plugins))

    @cached_property
    def _searching(self) -> "Searching":
        from runtime.search.search import Searching

        return Searching(self._tree, self._env, self._plugins)

    @cached_property
    def _kernel(self) -> "Kernel":
        from runtime.kernel.kernel import Kernel

        return Kernel(self._tree.root, self._tree.scratch, self._env, self._plugins)

    @cached_property
    def _browser(self) -> "Browser":
        from runtime.browser.browser import Browser

        return Browser(self._tree.root, self._tree.scratch, self._env, self._plugins)

    @property
    def root(self) -> str:
        return str(self._tree.root)

    @property
    def scratch(self) -> str:
        return str(self._tree.scratch)

    async def act(self, action: SandboxAction) -> Observation:
        if isinstance(action, Interrupt):
            ended = await self._shell.interrupt()
            if "_kernel" in vars(self):  # else no cell runs
                ended = await self._kernel.interrupt() or ended
            return Noted(text="interrupted" if ended else "nothing runs")
        async with self._turn:
            try:
                return await self._act(action)
            except Unfit as unfit:
                return unfit.failed
            except OSError as error:
                return Failed(reason="io", message=f"{action.kind} failed: {error}")

    async def prepare(self) -> None:
        """Start the shell before the first command, which else waits for it."""
        async with self._turn:
            with contextlib.suppress(OSError, TimeoutError):  # the first command tells of it
                await self._shell.start()

    async def close(self) -> None:
        """End the shell, the kernel and the browser, and everything that they started."""
        for stream in self._streams.values():
            await stream.close()
        if "_browser" in vars(self):  # else it was never opened
            await self._browser.close()
        if "_kernel" in vars(self):
            await self._kernel.close()
        await self._shell.close()
        self._changes.close()

    async def _act(self, action: SandboxAction) -> Observation:
        match action:
            case RunShell() | RunLent() | SendInput():
                return await self._told_of_memory(self._run(action))
            case RunPython():
                return await self._told_of_memory(self._kernel.run(action.code, action.timeout))
            case Provide():
                going = self._kernel.provide(action.text, action.timeout, failed=action.failed)
                return await self._told_of_memory(going)
            case UseBrowser():
                used = self._browser.use(action.code, action.allowed, action.look)
                return await self._told_of_memory(used)
            case Execute():
                return await self._execute(action)
            case StartStream():
                return await self._start_stream(action)
            case Converse():
                return await self._converse(action)
            case ViewFile():
                return await asyncio.to_thread(self._editor.view, action)
            case SearchCode():
                return await self._searching.search(action)
            case CreateFile():
                return await asyncio.to_thread(self._editor.create, action)
            case ReplaceText():
                return await asyncio.to_thread(self._editor.replace, action)
            case InsertText():
                return await asyncio.to_thread(self._editor.insert, action)
            case UndoEdit():
                return await asyncio.to_thread(self._editor.undo, action)
            case ReadBytes():
                return await asyncio.to_thread(self._read, action)
            case WriteBytes():
                return await asyncio.to_thread(self._write, action)
            case MarkTree():
                return Marked(mark=await self._changes.mark())
            case Interrupt():
                raise AssertionError("answered out of turn")
            case _:
                assert_never(action)

    async def _run(self, action: RunShell | RunLent | SendInput) -> Ran:
        if isinstance(action, SendInput):
            return await self._shell.send(action.text, action.key, action.timeout)
        run, lent = (action.run, action.lent) if isinstance(action, RunLent) else (action, {})
        if "\0" in run.command or any("\0" in value for value in lent.values()):
            raise Unfit("malformed", "a command cannot hold a NUL character: print one with printf '\\0'")
        return await self._shell.run(run.command, run.timeout, interactive=run.interactive, lent=lent)

    async def _told_of_memory(self, running: Awaitable[Observation]) -> Observation:
        ran = await running
        if not isinstance(ran, Ran | RanPython | Page):
            return ran
        before, self._killed = self._killed, self._oom_kills()
        if not (killed := self._killed - before):
            return ran
        note = f"the memory limit was reached: the kernel killed {killed} process{'es' * (killed > 1)}"
        if isinstance(ran, Page):
            return ran.model_copy(update={"notes": (*ran.notes, note)})
        return ran.model_copy(update={"note": "; ".join(filter(None, (ran.note, note)))})

    async def _start_stream(self, action: StartStream) -> Noted:
        from runtime.streams import MOST, Stream

        if (old := self._streams.pop(action.name, None)) is not None:
            await old.close()
        if len(self._streams) == MOST:
            raise Unfit("refused", f"{MOST} programs are talked to already")
        try:
            started = await Stream.start(action.argv, self._tree.root, {**self._env, **action.env})
        except (FileNotFoundError, NotADirectoryError, ValueError) as error:
            raise Unfit("not_found", f"{action.argv[0]} cannot be started: {error}") from error
        self._streams[action.name] = started
        return Noted(text="started")

    async def _converse(self, action: Converse) -> Heard:
        if (stream := self._streams.get(action.name)) is None:
            raise Unfit("not_found", f"no program `{action.name}` was started")
        return await stream.converse(action.lines, action.wait)

    async def _execute(self, action: Execute) -> Executed:
        if any("\0" in word for word in (*action.argv, *action.env, *action.env.values())):
            raise Unfit("malformed", "argv and env cannot hold a NUL character")
        begun = time.monotonic()
        cwd, env = self._tree.root / (action.cwd or ""), {**self._env, **action.env}
        try:
            ended = await program.run(action.argv, cwd, env, action.timeout)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Unfit("not_found", f"{error.filename}: no such program or directory") from error
        return Executed(
            exit_code=ended.code,
            stdout=raw(ended.stdout),
            stderr=raw(ended.stderr),
            seconds=round(time.monotonic() - begun, 3),
        )

    def _read(self, action: ReadBytes) -> Content:
        real = self._tree.file(action.path)
        try:
            with real.open("rb") as file:
                file.seek(action.offset)
                return Content(content=file.read(action.limit), size=os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise missing(action.path, error) from error

    def _write(self, action: WriteBytes) -> Written:
        real = self._tree.find(action.path)
        if real.exists() and not real.is_file():
            raise Unfit("refused", f"{action.path} is not a regular file")
        try:
            real.parent.mkdir(parents=True, exist_ok=True)
            with real.open("ab" if action.append else "wb") as file:
                file.write(action.content)
                return Written(size=file.tell())
        except OSError as error:
            raise missing(action.path, error) from error
