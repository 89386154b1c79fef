"""Protocols for reading and writing comments and reactions in threads, and an implementation that does
nothing.
"""

from typing import Protocol

from patchwright.resolver.domain import Repo, User
from patchwright.resolver.errors import Forbidden
from patchwright.resolver.forge import Permission


class CommentForge(Protocol):
    """Reads permissions and writes comments on GitHub. Every method may raise ForgeError."""

    async def get_permission(self, repo: Repo, user: User) -> Permission: ...

    async def upsert_comment(
        self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> str: ...


class ThreadForge(CommentForge, Protocol):
    """A CommentForge that also adds reactions."""

    async def react(self, repo: Repo, resource_path: tuple[str, ...]) -> None:
        """Adds the bot's reaction once. `resource_path` is the part of the API path after the repository."""


class NullForge:
    """Used if there is no forge. Jobs are queued, but commands fail because no permission can be confirmed."""

    async def get_permission(self, repo: Repo, user: User) -> Permission:
        raise Forbidden("no forge is configured")

    async def upsert_comment(
        self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> str:
        return ""

    async def react(self, repo: Repo, resource_path: tuple[str, ...]) -> None:
        return
