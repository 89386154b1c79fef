"""A workspace of the server: a container whose files are stored after each change, so that a new container on any
server can start from them.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from patchwright.bot.conversation_models import WorkspaceRecord
from patchwright.resolver.domain import Patch
from patchwright.resolver.errors import ChangeTooLarge
from patchwright.sdk.base_workspace import CommandOutput
from patchwright.sdk.docker_workspace import DockerWorkspace

if TYPE_CHECKING:
    from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
    from patchwright.runtime.sandbox import Sandboxes


class ServerWorkspace(DockerWorkspace):
    """The container of one workspace on this server."""

    def __init__(
        self,
        record: WorkspaceRecord,
        sandboxes: "Sandboxes",
        save_patch: Callable[[Patch], Awaitable[None]],
    ) -> None:
        super().__init__(network=sandboxes.network)
        self._sandboxes = sandboxes
        self._initial_patch = record.patch
        self._save_patch = save_patch
        self._saved_patch = record.patch

    def _build_sandboxes(self) -> "DockerSandboxes":
        return cast("DockerSandboxes", self._sandboxes)

    async def open(self) -> None:
        await self._open()

    async def close(self) -> None:
        await self._close(is_failed=False)

    async def execute(self, command: str, timeout: float) -> CommandOutput:
        result = await self._execute(command, timeout)
        await self._store_files()
        return result

    async def upload(self, path: str, content: bytes) -> None:
        await self._upload(path, content)
        await self._store_files()

    async def download(self, path: str) -> bytes:
        return await self._download(path)

    async def read_changes(self) -> tuple[str, ...]:
        return await self._changed_files()

    async def _store_files(self) -> None:
        """Stores the files, unless they are too large. They stay in the container in this case."""
        with contextlib.suppress(ChangeTooLarge):
            await self.take_patch()

    async def take_patch(self) -> Patch:
        """Returns the files as a difference to an empty directory, and stores it if it changed. The agent's loop
        calls this after each call that may change files.
        """
        patch = await super().take_patch()
        if patch != self._saved_patch:
            await self._save_patch(patch)
            self._saved_patch = patch
        return patch
