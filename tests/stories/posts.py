"""A parcel as the job that works leaves it, to be forged in one place at a time."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bot.action.parts import Publishing, without_machine
from bot.progress import silent
from bot.webhooks.triggers import Triggers
from demo.world import Pull
from demo.world.bare import Bare
from resolver.delivery import parcel
from resolver.domain import Job, JobId, Outcome, Patch, VerdictKind
from resolver.events import (
    Call,
    Checkpointed,
    Decided,
    Ended,
    Entry,
    Event,
    Judged,
    Started,
    Trajectory,
    Usage,
)
from resolver.forge import Masked
from resolver.log import FileLogs
from resolver.resolve import resolve
from resolver.secrets import Secrets
from resolver.settings.settings import Settings
from tests.contracts.forges import change
from tests.stories.parcels import CALC, DONE, FIX, Depot, verdict


def numbered(events: Iterable[Event]) -> tuple[Entry, ...]:
    return tuple(Entry(seq=seq, at=datetime.now(UTC), event=event) for seq, event in enumerate(events))


@dataclass
class Post:
    """Between the two jobs."""

    depot: Depot
    pull: Pull | None = None
    """What the job is on; None: the issue."""

    @property
    def job(self) -> Job:
        if self.pull is None:
            return self.depot.job
        return self.depot.job.model_copy(update={"number": self.pull.number, "command": "mend it"})

    async def events(self, *stream: bytes, kind: VerdictKind = "fixed", base: str = "") -> list[Event]:
        """What an honest job has in its log: Started, Decided, Checkpointed, Ended, Judged."""
        async with self.depot.forge() as forge:
            facts, thread = await forge.facts(CALC), await forge.thread(self.job)
        repo, base_branch = self.depot.repo, "main"
        base = base or (self.pull.head.sha if self.pull else repo.bare.sha("main") or "")
        if self.pull is not None:
            thread = thread.model_copy(update={"base_sha": repo.bare.sha("main")})
        shutil.copytree(repo.bare.path, self.depot.data / f"clone-{base}", dirs_exist_ok=True)
        clone = Bare(self.depot.data / f"clone-{base}")
        clone.git("update-ref", "refs/heads/fix", base)
        commit, parent = change(clone, *(stream or (FIX,)))
        diff = clone.git("diff", "--binary", "--full-index", "--no-renames", parent, commit)
        return [
            Started(
                job=self.job,
                thread=thread,
                base=base,
                base_branch=base_branch,
                source=facts.clone_url,
                model="m",
                sandbox="docker",
            ),
            Decided(thought="", calls=(Call(id="1", action=DONE),), usage=Usage(model="m")),
            Checkpointed(patch=Patch(base=base, diff=diff)),
            Ended(reason="finished", detail="The agent finished."),
            Judged(verdict=verdict(kind)),
        ]

    async def publish(self, events: Iterable[Event], *, checked: bool = True, **settings: Any) -> Outcome:
        """What comes of it; not `checked`: by a job that takes a log for what it says."""
        place = self.depot.data / "parcel"
        entries = numbered(events)
        parcel.leave(place, self.job.id, None, "", Secrets())
        lines = b"".join(entry.model_dump_json().encode() + b"\n" for entry in entries)
        (place / parcel.EVENTS).write_bytes(lines)
        data = self.depot.data / f"publish-{checked}"
        made = Settings(data=data, github_server_url=self.depot.world.server_url, **settings)
        logs, secrets = FileLogs(data / "runs"), Secrets()
        kit = without_machine(made, secrets, logs)
        async with self.depot.forge() as forge:
            masked = Masked(forge, secrets.mask)
            if checked:
                return await Publishing(masked, Triggers(), kit, logs, place).work(self.job)
            async with logs.open(JobId(self.job.id)) as log:
                log.hold(Trajectory(entries).entries)
            return await resolve(self.job, kit, masked, silent)
