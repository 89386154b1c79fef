"""The fake server is as strict as GitHub: about who asks, about limits, and about shapes."""

import base64
import time
from collections.abc import Callable

import httpx
import jwt
import pytest

from patchwright.demo.github import FakeGitHub, GitHubApp, Repository, SpecViolation

Client = Callable[..., httpx.AsyncClient]
FILES = {"calc.py": "1\n"}


# --- who asks -----------------------------------------------------------------------------------------------


async def test_unknown_and_expired_tokens_get_401(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    app = fake_github.create_app()
    token = fake_github.create_installation_token(fake_github.install_app(app, repo))
    async with client(fake_github, token) as api:
        assert (await api.get("/repos/acme/sample")).status_code == 200
        fake_github.expire_tokens()
        assert (await api.get("/repos/acme/sample")).status_code == 401
    async with client(fake_github, "ghp_nobody") as api:
        assert (await api.get("/repos/acme/sample")).status_code == 401


def app_jwt(app: GitHubApp, *, key: str | None = None, seconds: int = 500) -> str:
    now = int(time.time())
    claims = {"iss": str(app.id), "iat": now - 10, "exp": now + seconds}
    return jwt.encode(claims, key or app.private_key_pem, algorithm="RS256")


async def test_only_the_apps_own_key_creates_tokens(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    app, stranger = fake_github.create_app(), fake_github.create_app("somebody-else")
    installation = fake_github.install_app(app, repo)
    mint = f"/app/installations/{installation.id}/access_tokens"
    for bad in (
        app_jwt(app, key=stranger.private_key_pem),
        app_jwt(app, seconds=-5),
        app_jwt(app, seconds=7200),
        "a.b.c",
        jwt.encode({"iss": str(app.id), "iat": 0, "exp": int(time.time()) + 60}, "", algorithm="none"),
    ):
        async with client(fake_github, bad) as api:
            assert (await api.post(mint)).status_code == 401, bad
    async with client(fake_github, app_jwt(stranger)) as api:
        assert (await api.post(mint)).status_code == 404
    async with client(fake_github, app_jwt(app)) as api:
        assert (await api.get("/repos/acme/sample/installation")).json()["id"] == installation.id
        minted = await api.post(mint, json={"repositories": ["sample"], "permissions": {"issues": "read"}})
    assert minted.status_code == 201
    async with client(fake_github, minted.json()["token"]) as api:
        issue = fake_github.create_issue(repo, title="T", body=None, by="reader")
        response = await api.post(
            f"/repos/acme/sample/issues/{issue.number}/comments", json={"body": "hello"}
        )
    assert response.status_code == 403  # it was minted to read


async def test_a_label_needs_triage_access_and_a_comment_only_an_account(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    answers = {}
    for login in ("stranger", "triager"):
        async with client(fake_github, fake_github.create_token(login)) as api:
            label = await api.post(
                f"/repos/acme/sample/issues/{issue.number}/labels", json={"labels": ["fix-me"]}
            )
            comment = await api.post(
                f"/repos/acme/sample/issues/{issue.number}/comments", json={"body": "hello"}
            )
        answers[login] = (label.status_code, comment.status_code)
    assert answers == {"stranger": (403, 201), "triager": (200, 201)}
    async with client(fake_github) as api:
        nobody = await api.post(f"/repos/acme/sample/issues/{issue.number}/comments", json={"body": "hello"})
    assert nobody.status_code == 401
    assert [(comment.author.login, comment.body) for comment in repo.comments(issue.number)] == [
        ("stranger", "hello"),
        ("triager", "hello"),
    ]


async def test_a_permission_is_the_role_of_the_user_id(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    maintainer = fake_github.user("maintainer")
    fake_github.rename_user("maintainer", "renamed")
    fake_github.user("maintainer")  # another user takes the old name
    fake_github.user("stranger")
    async with client(fake_github, fake_github.create_token("renamed")) as api:
        by_id = (await api.get(f"/user/{maintainer.id}")).json()["login"]
        path = "/repos/acme/sample/collaborators/{}/permission"
        roles = {
            login: (await api.get(path.format(login))).json()["role_name"]
            for login in ("renamed", "maintainer", "triager", "stranger")
        }
        missing = await api.get(path.format("nobody-at-all"))
    assert by_id == "renamed"
    assert roles == {"renamed": "write", "maintainer": "read", "triager": "triage", "stranger": "read"}
    assert missing.status_code == 404


# --- limits and pages ---------------------------------------------------------------------------------------


async def test_an_owner_with_a_role_is_a_person_and_another_an_organization(fake_github: FakeGitHub) -> None:
    own = fake_github.create_repository("alice/sample", permissions={"alice": "admin"})
    shared = fake_github.create_repository("acme/other", permissions={"alice": "admin"})
    assert (own.owner.kind, shared.owner.kind) == ("User", "Organization")


async def test_requests_that_github_rejects_are_rejected(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    repo.commit("fix", {"calc.py": "1\n"})
    issue = fake_github.create_issue(repo, title="T", body="B", by="reader")
    pull = {"title": "T", "body": "B", "head": "fix", "base": "main", "draft": True}
    async with client(fake_github, fake_github.create_token("maintainer")) as api:
        comments = f"/repos/acme/sample/issues/{issue.number}/comments"
        assert (await api.post(comments, json={"body": "x" * 65_536})).status_code == 201
        assert (await api.post(comments, json={"body": "x" * 65_537})).status_code == 422
        assert (
            await api.post("/repos/acme/sample/pulls", json=pull | {"head": "nowhere"})
        ).status_code == 422
        assert (
            await api.post("/repos/acme/sample/pulls", json=pull | {"base": "nowhere"})
        ).status_code == 422
        assert (await api.post("/repos/acme/sample/pulls", json=pull | {"head": "main"})).status_code == 422
        assert (await api.post("/repos/acme/sample/pulls", json=pull)).status_code == 201
        again = await api.post("/repos/acme/sample/pulls", json=pull)
        assert again.status_code == 422
        assert "already exists" in again.json()["errors"][0]["message"]
        found = (await api.get("/repos/acme/sample/pulls", params={"head": "acme:fix"})).json()
        assert [(one["title"], one["draft"]) for one in found] == [("T", True)]
        assert (await api.get("/repos/acme/sample/pulls", params={"head": "acme:other"})).json() == []


async def test_comments_are_paginated(fake_github: FakeGitHub, repo: Repository, client: Client) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="reader")
    for number in range(5):
        fake_github.add_comment_silently(issue, f"comment {number}", by="reader")
    received: list[str] = []
    async with client(fake_github) as api:
        url: str | None = f"/repos/acme/sample/issues/{issue.number}/comments?per_page=2"
        while url is not None:
            page = await api.get(url)
            received += [comment["body"] for comment in page.json()]
            url = page.links.get("next", {}).get("url")
    assert received == [f"comment {number}" for number in range(5)]


async def test_every_response_matches_githubs_description(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    sha = repo.commit("feature/one", {"a.txt": "a\n"})
    issue = fake_github.create_issue(repo, title="T", body=None, by="reader")
    async with client(fake_github, fake_github.create_token("maintainer")) as api:
        answers = [
            await api.get(path)
            for path in (
                "/user",
                "/users/reader",
                "/repos/acme/sample",
                "/repos/acme/sample/git/ref/heads/feature/one",
                "/repos/acme/sample/branches/feature%2Fone",
                "/repos/acme/sample/commits/feature/one",
                f"/repos/acme/sample/commits/{sha}",
                "/repos/acme/sample/contents/docs/Gr%C3%B6%C3%9Fe%20und%20mehr.md",
                "/repos/acme/sample/issues?labels=none",
                f"/repos/acme/sample/issues/{issue.number}",
            )
        ]
        reaction = await api.post(
            f"/repos/acme/sample/issues/{issue.number}/reactions", json={"content": "eyes"}
        )
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert {answer.json()["object"]["sha"] for answer in answers[3:4]} == {sha}
    assert base64.b64decode(answers[7].json()["content"]).decode() == "größer\n"
    assert reaction.status_code == 201
    assert [(given.user.login, given.content) for given in issue.reactions] == [("maintainer", "eyes")]


# --- off the description ------------------------------------------------------------------------------------


async def test_a_request_that_violates_the_description_fails_the_test(client: Client) -> None:
    with pytest.raises(SpecViolation) as caught:
        async with FakeGitHub() as fake_github:
            repo = fake_github.create_repository("acme/sample", FILES, permissions={"maintainer": "write"})
            issue = fake_github.create_issue(repo, title="T", body="B", by="maintainer")
            async with client(fake_github, fake_github.create_token("maintainer")) as api:
                await api.get("/repos/acme/sample/nonsense")
                await api.get(f"/repos/acme/sample/issues/{issue.number}?verbose=1")
                await api.post(f"/repos/acme/sample/issues/{issue.number}/comments", json={"body": 7})
                await api.post(f"/repos/acme/sample/issues/{issue.number}/comments")
                await api.patch("/repos/acme/sample/pulls/1", json={"titel": "typo"})
    assert str(caught.value).splitlines() == [
        "GET /repos/acme/sample/nonsense: GitHub's API has no such operation",
        "GET /repos/{owner}/{repo}/issues/{issue_number}: there is no query parameter 'verbose'",
        "POST /repos/{owner}/{repo}/issues/{issue_number}/comments: body: body 7 is not of type 'string'",
        "POST /repos/{owner}/{repo}/issues/{issue_number}/comments: the body is missing",
        "PATCH /repos/{owner}/{repo}/pulls/{pull_number}: the body has no field 'titel'",
    ]


async def test_a_response_that_violates_the_description_fails_the_test(client: Client) -> None:
    with pytest.raises(
        SpecViolation, match=r"issues/\{issue_number\} -> 200: title 7 is not of type 'string'"
    ):
        async with FakeGitHub() as fake_github:
            repo = fake_github.create_repository("acme/sample", FILES)
            issue = fake_github.create_issue(repo, title="T", body="B", by="maintainer")
            issue.title = 7  # type: ignore[assignment]
            async with client(fake_github) as api:
                await api.get(f"/repos/acme/sample/issues/{issue.number}")


# --- faults -------------------------------------------------------------------------------------------------


async def test_faults_happen_once_and_in_order(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    comments = f"/repos/acme/sample/issues/{issue.number}/comments"
    async with client(fake_github, fake_github.create_token("maintainer")) as api:
        fake_github.lose_next_request("POST", "/comments")
        with pytest.raises(httpx.TransportError):
            await api.post(comments, json={"body": "never arrives"})
        fake_github.lose_next_response("POST", "/comments")
        with pytest.raises(httpx.TransportError):
            await api.post(comments, json={"body": "arrives unheard"})
        fake_github.fail_next_request("POST", "/comments", status=429, headers={"retry-after": "7"})
        refused = await api.post(comments, json={"body": "too many"})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "7")
        assert (await api.post(comments, json={"body": "fine"})).status_code == 201
    assert [comment.body for comment in repo.comments(issue.number)] == ["arrives unheard", "fine"]
