"""Publishes a completed run with its patch and verdict to the fake server, without agent and sandbox."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from patchwright.bot.github.auth import AppAuth, TokenAuth
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.github_action.workflow_jobs import build_publish_deps
from patchwright.bot.status_comment import null_reporter
from patchwright.demo.github import FakeGitHub, GitHubApp, Issue, Repository
from patchwright.demo.github.bare_repository import BareRepository
from patchwright.resolver.conditions import Condition
from patchwright.resolver.domain import Job, JobId, Outcome, Patch, Repo, TestRun, User, Verdict, VerdictKind
from patchwright.resolver.events import (
    AgentStopped,
    Entry,
    Event,
    ModelReply,
    ReplyUsage,
    RunStarted,
    ToolCall,
    Trajectory,
)
from patchwright.resolver.forge import MaskingForge
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.pipeline.base_branch import clone_at_base
from patchwright.resolver.pipeline.publish import Attempt, publish_attempt
from patchwright.resolver.run.dependencies import Run
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.tool_actions.control_actions import Finish
from tests.contracts.forges import FIXED, QUICK, change, file

CALC = Repo(owner="acme", name="calc")
DONE = Finish(cause="add() subtracted.", change="It adds now.", testing="python3 -m pytest: all pass.")
FIX = file("calc.py", FIXED.encode())
BRANCH = "patchwright/issue-1"
RUN = "acme-calc-1-0123456789ab"
SHORT = "456789ab"


def verdict(kind: VerdictKind) -> Verdict:
    test = "tests/test_calc.py::test_add"
    before = TestRun(command="pytest", results={test: "failed"}, exit_code=1, seconds=1, output="")
    after = before.model_copy(update={"results": {test: "passed"}, "exit_code": 0})
    match kind:
        case "fixed":
            return Verdict(kind=kind, fail_to_pass=(test,), before=before, after=after)
        case "regressed":
            broken = {"pass_to_fail": (test,), "before": after, "after": before}
            return Verdict(kind=kind, reason="A test that passed before fails now.", **broken)
        case "conditional":
            changed = Condition(
                kind="changed_expectations", sentence="`test_one` expects something else.", tests=(test,),
                path="tests/test calc.py", lines=(4, 6), diff="-    assert one() == 1",
            )  # fmt: skip
            return Verdict(kind=kind, fail_to_pass=(test,), conditions=(changed,), before=before, after=after)
        case _:
            return Verdict(kind=kind, reason="No test shows the fix.")


@dataclass
class PublishScenario:
    """acme/calc with one issue, and what is needed to publish a result there."""

    fake_github: FakeGitHub
    repo: Repository
    app: GitHubApp
    issue: Issue
    data: Path
    settings: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    uses_installation_token: bool = False
    """True to use an installation token instead of the App's key."""
    before_publishing: Callable[[], object] = lambda: None
    """Called between the start of the run and publishing."""

    @property
    def pulls(self) -> tuple[Any, ...]:
        return self.repo.pulls

    @property
    def comments(self) -> list[str]:
        return [comment.body.partition("\n")[2] for comment in self.repo.comments(self.issue.number)]

    @property
    def job(self) -> Job:
        person = self.fake_github.user("maintainer")
        return Job(
            id=JobId(RUN),
            repo=CALC,
            number=self.issue.number,
            requester=User(id=person.id, login=person.login),
            command=self.command,
        )

    @asynccontextmanager
    async def forge(self) -> AsyncIterator[GitHubForge]:
        """Opens a new client, as a restarted process would."""
        access: AppAuth | TokenAuth = AppAuth(str(self.app.id), SecretStr(self.app.private_key_pem))
        if self.uses_installation_token:
            installation = self.fake_github.install_app(self.app, self.repo)
            access = TokenAuth(SecretStr(self.fake_github.create_installation_token(installation)))
        urls = self.fake_github.urls
        async with GitHubForge(access, urls, policy=QUICK) as forge:
            yield forge

    async def publish(self, *stream: bytes, kind: VerdictKind = "fixed") -> Outcome:
        """Publishes this change with this verdict, as a run would."""
        settings = Settings(
            data=self.data, github_server_url=self.fake_github.server_url, **{"model": "m", **self.settings}
        )
        workspaces, job = WorkspaceFactory(self.data / "cache"), self.job
        async with self.forge() as forge:
            facts, thread = await forge.get_repo_facts(CALC), await forge.get_thread(job)
            credentials = await forge.get_credentials(CALC)
            async with clone_at_base(job, thread, Trajectory(), facts, workspaces, credentials) as workspace:
                clone = BareRepository(workspace.git_dir)
                clone.git("update-ref", "refs/heads/fix", workspace.base)
                if kind == "empty":
                    diff = b""
                else:
                    commit, parent = change(clone, *(stream or (FIX,)))
                    diff = clone.git("diff", "--binary", "--full-index", "--no-renames", parent, commit)
                ended = AgentStopped(reason="finished", detail="The agent finished.")
                started = RunStarted(
                    job=job,
                    thread=thread,
                    base_sha=workspace.base,
                    base_branch=workspace.base_branch or "",
                    source=facts.clone_url,
                    model="m",
                    sandbox="local",
                )
                done = ModelReply(
                    thought="", calls=(ToolCall(id="1", action=DONE),), usage=ReplyUsage(model="m")
                )
                self.before_publishing()
                deps = build_publish_deps(settings, Secrets(), FileLogStore(self.data / "runs"))
                attempt = Attempt(ended, Patch(base_sha=workspace.base, diff=diff), verdict(kind))
                async with deps.logs.open(job.id) as log:
                    log.replace_entries(build_entries(started, done, ended))
                    masked = MaskingForge(forge, Secrets().mask)
                    run = Run(job, thread, facts, log, deps, masked, null_reporter)
                    return await publish_attempt(run, workspace, attempt)


def build_entries(*events: Event) -> list[Entry]:
    at = datetime(2026, 1, 1, tzinfo=UTC)  # a fixed time makes the commit the same on every attempt
    return [Entry(seq=seq, timestamp=at, event=event) for seq, event in enumerate(events)]
