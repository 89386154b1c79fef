"""Missing write permissions are found before a run."""

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from patchwright.bot.errors import WriteAccessMissing
from patchwright.bot.github.auth import AppAuth, TokenAuth
from patchwright.bot.github.forge import GitHubForge
from patchwright.demo.github import FakeGitHub, Repository
from patchwright.resolver.domain import Repo
from tests.bot.reconcile.deployments import FAST_POLICY, app_auth

SAMPLE = Repo(owner="acme", name="sample")
WRITE = {"contents": "write", "issues": "write", "pull_requests": "write", "metadata": "read"}


@pytest.fixture
async def fake_github() -> AsyncIterator[FakeGitHub]:
    async with FakeGitHub() as fake_github:
        yield fake_github


@pytest.fixture
def repo(fake_github: FakeGitHub) -> Repository:
    roles: dict[str, str] = {"maintainer": "write", "reader": "read"}
    return fake_github.create_repository("acme/sample", {"a.py": "x = 1\n"}, permissions=roles)  # type: ignore[arg-type]


async def require(fake_github: FakeGitHub, auth: TokenAuth | AppAuth) -> str:
    """Returns the error message, or "" if the credentials can publish."""
    async with GitHubForge(
        auth,
        fake_github.urls,
        policy=FAST_POLICY,
    ) as forge:
        try:
            await forge.write_check.require(SAMPLE)
        except WriteAccessMissing as exc:
            return str(exc)
    return ""


def workflow_token(fake_github: FakeGitHub, repo: Repository, *read_only: str) -> TokenAuth:
    actions = fake_github.create_app("github-actions", WRITE | dict.fromkeys(read_only, "read"))
    installation = fake_github.install_app(actions, repo)
    return TokenAuth(SecretStr(fake_github.create_installation_token(installation)))


@pytest.mark.parametrize(
    ("read_only", "lacks"),
    [
        ((), ""),
        (("contents",), "`contents: write`"),
        (("pull_requests",), "`pull_requests: write`"),
        (("contents", "pull_requests"), "`contents: write` and `pull_requests: write`"),
    ],
)
async def test_the_token_of_a_workflow_is_tested_without_changing_anything(
    fake_github: FakeGitHub, repo: Repository, read_only: tuple[str, ...], lacks: str
) -> None:
    message = await require(fake_github, workflow_token(fake_github, repo, *read_only))
    assert message == (
        lacks and f"The token for acme/sample lacks {lacks}, so the run could not publish its result."
    )
    assert (repo.pulls, set(repo.branches)) == ((), {"main"})


@pytest.mark.parametrize(("login", "is_denied"), [("maintainer", False), ("reader", True)])
async def test_a_personal_token_is_tested(
    fake_github: FakeGitHub, repo: Repository, login: str, is_denied: bool
) -> None:
    auth = TokenAuth(SecretStr(fake_github.create_token(login)))
    assert bool(await require(fake_github, auth)) is is_denied


async def test_the_permissions_of_an_app_are_known_from_its_token(
    fake_github: FakeGitHub, repo: Repository
) -> None:
    app = fake_github.create_app(permissions=WRITE | {"contents": "read"})
    fake_github.install_app(app, repo)
    assert "lacks `contents: write`, so" in await require(fake_github, app_auth(app))
    assert not [write for write in fake_github.writes if write.path.endswith("/pulls")]


@pytest.mark.parametrize(
    ("status", "message"),
    [(403, "GitHub Actions is not permitted to create or approve pull requests."), (500, "Server Error")],
)
async def test_a_response_that_names_no_permission_does_not_stop_the_run(
    fake_github: FakeGitHub, repo: Repository, status: int, message: str
) -> None:
    fake_github.fail_next_request("POST", "/pulls", status=status, body={"message": message})
    assert await require(fake_github, workflow_token(fake_github, repo)) == ""
