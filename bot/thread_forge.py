"""Protocols for reading permissions, and for writing comments and reactions in issues and pull requests. Also
contains an implementation that does nothing.
"""

from typing import Protocol

from patchwright.resolver.authorization import Permission
from patchwright.resolver.domain import Repo, User
from patchwright.resolver.errors import Forbidden


class CommentForge(Protocol):
    """Reads permissions on GitHub, and writes comments there. Every method may raise ForgeError."""

    async def get_permission(self, repo: Repo, user: User) -> Permission: ...

    async def upsert_comment(
        self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> str: ...


class ThreadForge(CommentForge, Protocol):
    """A CommentForge that also adds reactions."""

    async def react(self, repo: Repo, resource_path: tuple[str, ...]) -> None:
        """Adds the bot's reaction to a comment or an issue, at most once. `resource_path` is the API path of
        that comment or issue, without the path of the repository.
        """


class NullForge:
    """A ThreadForge for servers that are not connected to GitHub. Jobs are queued, but commands fail because no
    permission can be checked.
    """

    async def get_permission(self, repo: Repo, user: User) -> Permission:
        raise Forbidden("no forge is configured")

    async def upsert_comment(
        self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> str:
        return ""

    async def react(self, repo: Repo, resource_path: tuple[str, ...]) -> None:
        return
