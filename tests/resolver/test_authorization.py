"""Who may start, stop and publish work: one module decides."""

from pathlib import Path

import pytest

from patchwright.resolver.authorization import Permission, authorize, get_permission, is_authorized
from patchwright.resolver.domain import Repo, User

ROOT = Path(__file__).parents[2]
REPO = Repo(owner="acme", name="calc")


class Source:
    def __init__(self, permission: Permission) -> None:
        self.permission, self.user_ids = permission, list[int]()

    async def get_permission(self, repo: Repo, user: User) -> Permission:
        self.user_ids.append(user.id)
        return self.permission


@pytest.mark.parametrize(
    ("permission", "may"),
    [
        ("admin", True),
        ("maintain", True),
        ("write", True),
        ("triage", False),
        ("read", False),
        ("none", False),
    ],
)
async def test_write_access_is_needed_and_enough(permission: Permission, may: bool) -> None:
    source = Source(permission)
    assert is_authorized(permission) == may
    assert await authorize(source, REPO, User(id=7, login="ann")) == may
    assert source.user_ids == [7]  # the name may belong to somebody else by now


async def test_the_operator_needs_no_permission() -> None:
    source = Source("none")
    assert await authorize(source, REPO, None) and await get_permission(source, REPO, None) == "admin"
    assert source.user_ids == []


def test_no_other_module_decides_by_the_name_of_a_permission() -> None:
    """GitHub's answers may name the permissions; what follows from them is decided in one place."""
    named = {
        path.relative_to(ROOT).as_posix()
        for layer in ("bot", "resolver")
        for path in (ROOT / layer).rglob("*.py")
        if '"maintain"' in path.read_text()
    }
    assert named == {"resolver/authorization.py"}
