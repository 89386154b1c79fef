"""Delivery alone: a run that has ended, with its patch and verdict, before the stand-in; no agent, no sandbox."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from bot.github.forge import GitHubForge
from bot.github.rest import AppAccess, TokenAccess
from demo.world import App, Issue, Repository, World
from demo.world.bare import Bare
from resolver.actions import Finish
from resolver.deliver import Attempt, deliver
from resolver.domain import Job, JobId, Outcome, Patch, Repo, SuiteRun, User, Verdict, VerdictKind
from resolver.events import Call, Decided, Ended, Entry, Event, Started, Trajectory, Usage
from resolver.forge import Masked
from resolver.request.base import at_base
from resolver.secrets import Secrets
from resolver.settings.settings import Settings
from resolver.workspace import Workspaces
from tests.contracts.forges import FIXED, QUICK, change, file

CALC = Repo(owner="acme", name="calc")
DONE = Finish(cause="add() subtracted.", change="It adds now.", checked="python3 -m pytest: all pass.")
FIX = file("calc.py", FIXED.encode())
BRANCH = "patchwright/issue-1"
RUN = "acme-calc-1-0123456789ab"
SHORT = "456789ab"


def verdict(kind: VerdictKind) -> Verdict:
    test = "tests/test_calc.py::test_add"
    before = SuiteRun(command="pytest", results={test: "failed"}, exit_code=1, seconds=1, output="")
    after = before.model_copy(update={"results": {test: "passed"}, "exit_code": 0})
    match kind:
        case "fixed":
            return Verdict(kind=kind, newly_passing=(test,), before=before, after=after)
        case "regressed":
            broken = {"newly_failing": (test,), "before": after, "after": before}
            return Verdict(kind=kind, reason="A test that passed before fails now.", **broken)
        case _:
            return Verdict(kind=kind, reason="No test shows the fix.")


@dataclass
class Depot:
    """acme/calc with one issue, and whatever is to be delivered there."""

    world: World
    repo: Repository
    app: App
    issue: Issue
    data: Path
    settings: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    plain: bool = False
    """Whether the token of the App's installation is given as it is, instead of the App's key."""
    meanwhile: Callable[[], object] = lambda: None
    """What happens between the run's beginning and its delivery."""

    @property
    def pulls(self) -> tuple[Any, ...]:
        return self.repo.pulls

    @property
    def comments(self) -> list[str]:
        return [comment.body.partition("\n")[2] for comment in self.repo.comments(self.issue.number)]

    @property
    def job(self) -> Job:
        person = self.world.user("maintainer")
        return Job(
            id=JobId(RUN),
            repo=CALC,
            number=self.issue.number,
            requester=User(id=person.id, login=person.login),
            command=self.command,
        )

    @asynccontextmanager
    async def forge(self) -> AsyncIterator[GitHubForge]:
        """As a process that has just started has it."""
        access: AppAccess | TokenAccess = AppAccess(str(self.app.id), SecretStr(self.app.private_key_pem))
        if self.plain:
            installation = self.world.install(self.app, self.repo)
            access = TokenAccess(SecretStr(self.world.installation_token(installation)))
        urls = {name: getattr(self.world, name) for name in ("api_url", "graphql_url", "server_url")}
        async with GitHubForge(access, **urls, pace=QUICK) as forge:
            yield forge

    async def deliver(self, *stream: bytes, kind: VerdictKind = "fixed") -> Outcome:
        """A run from its beginning to its delivery, with this change and this verdict."""
        settings = Settings(
            data=self.data, github_server_url=self.world.server_url, **{"model": "m", **self.settings}
        )
        workspaces, job = Workspaces(self.data / "cache"), self.job
        async with self.forge() as forge:
            facts, thread = await forge.facts(CALC), await forge.thread(job)
            credentials = await forge.credentials(CALC)
            async with at_base(job, thread, Trajectory(), facts, workspaces, credentials) as workspace:
                clone = Bare(workspace.git_dir)
                clone.git("update-ref", "refs/heads/fix", workspace.base)
                if kind == "empty":
                    diff = b""
                else:
                    commit, parent = change(clone, *(stream or (FIX,)))
                    diff = clone.git("diff", "--binary", "--full-index", "--no-renames", parent, commit)
                ended = Ended(reason="finished", detail="The agent finished.")
                started = Started(
                    job=job,
                    thread=thread,
                    base=workspace.base,
                    base_branch=workspace.base_branch or "",
                    source=facts.clone_url,
                    model="m",
                    sandbox="local",
                )
                done = Decided(thought="", calls=(Call(id="1", action=DONE),), usage=Usage(model="m"))
                self.meanwhile()
                return await deliver(
                    job,
                    Attempt(ended, Patch(base=workspace.base, diff=diff), verdict(kind)),
                    workspace,
                    Trajectory(tuple(entries(started, done, ended))),
                    Masked(forge, Secrets().mask),
                    settings,
                    Secrets(),
                )


def entries(*events: Event) -> list[Entry]:
    at = datetime(2026, 1, 1, tzinfo=UTC)  # the same in every try: so is the commit
    return [Entry(seq=seq, at=at, event=event) for seq, event in enumerate(events)]
