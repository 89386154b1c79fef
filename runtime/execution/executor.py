"""Runs actions in this process. Used by the local sandbox, and by the server in the container."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from patchwright.runtime import program
from patchwright.runtime.actions import (
    BrowseLinks,
    CreateFile,
    Execute,
    FingerprintTree,
    HostReply,
    InsertText,
    Interrupt,
    ProcessExchange,
    ReadBytes,
    ReplaceText,
    RunPython,
    RunShell,
    RunShellWithSecrets,
    SandboxAction,
    SearchCode,
    SendInput,
    StartProcess,
    UndoEdit,
    UseBrowser,
    ViewFile,
    WriteBytes,
)
from patchwright.runtime.features import SandboxFeatures
from patchwright.runtime.observations import (
    Acknowledgment,
    ActionFailure,
    CellResult,
    ExecuteResult,
    FileContent,
    Observation,
    PageSnapshot,
    ProcessOutput,
    ShellResult,
    TreeFingerprint,
    WriteResult,
)
from patchwright.runtime.output_text import join_bytes
from patchwright.runtime.path_guard import PathGuard, ToolInputError, path_error
from patchwright.runtime.shell import Shell
from patchwright.runtime.tree_watcher import TreeWatcher

if TYPE_CHECKING:
    from patchwright.runtime.browser.playwright_browser import Browser
    from patchwright.runtime.execution.editor import Editor
    from patchwright.runtime.kernel.kernel_manager import KernelManager
    from patchwright.runtime.line_process import LineProcess
    from patchwright.runtime.search.code_search import CodeSearch

log = logging.getLogger(__name__)


class Executor:
    """A sandbox in this process. It has its own work tree and its own environment, but no isolation."""

    def __init__(
        self,
        root: Path,
        scratch: Path,
        env: Mapping[str, str],
        oom_kills: Callable[[], int] = lambda: 0,
        features: SandboxFeatures | None = None,
    ) -> None:
        """`oom_kills` returns the number of processes that the kernel killed at the sandbox's memory limit.
        Without a memory limit, it always returns 0.

        `features` are the sandbox features. If this is None, the sandbox has the features that are installed for
        this Python.
        """
        self._paths = PathGuard(root, scratch)
        self._env = dict(env)
        self._shell = Shell(self._paths.root, self._paths.scratch, env)
        self._features = features or SandboxFeatures()
        self._tree_watcher = TreeWatcher(self._paths.root)
        self._oom_kills = oom_kills
        self._seen_oom_kills = oom_kills()
        self._processes: dict[str, LineProcess] = {}
        self._lock = asyncio.Lock()

    # These modules are imported on first use. Each import would delay the start of the sandbox, and most
    # sandboxes use only some of the modules.

    @cached_property
    def _editor(self) -> "Editor":
        from patchwright.runtime.documents.document_reader import DocumentReader
        from patchwright.runtime.execution.editor import Editor

        return Editor(self._paths, DocumentReader(self._features))

    @cached_property
    def _code_search(self) -> "CodeSearch":
        from patchwright.runtime.search.code_search import CodeSearch

        return CodeSearch(self._paths, self._env, self._features)

    @cached_property
    def _kernel(self) -> "KernelManager":
        from patchwright.runtime.kernel.kernel_manager import KernelManager

        return KernelManager(self._paths.root, self._paths.scratch, self._env, self._features)

    @cached_property
    def _browser(self) -> "Browser":
        from patchwright.runtime.browser.playwright_browser import Browser

        return Browser(self._paths.root, self._paths.scratch, self._env, self._features)

    @property
    def root(self) -> str:
        return str(self._paths.root)

    @property
    def scratch(self) -> str:
        return str(self._paths.scratch)

    async def act(self, action: SandboxAction) -> Observation:
        if isinstance(action, Interrupt):
            interrupted = await self._shell.interrupt()
            if "_kernel" in vars(self):  # If there is no kernel, no cell is running.
                interrupted = await self._kernel.interrupt() or interrupted
            return Acknowledgment(text="interrupted" if interrupted else "nothing is running")
        async with self._lock:
            try:
                return await self._act(action)
            except ToolInputError as error:
                return error.failure
            except OSError as error:
                return ActionFailure(reason="io", message=f"{action.kind} failed: {error}")
            except Exception as error:  # a bug costs one call: no response would cost the whole sandbox
                log.exception("action failed", extra={"action": action.kind})
                problem = f"{action.kind} failed because of an error in the sandbox: {error!r}"
                return ActionFailure(reason="io", message=problem)

    async def prepare(self) -> None:
        """Start the shell in advance, so that the first command does not have to wait for it."""
        async with self._lock:
            # If starting the shell failed, the first command reports the failure.
            with contextlib.suppress(OSError, TimeoutError):
                await self._shell.start()

    async def close(self) -> None:
        """Stop the shell, the kernel, the browser and everything that they started."""
        for process in self._processes.values():
            await process.close()
        if "_browser" in vars(self):  # If the module was not imported, no browser was opened.
            await self._browser.close()
        if "_kernel" in vars(self):
            await self._kernel.close()
        await self._shell.close()
        self._tree_watcher.close()

    async def _act(self, action: SandboxAction) -> Observation:
        match action:
            case RunShell() | RunShellWithSecrets() | SendInput():
                return await self._note_oom_kills(self._run_shell(action))
            case RunPython():
                return await self._note_oom_kills(self._kernel.run(action.code, action.timeout))
            case HostReply():
                pending = self._kernel.resume(action.text, action.timeout, failed=action.failed)
                return await self._note_oom_kills(pending)
            case UseBrowser():
                browsing = self._browser.run_code(action.code, action.allowed_calls, action.snapshot)
                return await self._note_oom_kills(browsing)
            case BrowseLinks(browser=use):
                from patchwright.runtime.browser.link_reader import LinkReader

                links = LinkReader(frozenset(action.hosts), action.key) if action.key else None
                browsing = self._browser.run_code(use.code, use.allowed_calls, use.snapshot, links)
                return await self._note_oom_kills(browsing)
            case Execute():
                return await self._execute(action)
            case StartProcess():
                return await self._start_process(action)
            case ProcessExchange():
                return await self._exchange_lines(action)
            case ViewFile():
                return await asyncio.to_thread(self._editor.view, action)
            case SearchCode():
                return await self._code_search.search(action)
            case CreateFile():
                return await asyncio.to_thread(self._editor.create, action)
            case ReplaceText():
                return await asyncio.to_thread(self._editor.replace, action)
            case InsertText():
                return await asyncio.to_thread(self._editor.insert, action)
            case UndoEdit():
                return await asyncio.to_thread(self._editor.undo, action)
            case ReadBytes():
                return await asyncio.to_thread(self._read_bytes, action)
            case WriteBytes():
                return await asyncio.to_thread(self._write_bytes, action)
            case FingerprintTree():
                if (state := await self._tree_watcher.read_state()) is None:
                    return TreeFingerprint(fingerprint=None)
                return TreeFingerprint(
                    fingerprint=state.fingerprint,
                    previous=state.previous,
                    changed=state.changed,
                    removed=state.list_removed(self._paths.root),
                )
            case Interrupt():
                raise AssertionError("answered out of turn")
            case _:
                assert_never(action)

    async def _run_shell(self, action: RunShell | RunShellWithSecrets | SendInput) -> ShellResult:
        if isinstance(action, SendInput):
            return await self._shell.send(action.text, action.key, action.timeout)
        shell, secret_env = (
            (action.shell, action.secret_env) if isinstance(action, RunShellWithSecrets) else (action, {})
        )
        if "\0" in shell.command or any("\0" in value for value in secret_env.values()):
            raise ToolInputError(
                "malformed", "a command must not contain a NUL character: print one with printf '\\0'"
            )
        return await self._shell.run(
            shell.command, shell.timeout, interactive=shell.interactive, secret_env=secret_env
        )

    async def _note_oom_kills(self, pending: Awaitable[Observation]) -> Observation:
        result = await pending
        if not isinstance(result, ShellResult | CellResult | PageSnapshot):
            return result
        before, self._seen_oom_kills = self._seen_oom_kills, self._oom_kills()
        if not (killed := self._seen_oom_kills - before):
            return result
        note = f"the memory limit was reached: the kernel killed {killed} process{'es' * (killed > 1)}"
        if isinstance(result, PageSnapshot):
            return result.model_copy(update={"notes": (*result.notes, note)})
        return result.model_copy(update={"note": "; ".join(filter(None, (result.note, note)))})

    async def _start_process(self, action: StartProcess) -> Acknowledgment:
        from patchwright.runtime.line_process import MAX_PROCESSES, LineProcess

        if (old := self._processes.pop(action.name, None)) is not None:
            await old.close()
        if len(self._processes) == MAX_PROCESSES:
            raise ToolInputError(
                "refused", f"{MAX_PROCESSES} programs are already running, and more are not allowed"
            )
        try:
            started = await LineProcess.start(action.argv, self._paths.root, {**self._env, **action.env})
        except (FileNotFoundError, NotADirectoryError, ValueError) as error:
            raise ToolInputError("not_found", f"{action.argv[0]} cannot be started: {error}") from error
        self._processes[action.name] = started
        return Acknowledgment(text="started")

    async def _exchange_lines(self, action: ProcessExchange) -> ProcessOutput:
        if (process := self._processes.get(action.name)) is None:
            raise ToolInputError("not_found", f"no program with the name `{action.name}` was started")
        return await process.exchange(action.lines, action.wait_seconds)

    async def _execute(self, action: Execute) -> ExecuteResult:
        if any("\0" in word for word in (*action.argv, *action.env, *action.env.values())):
            raise ToolInputError("malformed", "argv and env must not contain a NUL character")
        started_at = time.monotonic()
        cwd, env = self._paths.root / (action.cwd or ""), {**self._env, **action.env}
        try:
            result = await program.run(action.argv, cwd, env, action.timeout)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ToolInputError(
                "not_found", f"the program or directory {error.filename} does not exist"
            ) from error
        return ExecuteResult(
            exit_code=result.exit_code,
            stdout=join_bytes(result.stdout),
            stderr=join_bytes(result.stderr),
            seconds=round(time.monotonic() - started_at, 3),
        )

    def _read_bytes(self, action: ReadBytes) -> FileContent:
        real = self._paths.resolve_file(action.path)
        try:
            with real.open("rb") as file:
                file.seek(action.offset)
                return FileContent(content=file.read(action.limit), size=os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise path_error(action.path, error) from error

    def _write_bytes(self, action: WriteBytes) -> WriteResult:
        real = self._paths.resolve(action.path)
        if real.exists() and not real.is_file():
            raise ToolInputError("refused", f"{action.path} is not a regular file")
        try:
            real.parent.mkdir(parents=True, exist_ok=True)
            with real.open("ab" if action.append else "wb") as file:
                file.write(action.content)
                return WriteResult(size=file.tell())
        except OSError as error:
            raise path_error(action.path, error) from error
