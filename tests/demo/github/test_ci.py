"""What programs find of commits in the fake server: suites, jobs, and logs that lie on another host."""

from collections.abc import Callable

import httpx

from patchwright.demo.github import FakeGitHub
from patchwright.demo.github.state import APP_PERMISSIONS, Repository

Client = Callable[..., httpx.AsyncClient]
READING = {**APP_PERMISSIONS, "checks": "read", "actions": "read"}


async def test_a_failed_job_has_steps_annotations_and_a_redirected_log(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    one = fake_github.ci.add_check(
        repo, "main", "test", log=b"2 failed\n", step="Run pytest", annotations=[("a.py", 3, "No.")]
    )
    fake_github.ci.add_check(repo, "main", "lint", None, by="other-ci")
    token = fake_github.create_installation_token(
        fake_github.install_app(fake_github.create_app("reader", READING), repo)
    )
    weak = fake_github.create_installation_token(
        fake_github.install_app(fake_github.create_app("weak"), repo)
    )
    place = f"/repos/{repo.full_name}"
    async with client(fake_github, token) as http:
        suites = (await http.get(f"{place}/commits/main/check-suites")).json()["check_suites"]
        assert [(each["app"]["slug"], each["status"]) for each in suites] == [
            ("github-actions", "completed"), ("other-ci", "in_progress"),
        ]  # fmt: skip
        job = (await http.get(f"{place}/actions/jobs/{one.id}")).json()
        assert [each["name"] for each in job["steps"] if each["conclusion"] == "failure"] == ["Run pytest"]
        noted = (await http.get(f"{place}/check-runs/{one.id}/annotations")).json()
        assert [(each["path"], each["start_line"], each["message"]) for each in noted] == [("a.py", 3, "No.")]
        led = await http.get(f"{place}/actions/jobs/{one.id}/logs")
    assert (led.status_code, led.headers["location"].startswith("http://localhost:")) == (302, True)
    async with httpx.AsyncClient(trust_env=False) as anybody:
        assert (await anybody.get(led.headers["location"])).content == b"2 failed\n"
    async with client(fake_github, weak) as http:
        for path in (f"{place}/actions/jobs/{one.id}/logs", f"{place}/check-runs/{one.id}/annotations"):
            assert (await http.get(path)).status_code == 403


async def test_the_commits_of_a_pull_request_name_the_accounts_of_their_emails(
    fake_github: FakeGitHub, repo: Repository, client: Client
) -> None:
    repo.commit("topic", {"new.txt": "1\n"}, "One")
    repo.commit("topic", {"new.txt": "2\n"}, "Two")
    pull = fake_github.create_pull(repo, "topic", by="maintainer")
    async with client(fake_github, fake_github.create_token("maintainer")) as http:
        listed = (await http.get(f"/repos/{repo.full_name}/pulls/{pull.number}/commits")).json()
    assert [one["commit"]["message"] for one in listed] == ["One", "Two"]
    assert [one["author"] for one in listed] == [None, None]
    assert listed[-1]["sha"] == pull.head.sha
