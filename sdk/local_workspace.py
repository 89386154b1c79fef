"""A directory of this machine as a workspace, without isolation."""

import contextlib
import tempfile
from pathlib import Path

from patchwright.resolver.domain import Patch
from patchwright.resolver.errors import WorkspaceError
from patchwright.runtime.execution.executor import Executor
from patchwright.runtime.execution.local_sandboxes import ALLOWED_VARIABLES, is_available
from patchwright.runtime.features import ALL_FEATURES
from patchwright.sdk import environment
from patchwright.sdk.sandbox_workspace import SandboxWorkspace
from patchwright.sdk.snapshot import take_snapshot


class LocalWorkspace(SandboxWorkspace):
    """A directory of this machine. The agent works in the directory itself, and its commands have all permissions of
    this user. Use it for code and issues that you trust; otherwise, use DockerWorkspace.

    Commands get only harmless environment variables. `file_upload` and `file_download` refuse paths outside the
    directory. Can be used without a `with` block.
    """

    kind = "local"

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self._path = Path(path).expanduser().resolve()
        if not self._path.is_dir():
            raise WorkspaceError(f"There is no directory {self._path}.")
        self.working_dir = str(self._path)
        path_variable = environment.host_environment().get("PATH")
        self.features = tuple(name for name in ALL_FEATURES if is_available(name, path_variable))

    async def open_if_needed(self) -> None:
        if self._sandbox is None:
            await self._open()

    async def _open(self) -> None:
        if self._sandbox is not None:
            return
        async with contextlib.AsyncExitStack() as stack:
            self._snapshot = await stack.enter_async_context(
                take_snapshot(self._path, environment.data_directory() / "cache")
            )
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="patchwright-scratch-")))
            host = environment.host_environment()
            variables = {name: host[name] for name in (*ALLOWED_VARIABLES, "HOME") if name in host}
            executor = Executor(self._path, scratch, variables | {"TMPDIR": str(scratch)})
            stack.push_async_callback(executor.close)
            self._stack = stack.pop_all()
        self._sandbox, self._repository = executor, self._snapshot.repository

    async def take_patch(self) -> Patch:
        assert self._snapshot is not None
        return await self._snapshot.take_patch()
