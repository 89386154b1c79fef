"""Check runs: only the App that created one can change it."""

from collections.abc import Callable

import httpx

from patchwright.demo.github import FakeGitHub
from patchwright.demo.github.state import APP_PERMISSIONS, Repository

Client = Callable[..., httpx.AsyncClient]


async def test_only_the_app_of_a_check_run_can_change_it(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    sha, place = repo.bare.branch_sha("main"), f"/repos/{repo.full_name}"
    ours, other = (
        fake_github.create_app(slug, {**APP_PERMISSIONS, "checks": "write"}) for slug in ("ours", "other")
    )
    weak = fake_github.create_app("weak")
    tokens = [
        fake_github.create_installation_token(fake_github.install_app(app, repo))
        for app in (ours, other, weak)
    ]
    body = {"name": "ours", "head_sha": sha, "status": "in_progress", "external_id": "job"}
    async with client(fake_github, tokens[0]) as http:
        made = (await http.post(f"{place}/check-runs", json=body)).json()
        assert (made["status"], made["conclusion"], made["app"]["slug"]) == ("in_progress", None, "ours")
        end = {"conclusion": "neutral", "output": {"title": "T", "summary": "S"}}
        ended = (await http.patch(f"{place}/check-runs/{made['id']}", json=end)).json()
        assert (ended["status"], ended["conclusion"], ended["external_id"], ended["output"]["title"]) == (
            "completed", "neutral", "job", "T",
        )  # fmt: skip
        again = await http.post(f"{place}/check-runs", json=body)
        listed = f"{place}/commits/main/check-runs"
        assert [one["id"] for one in (await http.get(listed)).json()["check_runs"]] == [again.json()["id"]]
        both = (await http.get(listed, params={"filter": "all", "check_name": "ours"})).json()
        assert (both["total_count"], both["check_runs"][1]["id"]) == (2, made["id"])
        nowhere = await http.post(f"{place}/check-runs", json={**body, "head_sha": "0" * 40})
        assert nowhere.status_code == 422
    async with client(fake_github, tokens[1]) as http:
        foreign = await http.patch(f"{place}/check-runs/{made['id']}", json={"conclusion": "success"})
        assert foreign.status_code == 403
    for token in (tokens[2], fake_github.create_token("maintainer")):
        async with client(fake_github, token) as http:
            assert (await http.post(f"{place}/check-runs", json=body)).status_code == 403
    assert len(repo.checks) == 2
