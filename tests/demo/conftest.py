"""A fake GitHub with one repository, and clients for its API."""

from collections.abc import Callable

import httpx
import pytest

from patchwright.demo.github import FakeGitHub, Repository

Client = Callable[..., httpx.AsyncClient]


@pytest.fixture
def repo(fake_github: FakeGitHub) -> Repository:
    """acme/sample: a maintainer may write, a triager triage, a reader read."""
    return fake_github.create_repository(
        "acme/sample",
        {"calc.py": "def add(a, b):\n    return a - b\n", "docs/Größe und mehr.md": "größer\n"},
        permissions={"maintainer": "write", "triager": "triage", "reader": "read"},
    )


@pytest.fixture
def client() -> Client:
    """An HTTP client of a fake GitHub's API. With a token it acts as the user of that token."""

    def build(fake_github: FakeGitHub, token: str | None = None) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(base_url=fake_github.api_url, headers=headers, trust_env=False)

    return build
