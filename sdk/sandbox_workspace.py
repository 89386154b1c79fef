"""What the workspaces on this machine share: a sandbox, and the recorded state of the directory."""

import contextlib
from abc import abstractmethod
from pathlib import PurePosixPath

from patchwright.resolver.domain import Patch
from patchwright.resolver.errors import WorkspaceError
from patchwright.resolver.git.workspaces import Workspace as Repository
from patchwright.runtime.actions import Execute, ReadBytes, WriteBytes
from patchwright.runtime.observations import (
    ActionFailure,
    ExecuteResult,
    FileContent,
    Observation,
    WriteResult,
)
from patchwright.runtime.sandbox import Sandbox
from patchwright.sdk.base_workspace import BaseWorkspace, CommandOutput
from patchwright.sdk.snapshot import Snapshot

CHUNK_BYTES = 3_000_000


class SandboxWorkspace(BaseWorkspace):
    """A workspace with a sandbox in which an agent of this process can work."""

    kind: str
    """`local` or `docker`."""
    features: tuple[str, ...] = ()
    """The features of the sandbox in addition to shell and editor, such as `kernel` and `browser`."""

    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None
        self._repository: Repository | None = None
        self._snapshot: Snapshot | None = None
        """The state of the directory at the opening; None if the workspace is not open."""
        self._stack = contextlib.AsyncExitStack()

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox. Raises WorkspaceError if the workspace is not open."""
        if self._sandbox is None:
            raise WorkspaceError(
                f"The workspace is not open: use it in a block, `with {type(self).__name__}(...) as workspace`."
            )
        return self._sandbox

    @property
    def network(self) -> str:
        return "open"

    async def open_if_needed(self) -> None:
        """Opens the workspace if it can be used without a `with` block."""

    @abstractmethod
    async def take_patch(self) -> Patch:
        """Returns the difference between the state at the opening and now."""

    async def _close(self, *, is_failed: bool) -> None:
        self._sandbox = self._repository = self._snapshot = None
        stack, self._stack = self._stack, contextlib.AsyncExitStack()
        await stack.aclose()

    async def _execute(self, command: str, timeout: float) -> CommandOutput:
        await self.open_if_needed()
        result = await self.sandbox.act(
            Execute(argv=("bash", "-c", command), timeout=max(1, round(timeout)), cwd=self.working_dir)
        )
        if not isinstance(result, ExecuteResult):
            raise _failure(result)
        return CommandOutput(
            exit_code=result.exit_code,
            stdout=result.stdout.decode(errors="replace"),
            stderr=result.stderr.decode(errors="replace"),
            seconds=result.seconds,
        )

    async def _upload(self, path: str, content: bytes) -> None:
        await self.open_if_needed()
        chunks = [content[start : start + CHUNK_BYTES] for start in range(0, len(content), CHUNK_BYTES)]
        for number, chunk in enumerate(chunks or [b""]):
            result = await self.sandbox.act(
                WriteBytes(path=self._absolute(path), content=chunk, append=number > 0)
            )
            if not isinstance(result, WriteResult):
                raise _failure(result)

    async def _download(self, path: str) -> bytes:
        await self.open_if_needed()
        content = b""
        while True:
            result = await self.sandbox.act(ReadBytes(path=self._absolute(path), offset=len(content)))
            if isinstance(result, ActionFailure) and result.reason == "not_found":
                raise FileNotFoundError(path)
            if not isinstance(result, FileContent):
                raise _failure(result)
            content += result.content
            if not result.content or len(content) >= result.size:
                return content

    async def _diff(self) -> bytes:
        await self.open_if_needed()
        return (await self.take_patch()).diff

    async def _changed_files(self) -> tuple[str, ...]:
        await self.open_if_needed()
        assert self._repository is not None
        changes = await self._repository.list_changes(await self.take_patch())
        return tuple(change.path for change in changes)

    def _absolute(self, path: str) -> str:
        return str(PurePosixPath(self.working_dir) / path)


def _failure(result: Observation) -> WorkspaceError:
    text = result.message if isinstance(result, ActionFailure) else str(result)
    return WorkspaceError(text)
