"""Decides who may start, stop and publish work. No other module does.

The rule is the one of GitHub for pushes: write access to the repository. A person is identified by the numeric id.
"""

from typing import Literal, Protocol

from patchwright.resolver.domain import Repo, User

Permission = Literal["admin", "maintain", "write", "triage", "read", "none"]


class PermissionSource(Protocol):
    """Knows the permissions of people."""

    async def get_permission(self, repo: Repo, user: User) -> Permission:
        """Returns the permission of a user; "none" for unknown users. Raises ForgeError."""


def is_authorized(permission: Permission) -> bool:
    """Returns True if a person with this permission may start, stop and publish work."""
    return permission in ("admin", "maintain", "write")


async def authorize(source: PermissionSource, repo: Repo, requester: User | None) -> bool:
    """Asks whether the requester may start, stop and publish work in the repository now. A permission that was read
    earlier may be lost by now.

    None is the operator, who needs no permission. Raises ForgeError.
    """
    return requester is None or is_authorized(await source.get_permission(repo, requester))


async def get_permission(source: PermissionSource, repo: Repo, requester: User | None) -> Permission:
    """Returns the requester's permission. None is the operator, who may do everything. Raises ForgeError."""
    return "admin" if requester is None else await source.get_permission(repo, requester)
