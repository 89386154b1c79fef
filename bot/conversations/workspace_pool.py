"""The workspaces of a server: their containers, and the files that another server can continue from."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Container
from dataclasses import dataclass, field
from datetime import UTC, datetime

from patchwright.bot.conversation_models import WorkspaceRecord, WorkspaceSpec
from patchwright.bot.conversations.server_workspace import ServerWorkspace
from patchwright.bot.errors import Conflict, Unavailable
from patchwright.bot.redis.conversation_records import ConversationRecords
from patchwright.resolver.domain import Patch
from patchwright.resolver.errors import ResolverError
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.sandbox import Sandboxes

MAX_OPEN_WORKSPACES = 16
"""Containers of one server. If there are more, the one that was not used for the longest time is closed."""


@dataclass
class _OpenWorkspace:
    workspace: ServerWorkspace
    used_at: float = field(default_factory=time.monotonic)
    users: int = 0


class WorkspacePool:
    """The workspaces that have a container on this server."""

    def __init__(
        self,
        records: ConversationRecords,
        build_sandboxes: Callable[[WorkspaceSpec], Sandboxes],
        own_conversations: Container[str],
    ) -> None:
        """`own_conversations` are the ids of the conversations whose agents work on this server now."""
        self._records = records
        self._build_sandboxes = build_sandboxes
        self._own_conversations = own_conversations
        self._server = secrets.token_hex(8)
        self._open: dict[str, _OpenWorkspace] = {}
        self._lock = asyncio.Lock()

    async def create(self, spec: WorkspaceSpec) -> WorkspaceRecord:
        record = WorkspaceRecord(
            id=f"workspace-{secrets.token_hex(8)}", spec=spec, created_at=datetime.now(UTC)
        )
        await self._records.save_workspace(record)
        return record

    @contextlib.asynccontextmanager
    async def use(self, record: WorkspaceRecord) -> AsyncIterator[ServerWorkspace]:
        """Yields the workspace with a container on this server. Raises SandboxError, and Conflict while an agent works
        in it on another server.
        """
        async with self._lock:
            opened = await self._open_here(record.id)
            opened.users += 1
        try:
            yield opened.workspace
        finally:
            opened.users -= 1
            opened.used_at = time.monotonic()

    async def delete(self, id: str) -> None:
        """Removes the workspace and its container. Raises Conflict while an agent works in it."""
        async with self._lock:
            if (opened := self._open.get(id)) is not None and opened.users:
                raise Conflict("The workspace is in use. Pause its conversation first.")
            await self._records.delete_workspace(id)
            await self._close(id)

    async def _open_here(self, id: str) -> _OpenWorkspace:
        record = await self._records.get_workspace(id)
        if record is None:
            raise Conflict(f"The workspace {id} was deleted.")
        if id in self._open and record.server == self._server:
            return self._open[id]
        if record.server and record.server != self._server and await self._is_busy_elsewhere(id):
            raise Conflict(
                "An agent is working in this workspace on another server: pause it first. If its server was killed, "
                "try again in 15 seconds."
            )
        await self._close(id)  # Another server has changed the files since.
        await self._make_room()

        async def save_patch(patch: Patch) -> None:
            current = await self._records.get_workspace(id)
            if (
                current is not None and current.server == self._server
            ):  # Otherwise, another process has taken over.
                await self._records.save_workspace(current.model_copy(update={"patch": patch}))

        workspace = ServerWorkspace(record, self._build_sandboxes(record.spec), save_patch)
        await workspace.open()
        await self._records.save_workspace(record.model_copy(update={"server": self._server}))
        self._open[id] = _OpenWorkspace(workspace)
        return self._open[id]

    async def _is_busy_elsewhere(self, workspace: str) -> bool:
        conversations, _ = await self._records.list_conversations()
        busy = [
            await self._records.has_writer(record.log)
            for record in conversations
            if record.workspace == workspace and record.id not in self._own_conversations
        ]
        return any(busy)

    async def _make_room(self) -> None:
        while len(self._open) >= MAX_OPEN_WORKSPACES:
            idle = [(opened.used_at, id) for id, opened in self._open.items() if not opened.users]
            if not idle:
                raise Unavailable("All workspaces of this server are in use. Try again later.")
            await self._close(min(idle)[1])

    async def _close(self, id: str) -> None:
        if (opened := self._open.pop(id, None)) is not None:
            await opened.workspace.close()

    async def claim(self, id: str) -> bool:
        """Returns True if this server may take over conversations of the workspace: no agent works in it on another
        server, and no other server takes over one of its conversations at the same time.
        """
        return not await self._is_busy_elsewhere(id) and await self._records.claim_workspace(id, self._server)

    async def close_lost(self) -> None:
        """Removes the containers of workspaces that were deleted or belong to another process now. Does nothing while
        a container starts, which may take minutes.
        """
        if self._lock.locked():
            return
        async with self._lock:
            for id in [id for id, opened in self._open.items() if not opened.users]:
                record = await self._records.get_workspace(id)
                if record is None or record.server != self._server:
                    await self._close(id)

    async def close(self) -> None:
        """Removes all containers. Other servers can open the workspaces with their stored files."""
        for id in list(self._open):
            with contextlib.suppress(SandboxError, ResolverError):
                await self._close(id)
