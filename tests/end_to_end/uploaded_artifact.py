"""An artifact as the first workflow job uploads it, which tests forge in one place at a time."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from patchwright.bot.github_action.workflow_jobs import PublishJob, build_publish_deps
from patchwright.bot.status_comment import null_reporter
from patchwright.demo.github import FakePullRequest
from patchwright.demo.github.bare_repository import BareRepository
from patchwright.resolver.domain import Job, JobId, Outcome, Patch, VerdictKind
from patchwright.resolver.events import (
    AgentStopped,
    Checkpoint,
    Entry,
    Event,
    ModelReply,
    ReplyUsage,
    RunStarted,
    ToolCall,
    Trajectory,
    VerificationCompleted,
)
from patchwright.resolver.forge import MaskingForge
from patchwright.resolver.pipeline.resolve import resolve_job
from patchwright.resolver.publishing import artifact
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from tests.contracts.forges import change
from tests.end_to_end.publish_scenario import CALC, DONE, FIX, PublishScenario, verdict


def number_entries(events: Iterable[Event]) -> tuple[Entry, ...]:
    return tuple(Entry(seq=seq, timestamp=datetime.now(UTC), event=event) for seq, event in enumerate(events))


@dataclass
class UploadedArtifact:
    """The state between the two workflow jobs."""

    scenario: PublishScenario
    pull: FakePullRequest | None = None
    """The pull request of the job, or None for the issue."""

    @property
    def job(self) -> Job:
        if self.pull is None:
            return self.scenario.job
        return self.scenario.job.model_copy(update={"number": self.pull.number, "command": "fix it"})

    async def events(self, *stream: bytes, kind: VerdictKind = "fixed", base: str = "") -> list[Event]:
        """Returns the events in the log of a valid first job."""
        async with self.scenario.forge() as forge:
            facts, thread = await forge.get_repo_facts(CALC), await forge.get_thread(self.job)
        repo, base_branch = self.scenario.repo, "main"
        base = base or (self.pull.head.sha if self.pull else repo.bare.branch_sha("main") or "")
        if self.pull is not None:
            thread = thread.model_copy(update={"base_sha": repo.bare.branch_sha("main")})
        shutil.copytree(repo.bare.path, self.scenario.data / f"clone-{base}", dirs_exist_ok=True)
        clone = BareRepository(self.scenario.data / f"clone-{base}")
        clone.git("update-ref", "refs/heads/fix", base)
        commit, parent = change(clone, *(stream or (FIX,)))
        diff = clone.git("diff", "--binary", "--full-index", "--no-renames", parent, commit)
        return [
            RunStarted(
                job=self.job,
                thread=thread,
                base_sha=base,
                base_branch=base_branch,
                source=facts.clone_url,
                model="m",
                sandbox="docker",
            ),
            ModelReply(thought="", calls=(ToolCall(id="1", action=DONE),), usage=ReplyUsage(model="m")),
            Checkpoint(patch=Patch(base_sha=base, diff=diff)),
            AgentStopped(reason="finished", detail="The agent finished."),
            VerificationCompleted(verdict=verdict(kind)),
        ]

    async def publish(
        self, events: Iterable[Event], *, is_validated: bool = True, **settings: Any
    ) -> Outcome:
        """Publishes the artifact and returns the outcome. `is_validated` False skips the checks of the log."""
        place = self.scenario.data / "patchwright-artifact"
        entries = number_entries(events)
        artifact.write_artifact(place, self.job.id, None, "", Secrets())
        lines = b"".join(entry.model_dump_json().encode() + b"\n" for entry in entries)
        (place / artifact.EVENTS_FILE).write_bytes(lines)
        data = self.scenario.data / f"publish-{is_validated}"
        made = Settings(data=data, github_server_url=self.scenario.fake_github.server_url, **settings)
        logs, secrets = FileLogStore(data / "runs"), Secrets()
        dependencies = build_publish_deps(made, secrets, logs)
        async with self.scenario.forge() as forge:
            masked = MaskingForge(forge, secrets.mask)
            if is_validated:
                return await PublishJob(masked, dependencies, logs, place, print).resolve(self.job)
            async with logs.open(JobId(self.job.id)) as log:
                log.replace_entries(Trajectory(entries).entries)
            return await resolve_job(self.job, dependencies, masked, null_reporter)
