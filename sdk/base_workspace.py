"""The interface of workspaces."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from patchwright.runtime.frozen_model import FrozenModel
from patchwright.sdk.background_loop import run_blocking, run_in_background

DEFAULT_TIMEOUT = 120.0  # seconds


class CommandOutput(FrozenModel):
    """The result of a command."""

    exit_code: int | None
    """None if the command was killed at its timeout."""
    stdout: str
    stderr: str
    seconds: float

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


class BaseWorkspace(ABC):
    """A directory with a shell. Use it as a context manager, so that it is cleaned up. Each method has an async twin,
    whose name begins with `a`.

    Raises WorkspaceError if a path or a command is not allowed, and SandboxError if the machine fails.
    """

    working_dir: str
    """Absolute path of the directory, as commands in the workspace see it."""

    def __enter__(self) -> Self:
        run_blocking(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run_blocking(self._close(is_failed=kind is not None))

    async def __aenter__(self) -> Self:
        await run_in_background(self._open())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run_in_background(self._close(is_failed=kind is not None))

    def execute_command(self, command: str, timeout: float = DEFAULT_TIMEOUT) -> CommandOutput:
        """Runs a bash command in the directory. `timeout` is in seconds."""
        return run_blocking(self._execute(command, timeout))

    async def aexecute_command(self, command: str, timeout: float = DEFAULT_TIMEOUT) -> CommandOutput:
        return await run_in_background(self._execute(command, timeout))

    def file_upload(self, path: str, content: bytes) -> None:
        """Writes a file and creates missing directories. `path` is relative to the directory or absolute."""
        run_blocking(self._upload(path, _to_bytes(content)))

    async def afile_upload(self, path: str, content: bytes) -> None:
        await run_in_background(self._upload(path, _to_bytes(content)))

    def file_download(self, path: str) -> bytes:
        """Returns the content of a file. Raises FileNotFoundError if there is no such file."""
        return run_blocking(self._download(path))

    async def afile_download(self, path: str) -> bytes:
        return await run_in_background(self._download(path))

    def changed_files(self) -> tuple[str, ...]:
        """Returns the paths that differ from the state in which the workspace was opened, without files that tools
        leave behind and files that git ignores.
        """
        return run_blocking(self._changed_files())

    async def achanged_files(self) -> tuple[str, ...]:
        return await run_in_background(self._changed_files())

    def diff(self) -> bytes:
        """Returns these differences as a patch for `git apply`; empty if there are none."""
        return run_blocking(self._diff())

    async def adiff(self) -> bytes:
        return await run_in_background(self._diff())

    @abstractmethod
    async def _open(self) -> None: ...

    @abstractmethod
    async def _close(self, *, is_failed: bool) -> None: ...

    @abstractmethod
    async def _execute(self, command: str, timeout: float) -> CommandOutput: ...

    @abstractmethod
    async def _upload(self, path: str, content: bytes) -> None: ...

    @abstractmethod
    async def _download(self, path: str) -> bytes: ...

    @abstractmethod
    async def _changed_files(self) -> tuple[str, ...]: ...

    @abstractmethod
    async def _diff(self) -> bytes: ...


def _to_bytes(content: bytes) -> bytes:
    """Raises TypeError for a text, which pydantic would decode as base64."""
    return bytes(memoryview(content))
