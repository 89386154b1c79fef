"""The person who asked for a pull request is requested as its reviewer."""

import pytest
from pydantic import SecretStr

from patchwright.bot.github.auth import TokenAuth
from patchwright.demo.github import FakeGitHub
from patchwright.resolver.domain import User
from patchwright.resolver.forge_writes import PullRequestSpec
from tests.bot.github.test_forge import SAMPLE, create_forge


@pytest.mark.parametrize(
    ("login", "is_requested"), [("maintainer", True), ("leaver", False), ("app[bot]", False)]
)
async def test_the_requester_is_requested_as_reviewer_once(
    fake_github: FakeGitHub, login: str, is_requested: bool
) -> None:
    roles = {"patchwright": "write", "maintainer": "write"}
    repo = fake_github.create_repository("acme/sample", {"a.txt": "a\n"}, permissions=roles)
    sha = repo.commit("patchwright/issue-1", {"calc.py": "x\n"}, "Fix: x")
    spec = PullRequestSpec(
        repo=SAMPLE, number=1, base_branch="main", branch="patchwright/issue-1", head_sha=sha, title="T",
        body="B", draft=False, reviewer=User(id=1, login=login),
    )  # fmt: skip
    async with create_forge(
        fake_github, TokenAuth(SecretStr(fake_github.create_token("patchwright")))
    ) as forge:
        first, second = await forge.open_pull_request(spec), await forge.open_pull_request(spec)
    assert first.number == second.number
    (pull,) = repo.pulls
    assert [user.login for user in pull.requested_reviewers] == ([login] if is_requested else [])
    requests = [write for write in fake_github.writes if write.path.endswith("/requested_reviewers")]
    assert len(requests) == (0 if login.endswith("[bot]") else 1)
