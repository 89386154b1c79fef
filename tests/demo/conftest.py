"""A world with one repository, and how to ask it."""

from collections.abc import Callable

import httpx
import pytest

from patchwright.demo.github import FakeGitHub, Repository

Client = Callable[..., httpx.AsyncClient]


@pytest.fixture
def repo(world: FakeGitHub) -> Repository:
    """acme/sample: a maintainer may write, a triager triage, a reader read."""
    return world.create_repository(
        "acme/sample",
        {"calc.py": "def add(a, b):\n    return a - b\n", "docs/Größe und mehr.md": "größer\n"},
        permissions={"maintainer": "write", "triager": "triage", "reader": "read"},
    )


@pytest.fixture
def client() -> Client:
    """An HTTP client of a world's API; with a token it is that token's user."""

    def build(world: FakeGitHub, token: str | None = None) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(base_url=world.api_url, headers=headers, trust_env=False)

    return build
