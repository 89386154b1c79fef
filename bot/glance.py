"""A run at a glance: what a list of runs says of it, and what it is asked for in such a list."""

from datetime import UTC, datetime
from typing import Literal

from bot.jobs import Failed, Record, Result
from bot.observe.faults import Fault
from bot.redis.ledger import PullOutcome
from resolver.domain import Delivered, Job, RunId
from resolver.events import Trajectory
from resolver.summary import clip
from runtime.frozen import Frozen

State = Literal[
    "waiting", "working", "delivered", "commented", "asked", "refused", "failed", "cancelled", "stopped"
]
"""stopped: its log ends without an outcome; it can be resumed."""
MOST_TITLE = 200  # characters


class Glance(Frozen):
    """A run in a line."""

    run: RunId
    state: State
    fault: Fault | None = None
    """Whose it is that it failed. None: it has not, or that is not known."""
    repository: str = ""
    number: int = 0
    title: str = ""
    by: str = ""
    """Who asked for it; "": the operator."""
    verdict: str = ""
    """"": there is none."""
    usd: float = 0.0
    """Known dollars."""
    priced: bool = True
    """False: some price is not known."""
    tokens: int = 0
    seconds: float = 0.0
    """Of work."""
    steps: int = 0
    began: float
    """Seconds since 1970."""
    pull: int = 0
    """Number of the pull request that it opened; 0: none."""
    url: str = ""
    """Of what came of it."""
    fate: PullOutcome | None = None
    """What became of that pull request; None: it is open, or there is none."""

    def after(self, result: Result) -> "Glance":
        """When its job has come to this; what the machine failed is no verdict's doing."""
        if result.kind == "answered":
            return self
        fault = result.fault if isinstance(result, Failed) else None
        changed: dict[str, object] = {"state": result.kind, "fault": fault}
        if (verdict := getattr(result, "verdict", None)) is not None:
            changed["verdict"] = verdict.kind
        if url := getattr(result, "url", None):
            changed["url"] = url
        if isinstance(result, Delivered):
            changed["pull"] = result.number
        return self.model_copy(update=changed)

    def with_fate(self, fate: str) -> "Glance":
        """When this is what has become of its pull request."""
        return self.model_copy(update={"fate": fate})


def of_job(job: Job, began: datetime, state: State = "waiting") -> Glance:
    """A job of which there is no log."""
    by = job.requester.login if job.requester else ""
    return Glance(
        run=job.id, state=state, repository=str(job.repo), number=job.number, by=by, began=began.timestamp()
    )


def of_record(record: Record) -> Glance:
    """A job as the queue knows it."""
    asked = record.asked or datetime.now(UTC)
    glance = of_job(record.job, asked, "working" if record.state == "running" else "waiting")
    return glance.after(record.result) if record.result else glance


def of_log(job: Job, trajectory: Trajectory, *, working: bool) -> Glance:
    """A job as its run's log tells it."""
    entries = trajectory.entries
    base = of_job(job, entries[0].at if entries else datetime.now(UTC), "working" if working else "stopped")
    spent, verdict, started = trajectory.spent(), trajectory.verdict, trajectory.started
    glance = base.model_copy(
        update={
            "title": clip(started.thread.title, MOST_TITLE) if started else "",
            "verdict": verdict.kind if verdict else "",
            "usd": float(spent.usd),
            "priced": not spent.unpriced,
            "tokens": spent.tokens,
            "seconds": round(spent.seconds, 1),
            "steps": spent.steps,
        }
    )
    return glance.after(trajectory.settled.outcome) if trajectory.settled else glance
