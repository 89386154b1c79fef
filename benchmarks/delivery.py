"""From the agent's finish to the open pull request: what delivery itself takes, against the stand-in.

Five files and the proof's verdict are given; GitHub's spacing of writes (1 s between two) is left out. Floor, in the
same run: the writes that delivery makes (a branch, a commit, a pull request, a comment) as bare requests.
"""

import statistics
import time
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path

import httpx
from pydantic import SecretStr

from benchmarks.measure import Result, in_a_directory, report
from bot.github.forge import GitHubForge
from bot.github.publishing import COMMIT
from bot.github.rest import AppAccess, Pace
from demo.world import Repository, World
from resolver.actions import Finish
from resolver.deliver import Attempt, deliver
from resolver.domain import Job, JobId, Patch, Repo, User, Verdict
from resolver.events import Call, Decided, Ended, Entry, Started, Trajectory, Usage
from resolver.secrets import Secrets
from resolver.settings.settings import Settings
from resolver.workspace import Workspaces

TIMES = 9
FILES = {f"src/part{number}.py": f"VALUE = {number}\n" * 40 for number in range(5)}
CHANGED = {path: text.replace("VALUE", "NUMBER") for path, text in FILES.items()}
SAMPLE = Repo(owner="acme", name="sample")
DONE = Finish(cause="A name was wrong.", change="It is right.", checked="All tests pass.")


def proven() -> Verdict:
    return Verdict(kind="fixed", newly_passing=("tests/test_parts.py::test_name",), reason="")


def patch_of(repo: Repository) -> Patch:
    base = repo.bare.sha("main")
    assert base is not None
    after = repo.bare.commit("wanted", {path: FILES[path] for path in FILES} | CHANGED, "Wanted")
    diff = repo.bare.git("diff", "--binary", "--full-index", base, after)
    repo.bare.git("update-ref", "-d", "refs/heads/wanted")
    return Patch(base=base, diff=diff)


async def once(world: World, repo: Repository, forge: GitHubForge, data: Path, patch: Patch) -> float:
    """Seconds of one delivery, for an issue of its own."""
    issue = world.issue(repo, title="A name is wrong", body="Please mend it.", by="reporter")
    person = world.user("maintainer")
    job = Job(
        id=JobId(f"benchmark-{issue.number}"),
        repo=SAMPLE,
        number=issue.number,
        requester=User(id=person.id, login=person.login),
    )
    facts, thread = await forge.facts(SAMPLE), await forge.thread(job)
    credentials = await forge.credentials(SAMPLE)
    ended = Ended(reason="finished", detail="The agent finished.")
    async with Workspaces(data / "cache").clone(facts.clone_url, "main", credentials) as workspace:
        begun = Started(
            job=job, thread=thread, base=patch.base, base_branch="main", source=facts.clone_url, model="m",
            sandbox="docker",
        )  # fmt: skip
        done = Decided(thought="", calls=(Call(id="1", action=DONE),), usage=Usage(model="m"))
        at = datetime.now(UTC)
        entries = tuple(Entry(seq=n, at=at, event=event) for n, event in enumerate((begun, done, ended)))
        settings = Settings(data=data, model="m", github_server_url=world.server_url)
        attempt = Attempt(ended, patch, proven())
        began = time.perf_counter()
        outcome = await deliver(job, attempt, workspace, Trajectory(entries), forge, settings, Secrets())
        taken = time.perf_counter() - began
    assert outcome.kind == "delivered", outcome
    return taken


async def bare(world: World, repo: Repository, number: int) -> float:
    """Seconds of the same four writes, one after the other."""
    issue = world.issue(repo, title="A name is wrong", body="Please mend it.", by="reporter")
    base, branch = repo.bare.sha("main"), f"bare/{number}"
    headers = {"Authorization": f"Bearer {world.token('maintainer')}"}
    added = [{"path": path, "contents": b64encode(text.encode()).decode()} for path, text in CHANGED.items()]
    place = "/repos/acme/sample"
    commit = {
        "branch": {"repositoryNameWithOwner": "acme/sample", "branchName": branch},
        "expectedHeadOid": base,
        "message": {"headline": "Mend a name"},
        "fileChanges": {"additions": added},
    }
    async with httpx.AsyncClient(base_url=world.api_url, headers=headers, trust_env=False) as client:
        began = time.perf_counter()
        await client.post(f"{place}/git/refs", json={"ref": f"refs/heads/{branch}", "sha": base})
        await client.post(world.graphql_url, json={"query": COMMIT, "variables": {"input": commit}})
        await client.post(f"{place}/pulls", json={"title": "T", "head": branch, "base": "main"})
        said = await client.post(f"{place}/issues/{issue.number}/comments", json={"body": "Done."})
        taken = time.perf_counter() - began
    assert said.status_code == httpx.codes.CREATED
    return taken


async def _measure(data: Path) -> list[Result]:
    async with World() as world:
        repo = world.repository("acme/sample", FILES, permissions={"maintainer": "write"})
        app = world.app()
        world.install(app, repo)
        patch = patch_of(repo)
        access = AppAccess(str(app.id), SecretStr(app.private_key_pem))
        urls = {"api_url": world.api_url, "graphql_url": world.graphql_url, "server_url": world.server_url}
        async with GitHubForge(access, **urls, pace=Pace(between_writes=0)) as forge:
            await once(world, repo, forge, data, patch)
            taken = [await once(world, repo, forge, data, patch) for _ in range(TIMES)]
        least = [await bare(world, repo, number) for number in range(TIMES)]
    return [
        Result(
            name="delivery",
            value=statistics.median(taken),
            unit="s",
            floor=statistics.median(least),
            target=3.0,
        )
    ]


def measure() -> list[Result]:
    return in_a_directory(_measure)


if __name__ == "__main__":
    report(measure())
