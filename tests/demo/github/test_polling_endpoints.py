"""The endpoints for polling are paginated, and answer 304 if nothing changed."""

import time
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import jwt

from patchwright.demo.github import FakeGitHub, GitHubApp, Repository

Client = Callable[..., httpx.AsyncClient]

NOBODY = "http://127.0.0.1:1/webhook"


def signed(app: GitHubApp) -> str:
    now = int(time.time())
    return jwt.encode({"iat": now - 5, "exp": now + 300, "iss": str(app.id)}, app.private_key_pem, "RS256")


async def test_an_installation_lists_its_repositories(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    app = fake_github.create_app()
    place = fake_github.install_app(app, repo)
    async with client(fake_github, signed(app)) as http:
        (data,) = (await http.get("/app/installations")).json()
    assert data["id"] == place.id
    async with client(fake_github, fake_github.create_installation_token(place)) as http:
        data = (await http.get("/installation/repositories")).json()
        assert (data["total_count"], data["repositories"][0]["id"]) == (1, repo.id)
        assert (await http.get("/app/installations")).status_code == 401


async def test_only_changes_since_the_given_time_are_listed(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    old = fake_github.create_issue(repo, title="Old", body="B", by="stranger")
    new = fake_github.create_issue(repo, title="New", body="B", by="stranger")
    fake_github.add_comment_silently(old, "Before.", by="stranger")
    fake_github.add_label_silently(new, "fix-me", by="maintainer")
    since = {"since": new.updated}
    comment = fake_github.add_comment_silently(new, "After.", by="stranger")
    async with client(fake_github, fake_github.create_token("maintainer")) as http:
        place = f"/repos/{repo.full_name}"
        assert [one["number"] for one in (await http.get(f"{place}/issues", params=since)).json()] == [2]
        (event,) = (await http.get(f"{place}/issues/2/events")).json()
        assert (event["event"], event["label"]["name"], event["actor"]["login"], event["created_at"]) == (
            "labeled", "fix-me", "maintainer", since["since"],
        )  # fmt: skip
        answer = await http.get(f"{place}/issues/comments", params=since)
        assert [one["id"] for one in answer.json()] == [comment.id]
        assert (await http.get(f"{place}/pulls/comments", params=since)).json() == []
        same = await http.get(
            f"{place}/issues/comments", params=since, headers={"if-none-match": answer.headers["etag"]}
        )
        assert (same.status_code, same.content) == (304, b"")


async def test_failed_deliveries_are_paginated_and_redelivered(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    app = fake_github.create_app()
    fake_github.install_app(app, repo)
    fake_github.add_webhook(NOBODY, secret="s3cret")
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    sent = [await fake_github.add_label(issue, name, by="maintainer") for name in ("a", "b", "c")]
    fake_github.advance_time(days=2)
    async with client(fake_github, signed(app)) as http:
        first = await http.get("/app/hook/deliveries", params={"per_page": "2"})
        rest = await http.get(first.links["next"]["url"])
        listed = [*first.json(), *rest.json()]
        assert [one["guid"] for one in listed] == [one.guid for one in reversed(sent)]
        assert urlsplit(first.links["next"]["url"]).query.endswith(f"cursor={sent[1].id}")
        assert {one["status_code"] for one in listed} == {502}
        response = await http.post(f"/app/hook/deliveries/{sent[0].id}/attempts")
        assert (response.status_code, response.json()) == (202, {})
        await fake_github.wait_for_deliveries()
        again = (await http.get("/app/hook/deliveries")).json()[0]
    assert (again["guid"], again["redelivery"]) == (sent[0].guid, True)
    assert again["delivered_at"] > listed[0]["delivered_at"]


async def test_a_repository_webhook_gets_only_events_of_its_repository(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    other = fake_github.create_repository("acme/other", permissions={"maintainer": "admin"})
    fake_github.set_role(repo, "maintainer", "admin")
    hook = fake_github.add_webhook(NOBODY, "s3cret", repo)
    fake_github.add_webhook(NOBODY, "s3cret", other)
    sent = await fake_github.add_label(
        fake_github.create_issue(repo, title="T", body="B", by="stranger"), "fix-me", by="maintainer"
    )
    assert [one.hook for one in fake_github.deliveries] == [hook]
    async with client(fake_github, fake_github.create_token("maintainer")) as http:
        (data,) = (await http.get(f"/repos/{repo.full_name}/hooks")).json()
        (attempt,) = (await http.get(f"/repos/{repo.full_name}/hooks/{data['id']}/deliveries")).json()
        assert (data["config"]["url"], attempt["id"]) == (NOBODY, sent.id)
        place = f"/repos/{repo.full_name}/hooks/{hook.id}/deliveries/{sent.id}/attempts"
        assert (await http.post(place)).status_code == 202
    async with client(fake_github, fake_github.create_token("triager")) as http:
        assert (await http.get(f"/repos/{repo.full_name}/hooks")).status_code == 403
