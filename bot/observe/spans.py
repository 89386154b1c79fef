"""Builds trace spans from a run's log. A span contains the duration of an operation, but no content of the run.

The log records when each step ended. If the log does not record when a step started, the start is computed from
the duration. Names of attributes: opentelemetry.io/docs/specs/semconv/gen-ai
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field

from patchwright.resolver.cost import cost_fields
from patchwright.resolver.domain import RunId, TestRun, Verdict
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import (
    AgentStopped,
    AuxiliaryModelCall,
    Entry,
    JobCompleted,
    Message,
    ModelReply,
    ReplyUsage,
    RunStarted,
    ToolCall,
    ToolResult,
    Trajectory,
    VerificationCompleted,
)
from patchwright.resolver.run_events import EnvironmentPrepared, SubagentSpawned
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ActionFailure

Attributes = Mapping[str, str | int | float | bool]
ReadLog = Callable[[RunId], Trajectory]

MAX_NAME_LENGTH = 100  # characters of a model or tool name


class Span(FrozenModel):
    """One timed operation of a run."""

    id: str
    """The span's id, which is unique in its trace. The same log always leads to the same ids."""
    parent: str | None
    """The id of the parent span; None for the root span."""
    name: str
    start: datetime
    end: datetime
    attributes: Attributes = Field(default_factory=dict)
    kind: Literal["internal", "client"] = "internal"
    failure: str = ""
    """The kind of failure that ended the operation; "" if the operation succeeded."""


def build_spans(
    run: RunId, read: ReadLog, started_at: datetime | None = None, failure: str = ""
) -> tuple[Span, ...]:
    """Returns the spans of a job's run and of its subagents, starting with the root span. Returns () if there
    is no log. Blocks.

    `started_at` is the time at which the job started, or None if unknown. The job starts before the first line
    of the log is written, because the repository is cloned first. `failure` is the kind of failure that ended
    the job.
    """
    return tuple(_build_spans(run, None, read, started_at, failure, {run}))


def _build_spans(
    run: RunId,
    parent: str | None,
    read: ReadLog,
    started_at: datetime | None,
    failure: str,
    seen_runs: set[RunId],
) -> Iterator[Span]:
    try:
        trajectory = read(run)
    except LogError:
        return
    if not trajectory.entries:
        return
    first, last = trajectory.entries[0].timestamp, trajectory.entries[-1].timestamp
    started_at = min(started_at, first) if started_at else first
    root = Span(
        id=run,
        parent=parent,
        name=f"invoke_agent {trajectory.subagent_started.role if trajectory.subagent_started else 'patchwright'}",
        start=started_at,
        end=last,
        attributes={
            "gen_ai.operation.name": "invoke_agent",
            "patchwright.run": run,
            **_run_attributes(trajectory),
        },
        failure=failure,
    )
    yield root
    builder = _SpanBuilder(run, started_at)
    for entry in trajectory.entries:
        yield from builder.add_entry(entry)
    yield from builder.finish_step()
    for event in trajectory:
        if isinstance(event, SubagentSpawned) and event.run not in seen_runs:
            seen_runs.add(event.run)
            yield from _build_spans(event.run, f"{run}/{event.call_id}", read, None, "", seen_runs)


class _SpanBuilder:
    """Builds the spans of one log, entry by entry."""

    def __init__(self, run: RunId, started_at: datetime) -> None:
        self._run = run
        self._last_event_at = started_at
        """The time when the previous event ended."""
        self._work_ended_at = started_at
        """The time of the latest of these events: the agent stopped, the patch was verified, or the run was
        resumed.
        """
        self._tests_ready_at = started_at
        """The time when the clone and the setup were complete, so that the tests could run."""
        self._open_step: Span | None = None
        self._calls: dict[str, ToolCall] = {}

    def add_entry(self, entry: Entry) -> Iterator[Span]:
        event, time = entry.event, entry.timestamp
        match event:
            case RunStarted():
                self._tests_ready_at = time
                yield self._make_span("clone", entry, self._last_event_at)
            case EnvironmentPrepared(seconds=seconds, was_cached=was_cached, problem=problem):
                self._tests_ready_at = time
                start = _start_time(time, seconds, self._last_event_at)
                yield self._make_span(
                    "set up",
                    entry,
                    start,
                    {"patchwright.setup.cached": was_cached},
                    "failed" if problem else "",
                )
            case ModelReply(usage=usage, calls=calls):
                yield from self.finish_step()
                start = _start_time(time, usage.seconds, self._last_event_at)
                step_id = f"{self._run}/{entry.seq}/step"
                self._open_step = Span(id=step_id, parent=self._run, name="agent step", start=start, end=time)
                self._calls = {call.id: call for call in calls}
                yield self._model_call_span(entry, usage, step_id, start)
            case AuxiliaryModelCall(usage=usage, purpose=purpose):
                start = _start_time(time, usage.seconds, self._last_event_at)
                yield self._model_call_span(
                    entry, usage, self._run, start, "no reply" if purpose == "failed" else ""
                )
            case ToolResult():
                yield from self._tool_spans(event, time)
            case AgentStopped():
                yield from self.finish_step()
                self._work_ended_at = time
            case VerificationCompleted(verdict=verdict):
                yield from self._verification_spans(entry, verdict)
                self._work_ended_at = time
            case JobCompleted(outcome=outcome):
                yield from self.finish_step()
                yield self._make_span(
                    "publish", entry, self._work_ended_at, {"patchwright.outcome": outcome.kind}
                )
            case Message(source="resume"):
                yield from self.finish_step()
                self._work_ended_at = time
            case _:
                pass
        self._last_event_at = time

    def finish_step(self) -> Iterator[Span]:
        if self._open_step is not None:
            yield self._open_step
        self._open_step = None

    def _tool_spans(self, result: ToolResult, time: datetime) -> Iterator[Span]:
        call, step = self._calls.get(result.call_id), self._open_step
        if call is None or step is None:
            return
        tool = call.action.kind[:MAX_NAME_LENGTH]
        self._open_step = step.model_copy(update={"end": max(time, step.end)})
        yield Span(
            id=f"{self._run}/{call.id}",
            parent=step.id,
            name=f"execute_tool {tool}",
            start=min(max(self._last_event_at, step.start), time),
            end=time,
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": tool,
                "gen_ai.tool.call.id": call.id,
            },
            failure=result.observation.reason if isinstance(result.observation, ActionFailure) else "",
        )

    def _verification_spans(self, entry: Entry, verdict: Verdict) -> Iterator[Span]:
        verification = self._make_span(
            "verify", entry, self._work_ended_at, {"patchwright.verdict": verdict.kind}
        )
        yield verification
        if before := verdict.before:
            end = min(self._tests_ready_at + timedelta(seconds=before.seconds), entry.timestamp)
            yield _make_test_span("before", before, self._tests_ready_at, end, self._run, entry)
        if after := verdict.after:
            start = _start_time(entry.timestamp, after.seconds, self._work_ended_at)
            yield _make_test_span("after", after, start, entry.timestamp, verification.id, entry)

    def _model_call_span(
        self, entry: Entry, usage: ReplyUsage, parent: str, start: datetime, failure: str = ""
    ) -> Span:
        model = usage.model[:MAX_NAME_LENGTH]
        provider, _, _ = model.rpartition("/")
        attributes: dict[str, str | int | float | bool] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        }
        if provider:
            attributes["gen_ai.provider.name"] = provider.partition("/")[0]
        attributes |= cost_fields("patchwright.usd", usage.usd)
        span = self._make_span(f"chat {model}", entry, start, attributes, failure)
        return span.model_copy(update={"parent": parent, "kind": "client"})

    def _make_span(
        self,
        name: str,
        entry: Entry,
        start: datetime,
        attributes: Attributes | None = None,
        failure: str = "",
    ) -> Span:
        return Span(
            id=f"{self._run}/{entry.seq}",
            parent=self._run,
            name=name,
            start=min(start, entry.timestamp),
            end=entry.timestamp,
            attributes=attributes or {},
            failure=failure,
        )


def _make_test_span(
    phase: str, test_run: TestRun, start: datetime, end: datetime, parent: str, entry: Entry
) -> Span:
    attributes = {
        "patchwright.tests.passed": test_run.passed_count,
        "patchwright.tests.failed": test_run.failed_count,
    }
    return Span(
        id=f"{parent}/{entry.seq}/{phase}",
        parent=parent,
        name=f"tests {phase}",
        start=start,
        end=end,
        attributes=attributes,
        failure="no test run" if test_run.problem else "",
    )


def _start_time(end: datetime, seconds: float, earliest: datetime) -> datetime:
    return min(end, max(earliest, end - timedelta(seconds=max(0.0, seconds))))


def _run_attributes(trajectory: Trajectory) -> Attributes:
    usage = trajectory.usage()
    attributes: dict[str, str | int | float | bool] = {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "patchwright.steps": usage.steps,
        **cost_fields("patchwright.usd", usage.cost),
    }
    if run_started := trajectory.run_started:
        attributes["vcs.repository.name"] = str(run_started.job.repo)
        attributes["patchwright.number"] = run_started.thread.number
    if job_completed := trajectory.job_completed:
        attributes["patchwright.outcome"] = job_completed.outcome.kind
    return attributes
