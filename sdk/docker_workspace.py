"""A Docker container as a workspace."""

import contextlib
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, get_args

from patchwright.resolver.domain import Patch
from patchwright.resolver.errors import WorkspaceError
from patchwright.sdk import environment
from patchwright.sdk.docker_sandbox_setup import DockerOptions, Network, build_docker_sandboxes
from patchwright.sdk.sandbox_workspace import SandboxWorkspace
from patchwright.sdk.snapshot import Snapshot, take_snapshot

if TYPE_CHECKING:
    from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes

RESTORE_TIMEOUT = 300  # seconds


class DockerWorkspace(SandboxWorkspace):
    """A container with a copy of a directory. When the block ends, the changes are written back to the directory, and
    the container is removed.

    - `path` is the directory. If it is None, the work tree is empty.
    - `copy_back=False` leaves the directory as it is; `diff` returns the changes. If the directory was changed
      meanwhile in the same places, nothing is written, and WorkspaceError names the file in which the patch is saved.
    - `options` are those of DockerOptions, such as `image` and `network`.
    """

    kind = "docker"

    def __init__(
        self, path: str | Path | None = None, *, copy_back: bool = True, **options: Unpack[DockerOptions]
    ) -> None:
        super().__init__()
        self._path = None if path is None else Path(path).expanduser().resolve()
        if self._path is not None and not self._path.is_dir():
            raise WorkspaceError(f"There is no directory {self._path}.")
        if options.get("network", "allowlist") not in get_args(Network):
            raise WorkspaceError(f"The network must be one of {', '.join(get_args(Network))}.")
        self._copies_back = copy_back and self._path is not None
        self._options = options
        self._initial_patch: Patch | None = None
        """The change that a new container starts with."""

    def _build_sandboxes(self) -> "DockerSandboxes":
        return build_docker_sandboxes(self._options)

    @property
    def network(self) -> str:
        return self._options.get("network", "allowlist")

    async def _open(self) -> None:
        if self._sandbox is not None:
            raise WorkspaceError("The workspace is already open.")
        async with contextlib.AsyncExitStack() as stack:
            path = self._path
            if path is None:
                path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="patchwright-empty-")))
            cache = environment.data_directory() / "cache"
            self._snapshot = await stack.enter_async_context(take_snapshot(path, cache))
            self._repository = self._snapshot.repository
            sandboxes = self._build_sandboxes()
            stack.push_async_callback(sandboxes.close)
            await sandboxes.prepare()
            self.features = sandboxes.features
            name = f"workspace-{secrets.token_hex(8)}"
            sandbox = await stack.enter_async_context(sandboxes.open(name, online=self.network != "none"))
            await self._repository.send_to(sandbox, self._initial_patch)
            self._stack = stack.pop_all()
        self._sandbox, self.working_dir = sandbox, sandbox.root

    async def _close(self, *, is_failed: bool) -> None:
        try:
            if self._sandbox is not None and self._snapshot is not None and self._copies_back:
                await self._write_back(self._snapshot)
        finally:
            await super()._close(is_failed=is_failed)

    async def _write_back(self, snapshot: Snapshot) -> None:
        patch = await self.take_patch()
        if patch.is_empty:
            return
        try:
            await snapshot.apply(patch)
        except WorkspaceError as exc:
            with tempfile.NamedTemporaryFile(
                prefix="patchwright-", suffix=".patch", delete=False, dir=tempfile.gettempdir()
            ) as file:
                file.write(patch.diff)
            raise WorkspaceError(f"{exc} The patch is saved in {file.name}.") from exc

    async def take_patch(self) -> Patch:
        assert self._repository is not None
        return await self._repository.take_patch(self.sandbox)

    async def restore(self, patch: Patch) -> None:
        """Replaces the work tree by the state at the opening with this patch."""
        assert self._repository is not None
        await self._execute("find . -mindepth 1 -delete", RESTORE_TIMEOUT)
        await self._repository.send_to(self.sandbox, patch)
