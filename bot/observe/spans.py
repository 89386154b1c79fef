"""A run as spans of time, read off its log: what took how long, and no word of what was said in it.

The log knows when something was done. Where it does not know when that began, it is taken from how long it took.
Names of attributes: opentelemetry.io/docs/specs/semconv/gen-ai
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field

from resolver.circumstances import Prepared
from resolver.cost import named
from resolver.domain import RunId, SuiteRun, Verdict
from resolver.errors import LogError
from resolver.events import (
    Call,
    Consulted,
    Decided,
    Delegated,
    Ended,
    Entry,
    Judged,
    Observed,
    Settled,
    Started,
    Told,
    Trajectory,
    Usage,
)
from runtime.frozen import Frozen
from runtime.observations import Failed

Attributes = Mapping[str, str | int | float | bool]
Read = Callable[[RunId], Trajectory]

MOST_NAME = 100  # characters of a model's or a tool's name


class Span(Frozen):
    """Something that took a while."""

    id: str
    """Unique in its trace, and the same however often the log is read."""
    parent: str | None
    """None: it is the whole."""
    name: str
    start: datetime
    end: datetime
    attributes: Attributes = Field(default_factory=dict)
    kind: Literal["internal", "client"] = "internal"
    failed: str = ""
    """What kind of failure it ended with; empty: none."""


def spans_of(run: RunId, read: Read, began: datetime | None = None, failed: str = "") -> tuple[Span, ...]:
    """A job's run, and those that it asked for; the whole comes first. Nothing where there is no log. Blocks.

    `began`: when the job was begun, if that is known: its clone is before the first line of its log. `failed`: what
    kind of failure ended it.
    """
    return tuple(_spans(run, None, read, began, failed, {run}))


def _spans(
    run: RunId, parent: str | None, read: Read, began: datetime | None, failed: str, seen: set[RunId]
) -> Iterator[Span]:
    try:
        trajectory = read(run)
    except LogError:
        return
    if not trajectory.entries:
        return
    first, last = trajectory.entries[0].at, trajectory.entries[-1].at
    began = min(began, first) if began else first
    root = Span(
        id=run,
        parent=parent,
        name=f"invoke_agent {trajectory.assigned.role if trajectory.assigned else 'patchwright'}",
        start=began,
        end=last,
        attributes={"gen_ai.operation.name": "invoke_agent", "patchwright.run": run, **_about(trajectory)},
        failed=failed,
    )
    yield root
    story = _Story(run, began)
    for entry in trajectory.entries:
        yield from story.after(entry)
    yield from story.step_taken()
    for event in trajectory:
        if isinstance(event, Delegated) and event.run not in seen:
            seen.add(event.run)
            yield from _spans(event.run, f"{run}/{event.call}", read, None, "", seen)


class _Story:
    """Goes through a log, and knows what is under way."""

    def __init__(self, run: RunId, began: datetime) -> None:
        self._run = run
        self._since = began
        """When the last thing ended."""
        self._worked = began
        """When the agent's work ended, or its proof."""
        self._ready = began
        """When tests could be begun."""
        self._step: Span | None = None
        self._calls: dict[str, Call] = {}

    def after(self, entry: Entry) -> Iterator[Span]:
        event, at = entry.event, entry.at
        match event:
            case Started():
                self._ready = at
                yield self._span("clone", entry, self._since)
            case Prepared(seconds=seconds, warm=warm, problem=problem):
                self._ready = at
                start = _before(at, seconds, self._since)
                yield self._span(
                    "set up", entry, start, {"patchwright.setup.warm": warm}, "failed" if problem else ""
                )
            case Decided(usage=usage, calls=calls):
                yield from self.step_taken()
                start = _before(at, usage.seconds, self._since)
                number = f"{self._run}/{entry.seq}/step"
                self._step = Span(id=number, parent=self._run, name="agent step", start=start, end=at)
                self._calls = {call.id: call for call in calls}
                yield self._asked(entry, usage, number, start)
            case Consulted(usage=usage, purpose=purpose):
                start = _before(at, usage.seconds, self._since)
                yield self._asked(entry, usage, self._run, start, "no reply" if purpose == "failed" else "")
            case Observed(call=id, observation=observation) if (call := self._calls.get(id)) and self._step:
                tool = call.action.kind[:MOST_NAME]
                facts = {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": tool,
                    "gen_ai.tool.call.id": id,
                }
                why = observation.reason if isinstance(observation, Failed) else ""
                step = self._step
                self._step = step.model_copy(update={"end": max(at, step.end)})
                yield Span(
                    id=f"{self._run}/{id}",
                    parent=step.id,
                    name=f"execute_tool {tool}",
                    start=min(max(self._since, step.start), at),
                    end=at,
                    attributes=facts,
                    failed=why,
                )
            case Ended():
                yield from self.step_taken()
                self._worked = at
            case Judged(verdict=verdict):
                yield from self._proof(entry, verdict)
                self._worked = at
            case Settled(outcome=outcome):
                yield from self.step_taken()
                yield self._span("publish", entry, self._worked, {"patchwright.outcome": outcome.kind})
            case Told(source="resume"):
                yield from self.step_taken()
                self._worked = at
            case _:
                pass
        self._since = at

    def step_taken(self) -> Iterator[Span]:
        if self._step is not None:
            yield self._step
        self._step = None

    def _proof(self, entry: Entry, verdict: Verdict) -> Iterator[Span]:
        proof = self._span("prove", entry, self._worked, {"patchwright.verdict": verdict.kind})
        yield proof
        if before := verdict.before:
            end = min(self._ready + timedelta(seconds=before.seconds), entry.at)
            yield _tests("before", before, self._ready, end, self._run, entry)
        if after := verdict.after:
            start = _before(entry.at, after.seconds, self._worked)
            yield _tests("after", after, start, entry.at, proof.id, entry)

    def _asked(self, entry: Entry, usage: Usage, parent: str, start: datetime, failed: str = "") -> Span:
        model = usage.model[:MOST_NAME]
        provider, _, _ = model.rpartition("/")
        facts: dict[str, str | int | float | bool] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        }
        if provider:
            facts["gen_ai.provider.name"] = provider.partition("/")[0]
        facts |= named("patchwright.usd", usage.usd)
        return self._span(f"chat {model}", entry, start, facts, failed, parent, "client")

    def _span(
        self,
        name: str,
        entry: Entry,
        start: datetime,
        attributes: Attributes | None = None,
        failed: str = "",
        parent: str | None = None,
        kind: Literal["internal", "client"] = "internal",
    ) -> Span:
        return Span(
            id=f"{self._run}/{entry.seq}",
            parent=parent or self._run,
            name=name,
            start=min(start, entry.at),
            end=entry.at,
            attributes=attributes or {},
            kind=kind,
            failed=failed,
        )


def _tests(which: str, seen: SuiteRun, start: datetime, end: datetime, parent: str, entry: Entry) -> Span:
    facts = {"patchwright.tests.passed": seen.passed, "patchwright.tests.failed": seen.failed}
    return Span(
        id=f"{parent}/{entry.seq}/{which}",
        parent=parent,
        name=f"tests {which}",
        start=start,
        end=end,
        attributes=facts,
        failed="no test run" if seen.problem else "",
    )


def _before(at: datetime, seconds: float, earliest: datetime) -> datetime:
    return min(at, max(earliest, at - timedelta(seconds=max(0.0, seconds))))


def _about(trajectory: Trajectory) -> Attributes:
    spent = trajectory.spent()
    facts: dict[str, str | int | float | bool] = {
        "gen_ai.usage.input_tokens": spent.prompt_tokens,
        "gen_ai.usage.output_tokens": spent.completion_tokens,
        "patchwright.steps": spent.steps,
        **named("patchwright.usd", spent.cost),
    }
    if started := trajectory.started:
        facts["vcs.repository.name"] = str(started.job.repo)
        facts["patchwright.number"] = started.thread.number
    if settled := trajectory.settled:
        facts["patchwright.outcome"] = settled.outcome.kind
    return facts
