"""The list of runs: what is wanted of it, what of it somebody may see, and what it comes to."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from pydantic import ValidationError

from bot.glance import Glance, State, of_record
from bot.observe.faults import FOREIGN
from bot.page.gate import Gate
from bot.redis.ledger import name_of_pull
from bot.redis.queue import ArqQueue
from bot.redis.runs import Runs
from bot.redis.sessions import Session
from resolver.domain import VerdictKind
from runtime.frozen import Frozen

A_PAGE = 50  # runs
MOST_FIELDS = 20  # of a query; the form has five
MOST_TEXT = 200  # characters of a field

STATES: tuple[str, ...] = get_args(State)
VERDICTS: tuple[str, ...] = get_args(VerdictKind)
ENDED = frozenset({"delivered", "commented", "asked", "refused", "failed", "cancelled"})


class Unclear(Exception):
    """What is wanted makes no sense."""


class Wanted(Frozen):
    """Which runs are wanted; "": any."""

    state: State | Literal[""] = ""
    repository: str = ""
    verdict: VerdictKind | Literal[""] = ""
    text: str = ""
    page: int = 1

    def takes(self, run: Glance) -> bool:
        return (
            (not self.state or run.state == self.state)
            and (not self.verdict or run.verdict == self.verdict)
            and (not self.repository or run.repository.lower() == self.repository.lower())
            and (not self.text or _says(run, self.text.lower()))
        )

    @property
    def query(self) -> dict[str, str]:
        """As a form would send it, without the page."""
        named = {name: getattr(self, name) for name in ("state", "repository", "verdict", "text")}
        return {name: value for name, value in named.items() if value}


def wanted(query: Iterable[tuple[str, str]]) -> Wanted:
    """What a query asks for; fields that no form of ours has are passed over. Raises Unclear."""
    given = list(query)
    if len(given) > MOST_FIELDS or any(len(value) > MOST_TEXT for _, value in given):
        raise Unclear
    known = {name: value.strip() for name, value in given if name in Wanted.model_fields}
    page = known.pop("page", "") or "1"
    if not (page.isascii() and page.isdecimal() and 1 <= int(page) <= 10_000):
        raise Unclear
    try:
        return Wanted.model_validate({**known, "page": int(page)})
    except ValidationError as exc:
        raise Unclear from exc


def _says(run: Glance, text: str) -> bool:
    return any(
        text in said.lower() for said in (run.title, f"{run.repository}#{run.number}", run.by, run.run)
    )


@dataclass
class Outcomes:
    """What many runs come to."""

    runs: int = 0
    ended: int = 0
    failed: int = 0
    """By the machine, not by a model or a setting."""
    pulls: set[str] = field(default_factory=set)
    """Each once, however many runs have worked on it."""
    merged: int = 0
    closed: int = 0
    zero_touch: int = 0
    """Merged as we opened them: nobody else has committed to them."""
    usd: float = 0.0
    unpriced: int = 0
    """Runs of which some price is not known."""

    def add(self, run: Glance) -> None:
        self.runs += 1
        self.ended += run.state in ENDED
        self.failed += run.state == "failed" and run.fault not in FOREIGN
        self.usd += run.usd
        self.unpriced += not run.priced
        if run.pull and (name := name_of_pull(run.repository, run.pull)) not in self.pulls:
            self.pulls.add(name)
            self.merged += run.fate in ("merged", "untouched")
            self.closed += run.fate == "closed"
            self.zero_touch += run.fate == "untouched"

    @property
    def usd_per_merged(self) -> float | None:
        """Of all that was spent. None: nothing is merged yet."""
        return self.usd / self.merged if self.merged else None

    @property
    def success(self) -> float | None:
        """Share of the ended runs that no machine has failed. None: none has ended."""
        return 1 - self.failed / self.ended if self.ended else None


@dataclass(frozen=True)
class Overview:
    """A page of the list."""

    wanted: Wanted
    shown: tuple[Glance, ...]
    outcomes: Outcomes
    repositories: tuple[str, ...]
    """That somebody may choose from."""
    pages: int
    left: int
    """Repositories of which it is not known yet whether they may be seen: asked about with the next view."""


async def newest(runs: Runs, queue: ArqQueue) -> list[Glance]:
    """All runs, those that still wait for a worker first. Raises QueueDown."""
    listed = await runs.newest()
    known = {run.run for run in listed}
    waiting = [of_record(one) for one in await queue.everywhere() if one.job.id not in known]
    return [*sorted(waiting, key=lambda run: -run.began), *listed]


async def overview(runs: Runs, queue: ArqQueue, gate: Gate, session: Session, wanted: Wanted) -> Overview:
    """What this person sees. Raises QueueDown, Unauthorized and ForgeError."""
    everything = await newest(runs, queue)
    names = dict.fromkeys(run.repository for run in everything)
    readable = await gate.readable(session, names)
    return await asyncio.to_thread(_chosen, everything, readable, gate.left(session, names), wanted)


def _chosen(everything: Sequence[Glance], readable: Collection[str], left: int, wanted: Wanted) -> Overview:
    outcomes, found = Outcomes(), list[Glance]()
    for run in everything:
        if run.repository in readable and wanted.takes(run):
            outcomes.add(run)
            found.append(run)
    first = (wanted.page - 1) * A_PAGE
    return Overview(
        wanted,
        tuple(found[first : first + A_PAGE]),
        outcomes,
        tuple(sorted({run.repository for run in everything} & set(readable), key=str.lower)),
        max(1, -(-len(found) // A_PAGE)),
        left,
    )
