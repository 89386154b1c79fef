"""Measures the time from the agent's finish to the open pull request: publishing alone, with the fake GitHub
server.

Five files and a verdict are given. GitHub's spacing of writes (1 s between two) is off. Floor, in the same
run: the writes of publishing (a branch, a commit, a pull request, a comment) as plain requests.
"""

import statistics
import time
from base64 import b64encode
from pathlib import Path

import httpx
from pydantic import SecretStr

from benchmarks.measure import Result, in_a_directory, report
from patchwright.bot.github.auth import AppAuth, RequestPolicy
from patchwright.bot.github.commit_publisher import CREATE_COMMIT
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.github_action.workflow_jobs import build_publish_deps
from patchwright.bot.status_comment import null_reporter
from patchwright.demo.github import FakeGitHub, Repository
from patchwright.resolver.domain import Job, JobId, Patch, Repo, User, Verdict
from patchwright.resolver.events import (
    AgentStopped,
    ModelReply,
    ReplyUsage,
    RunStarted,
    ToolCall,
)
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.pipeline.publish import Attempt, publish_attempt
from patchwright.resolver.run.dependencies import Run
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.tool_actions.control_actions import Finish

TIMES = 9
FILES = {f"src/part{number}.py": f"VALUE = {number}\n" * 40 for number in range(5)}
CHANGED = {path: text.replace("VALUE", "NUMBER") for path, text in FILES.items()}
SAMPLE = Repo(owner="acme", name="sample")
DONE = Finish(cause="A name was wrong.", change="It is right.", testing="All tests pass.")


def proven() -> Verdict:
    return Verdict(kind="fixed", fail_to_pass=("tests/test_parts.py::test_name",), reason="")


def patch_of(repo: Repository) -> Patch:
    base = repo.bare.branch_sha("main")
    assert base is not None
    after = repo.bare.commit("wanted", {path: FILES[path] for path in FILES} | CHANGED, "Wanted")
    diff = repo.bare.git("diff", "--binary", "--full-index", base, after)
    repo.bare.git("update-ref", "-d", "refs/heads/wanted")
    return Patch(base_sha=base, diff=diff)


async def once(
    fake_github: FakeGitHub, repo: Repository, forge: GitHubForge, data: Path, patch: Patch
) -> float:
    """Returns the seconds of publishing once, for its own issue."""
    issue = fake_github.create_issue(repo, title="A name is wrong", body="Please fix it.", by="reporter")
    person = fake_github.user("maintainer")
    job = Job(
        id=JobId(f"benchmark-{issue.number}"),
        repo=SAMPLE,
        number=issue.number,
        requester=User(id=person.id, login=person.login),
    )
    facts, thread = await forge.get_repo_facts(SAMPLE), await forge.get_thread(job)
    credentials = await forge.get_credentials(SAMPLE)
    ended = AgentStopped(reason="finished", detail="The agent finished.")
    async with WorkspaceFactory(data / "cache").clone(facts.clone_url, "main", credentials) as workspace:
        started = RunStarted(
            job=job, thread=thread, base_sha=patch.base_sha, base_branch="main", source=facts.clone_url, model="m",
            sandbox="docker",
        )  # fmt: skip
        done = ModelReply(thought="", calls=(ToolCall(id="1", action=DONE),), usage=ReplyUsage(model="m"))
        settings = Settings(data=data, model="m", github_server_url=fake_github.server_url)
        attempt = Attempt(ended, patch, proven())
        deps = build_publish_deps(settings, Secrets(), FileLogStore(data / "runs"))
        async with deps.logs.open(job.id) as log:
            for event in (started, done, ended):
                await log.append(event)
            run = Run(job, thread, facts, log, deps, forge, null_reporter)
            started_at = time.perf_counter()
            outcome = await publish_attempt(run, workspace, attempt)
            elapsed = time.perf_counter() - started_at
    assert outcome.kind == "published", outcome
    return elapsed


async def bare(fake_github: FakeGitHub, repo: Repository, number: int) -> float:
    """Returns the seconds of the same four writes, one after the other."""
    issue = fake_github.create_issue(repo, title="A name is wrong", body="Please fix it.", by="reporter")
    base, branch = repo.bare.branch_sha("main"), f"bare/{number}"
    headers = {"Authorization": f"Bearer {fake_github.create_token('maintainer')}"}
    added = [{"path": path, "contents": b64encode(text.encode()).decode()} for path, text in CHANGED.items()]
    path_prefix = "/repos/acme/sample"
    commit = {
        "branch": {"repositoryNameWithOwner": "acme/sample", "branchName": branch},
        "expectedHeadOid": base,
        "message": {"headline": "Fix a name"},
        "fileChanges": {"additions": added},
    }
    async with httpx.AsyncClient(base_url=fake_github.api_url, headers=headers, trust_env=False) as client:
        started_at = time.perf_counter()
        await client.post(f"{path_prefix}/git/refs", json={"ref": f"refs/heads/{branch}", "sha": base})
        await client.post(
            fake_github.graphql_url, json={"query": CREATE_COMMIT, "variables": {"input": commit}}
        )
        await client.post(f"{path_prefix}/pulls", json={"title": "T", "head": branch, "base": "main"})
        response = await client.post(f"{path_prefix}/issues/{issue.number}/comments", json={"body": "Done."})
        elapsed = time.perf_counter() - started_at
    assert response.status_code == httpx.codes.CREATED
    return elapsed


async def _measure(data: Path) -> list[Result]:
    async with FakeGitHub() as fake_github:
        repo = fake_github.create_repository("acme/sample", FILES, permissions={"maintainer": "write"})
        app = fake_github.create_app()
        fake_github.install_app(app, repo)
        patch = patch_of(repo)
        access = AppAuth(str(app.id), SecretStr(app.private_key_pem))
        urls = fake_github.urls
        async with GitHubForge(access, urls, policy=RequestPolicy(write_interval=0)) as forge:
            await once(fake_github, repo, forge, data, patch)
            elapsed = [await once(fake_github, repo, forge, data, patch) for _ in range(TIMES)]
        floor_seconds = [await bare(fake_github, repo, number) for number in range(TIMES)]
    return [
        Result(
            name="delivery",
            value=statistics.median(elapsed),
            unit="s",
            floor=statistics.median(floor_seconds),
            target=3.0,
        )
    ]


def measure() -> list[Result]:
    return in_a_directory(_measure)


if __name__ == "__main__":
    report(measure())
