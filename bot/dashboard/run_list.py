"""The list of runs: filters, access control, pagination and statistics."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from pydantic import ValidationError

from patchwright.bot.dashboard.access_control import AccessControl
from patchwright.bot.faults import EXTERNAL_FAULTS
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.counters import pull_key
from patchwright.bot.redis.sessions import Session
from patchwright.bot.redis.shared_run_index import SharedRunIndex
from patchwright.bot.run_summary import RunState, RunSummary, summarize_record
from patchwright.resolver.domain import VerdictKind
from patchwright.runtime.frozen_model import FrozenModel

PAGE_SIZE = 50  # number of runs on one page of the list
MAX_QUERY_FIELDS = 20  # maximum number of query parameters; the form has five
MAX_FIELD_LENGTH = 200  # characters

STATES: tuple[str, ...] = get_args(RunState)
VERDICTS: tuple[str, ...] = get_args(VerdictKind)
FINISHED_STATES = frozenset({"published", "reported", "input_required", "rejected", "failed", "stopped"})


class InvalidQuery(Exception):
    """Raised if a filter has an invalid field or too many fields."""


class RunFilter(FrozenModel):
    """A filter for the list of runs. A field with the value "" matches every run."""

    state: RunState | Literal[""] = ""
    repository: str = ""
    verdict: VerdictKind | Literal[""] = ""
    text: str = ""
    page: int = 1

    def matches(self, run: RunSummary) -> bool:
        return (
            # The row of the earlier run also shows the work of a job that resumed it.
            (run.state == self.state if self.state else run.state != "resumed")
            and (not self.verdict or run.verdict == self.verdict)
            and (not self.repository or run.repository.lower() == self.repository.lower())
            and (not self.text or _matches_text(run, self.text.lower()))
        )

    @property
    def query(self) -> dict[str, str]:
        """Returns the filter as query parameters, without the page number."""
        named = {name: getattr(self, name) for name in ("state", "repository", "verdict", "text")}
        return {name: value for name, value in named.items() if value}


def parse_filter(query: Iterable[tuple[str, str]]) -> RunFilter:
    """Parses the filter from query parameters. Ignores unknown parameters. Raises InvalidQuery."""
    given = list(query)
    if len(given) > MAX_QUERY_FIELDS or any(len(value) > MAX_FIELD_LENGTH for _, value in given):
        raise InvalidQuery
    known = {name: value.strip() for name, value in given if name in RunFilter.model_fields}
    page = known.pop("page", "") or "1"
    if not (page.isascii() and page.isdecimal() and 1 <= int(page) <= 10_000):
        raise InvalidQuery
    try:
        return RunFilter.model_validate({**known, "page": int(page)})
    except ValidationError as exc:
        raise InvalidQuery from exc


def _matches_text(run: RunSummary, text: str) -> bool:
    return any(
        text in value.lower()
        for value in (run.title, f"{run.repository}#{run.number}", run.requester, run.run)
    )


@dataclass
class RunStatistics:
    """Totals over a list of runs."""

    runs: int = 0
    finished: int = 0
    failed: int = 0
    """Number of failed runs. Runs that failed because of a model or a setting do not count."""
    pulls: set[str] = field(default_factory=set)
    """The pull requests of the runs, as Redis keys. A pull request counts once, even if several runs worked
    on it.
    """
    merged: int = 0
    closed: int = 0
    zero_touch: int = 0
    """Number of merged pull requests that contain only commits by Patchwright."""
    usd: float = 0.0
    unpriced: int = 0
    """Number of runs whose complete cost is unknown, because the price of a model is unknown."""

    def add(self, run: RunSummary) -> None:
        self.runs += 1
        self.finished += run.state in FINISHED_STATES
        self.failed += run.state == "failed" and run.fault not in EXTERNAL_FAULTS
        self.usd += run.cost_usd
        self.unpriced += not run.is_cost_known
        if run.pull_request and (name := pull_key(run.repository, run.pull_request)) not in self.pulls:
            self.pulls.add(name)
            self.merged += run.pull_outcome in ("merged", "untouched")
            self.closed += run.pull_outcome == "closed"
            self.zero_touch += run.pull_outcome == "untouched"

    @property
    def usd_per_merged(self) -> float | None:
        """Total cost divided by the number of merged pull requests; None if no pull request has been merged."""
        return self.usd / self.merged if self.merged else None

    @property
    def success_rate(self) -> float | None:
        """Share of the finished runs that did not fail, from 0 to 1; None if no run has finished. Runs that
        failed because of a model or a setting do not count as failed here.
        """
        return 1 - self.failed / self.finished if self.finished else None


@dataclass(frozen=True)
class RunListPage:
    """One page of the list of runs."""

    run_filter: RunFilter
    runs: tuple[RunSummary, ...]
    statistics: RunStatistics
    repositories: tuple[str, ...]
    """The repositories that the filter offers for selection."""
    page_count: int
    unchecked_repositories: int
    """Number of repositories whose access level is not known yet. The next page view checks more of them."""
    model_run: RunSummary | None
    """The newest run of all repositories that got a reply of the model, or failed at its provider; None if there is
    no such run.
    """


async def list_runs(runs: SharedRunIndex, queue: ArqQueue) -> list[RunSummary]:
    """Returns all runs, queued jobs first. Raises QueueDown."""
    listed = await runs.list_newest()
    active = {record.job.id: record for record in await queue.all_active_jobs()}
    known = [
        run.with_record(active[working]) if (working := run.working_job) in active else run for run in listed
    ]
    names = {run.run for run in listed}
    waiting = [summarize_record(record) for job, record in active.items() if job not in names]
    return [*sorted(waiting, key=lambda run: -run.started_at), *known]


async def load_run_list(
    runs: SharedRunIndex,
    queue: ArqQueue,
    access_control: AccessControl,
    session: Session,
    run_filter: RunFilter,
) -> RunListPage:
    """Returns the runs that this person may see. Raises QueueDown, Unauthorized and ForgeError."""
    all_runs = await list_runs(runs, queue)
    repositories = dict.fromkeys(run.repository for run in all_runs)
    readable = await access_control.filter_readable(session, repositories)
    return await asyncio.to_thread(
        _build_page, all_runs, readable, access_control.count_unchecked(session, repositories), run_filter
    )


def _build_page(
    runs: Sequence[RunSummary], readable: Collection[str], unchecked: int, run_filter: RunFilter
) -> RunListPage:
    statistics, found = RunStatistics(), list[RunSummary]()
    for run in runs:
        if run.repository in readable and run_filter.matches(run):
            statistics.add(run)
            found.append(run)
    first = (run_filter.page - 1) * PAGE_SIZE
    return RunListPage(
        run_filter,
        tuple(found[first : first + PAGE_SIZE]),
        statistics,
        tuple(sorted({run.repository for run in runs} & set(readable), key=str.lower)),
        max(1, -(-len(found) // PAGE_SIZE)),
        unchecked,
        next((run for run in runs if run.fault == "provider" or run.steps), None),
    )
