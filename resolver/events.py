"""The events of a run. A run is its append-only log of events, and everything else is computed from this log.

Order and time are stored in the log entries, not in the events. Events with the same content therefore compare equal.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import cached_property, reduce
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from patchwright.resolver.actions import Action, AnyObservation, ExternalToolResult, SubagentResult
from patchwright.resolver.command_parser import RunOptions
from patchwright.resolver.confirmation import CallDecision, ConfirmationRequest
from patchwright.resolver.cost import Cost
from patchwright.resolver.domain import Job, JobId, Outcome, Patch, StopReason, Thread, Usage, Verdict
from patchwright.resolver.run_events import (
    BaselinePending,
    Condensation,
    EnvironmentPrepared,
    NetworkAccess,
    Paused,
    RunConfigured,
    RunResumed,
    SubagentSpawned,
    SubagentStarted,
)
from patchwright.runtime.egress_policy import ConnectionSummary, NetworkMode, merge_summaries
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ImageData


class ReplyUsage(FrozenModel):
    """The tokens, cost and time of one model reply."""

    model: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    """Number of tokens for reasoning. `completion_tokens` includes them."""
    usd: Cost = None
    """Cost of this call and of the failed calls before it, as far as the prices are known."""
    seconds: float = 0.0


class ToolCall(FrozenModel):
    id: str
    """The provider's id of the call, which is unique within a run."""
    action: Action


class RunStarted(FrozenModel):
    """The run started. It works on this thread and this base commit, even if somebody edits the thread later."""

    kind: Literal["run_started"] = "run_started"
    job: Job
    thread: Thread
    base_sha: str
    """Id of the commit that the work starts from."""
    uncommitted_changes: Patch | None = None
    """Uncommitted changes of a local work tree, which `base_sha` contains. None if there are no such changes."""
    base_branch: str
    source: str
    """Clone URL of the repository, or its path on the operator's machine."""
    model: str
    """Name of the agent's model."""
    agent: str = "codeact"  # Name of the agent, which stays the same when the run continues.
    sandbox: str  # `docker` or `local`.
    network: NetworkMode = "none"
    """Network access of the agent's sandbox. Sandboxes that run tests have no network access."""


class SystemPrompt(FrozenModel):
    """The system prompt and the tools that the model gets."""

    kind: Literal["system_prompt"] = "system_prompt"
    text: str
    tools: tuple[dict[str, Any], ...]
    """JSON schemas in the format of OpenAI function tools."""


class Message(FrozenModel):
    """A message to the agent from a person or from Patchwright."""

    kind: Literal["message"] = "message"
    text: str
    source: Literal[
        "initial_prompt", "program", "comment", "resume", "nudge", "planning", "baseline", "verification"
    ]
    """Why the message was sent.
    - resume: the run continues after a stop. The time since the previous entry is not working time.
    - nudge: the run looks stuck.
    - planning: the model is reminded to review its progress and plan ahead.
    - baseline: the tests on the untouched code have ended.
    - verification: the patch was verified, and the work continues.
    """
    author: str = ""
    """Login of the person whose words the message brings: for the initial prompt, the author of the thread."""
    trigger_id: JobId | None = None
    """Id of the trigger that caused the message, so that it is delivered only once."""
    approves_plan: bool = False  # True if a person approves the plan that the run proposed.
    decision: CallDecision | None = None
    """Set if a person approves or rejects the call that the run waits for."""
    options: RunOptions = RunOptions()  # They apply from this message on.
    images: tuple[ImageData, ...] = ()
    """Images that are sent with the text to models with vision."""
    new_sandbox: bool = False  # The run continues in a new sandbox.


class ModelReply(FrozenModel):
    """One reply of the model, with all its parallel tool calls."""

    kind: Literal["model_reply"] = "model_reply"
    thought: str
    calls: tuple[ToolCall, ...]
    usage: ReplyUsage
    reasoning: tuple[dict[str, Any], ...] = ()
    """The provider's reasoning blocks, which are sent back without changes."""
    truncated: bool = False  # True if the reply reached the model's output limit.
    prompt_fingerprint: str = ""
    """Fingerprint of the prompt (`resolver/llm/prompt_fingerprint.py`). A replay rebuilds the prompt and compares the
    fingerprints.
    """


class ToolResult(FrozenModel):
    """The result of a tool call. Each call has exactly one result."""

    kind: Literal["tool_result"] = "tool_result"
    call_id: str
    observation: AnyObservation


class AuxiliaryModelCall(FrozenModel):
    """A model call that failed, or that is not part of the conversation, such as a review."""

    kind: Literal["auxiliary_model_call"] = "auxiliary_model_call"
    purpose: Literal["vision", "condense", "review", "commit", "failed"]
    usage: ReplyUsage
    text: str = ""  # The message of the commit as JSON, if that is the purpose and it is usable.


class Checkpoint(FrozenModel):
    """The work tree as a diff against the base. A new sandbox starts from the latest checkpoint."""

    kind: Literal["checkpoint"] = "checkpoint"
    patch: Patch


class AgentStopped(FrozenModel):
    """The agent stopped working. If it worked on an issue or a pull request, verification and publishing follow."""

    kind: Literal["agent_stopped"] = "agent_stopped"
    reason: StopReason
    detail: str
    """One sentence for people."""
    confirmation: ConfirmationRequest | None = None
    """The call that waits for approval; None if the agent stopped for another reason."""


class VerificationCompleted(FrozenModel):
    kind: Literal["verification_completed"] = "verification_completed"
    verdict: Verdict


class JobCompleted(FrozenModel):
    """The outcome of the job; the last event of a run that needs no further work."""

    kind: Literal["job_completed"] = "job_completed"
    outcome: Outcome


Event = Annotated[
    RunStarted
    | SubagentStarted
    | RunConfigured
    | EnvironmentPrepared
    | SystemPrompt
    | Message
    | BaselinePending
    | ModelReply
    | ToolResult
    | SubagentSpawned
    | AuxiliaryModelCall
    | Condensation
    | Checkpoint
    | AgentStopped
    | Paused
    | VerificationCompleted
    | NetworkAccess
    | RunResumed
    | JobCompleted,
    Field(discriminator="kind"),
]


class Entry(FrozenModel):
    """One line of the log."""

    seq: int
    timestamp: datetime
    """UTC."""
    event: Event


ENTRY_ADAPTER: TypeAdapter[Entry] = TypeAdapter(Entry)


class _RunTotals(NamedTuple):
    """Totals that every step needs. Each new entry updates them, because the whole log would take too long."""

    last_entry_at: datetime | None = None
    """Time of the last entry; None if no work is in progress."""
    seconds: float = 0.0
    usage: Usage = Usage()
    """The usage so far, except its time. `seconds` contains the time."""
    replies: tuple[ModelReply, ...] = ()
    checkpoint: Patch | None = None
    condensations: tuple[Condensation, ...] = ()

    @property
    def total_usage(self) -> Usage:
        return self.usage.model_copy(update={"seconds": self.seconds})

    def add(self, entry: Entry) -> "_RunTotals":
        _, seconds, spent, decisions, checkpoint, condensations = self
        match event := entry.event:
            case ModelReply(usage=usage):
                spent, decisions = spent.add(usage, steps=1), (*decisions, event)
            case AuxiliaryModelCall(usage=usage):
                spent = spent.add(usage)
            case ToolResult(observation=SubagentResult(usage=report)):
                spent = spent.add(report, steps=report.steps, unpriced=report.unpriced)
            case ToolResult(observation=ExternalToolResult(usd=usd)):
                spent = spent.add(Usage(usd=usd))
            case Checkpoint(patch=patch):
                checkpoint = patch
            case Condensation():
                condensations = (*condensations, event)
            case _:
                pass
        # Before these events, the run waited for a process or a person, or its result was being published. Each process
        # that works on the run begins with RunConfigured.
        idle = isinstance(event, JobCompleted | RunConfigured)
        idle = idle or (isinstance(event, Message) and (event.source == "resume" or bool(event.trigger_id)))
        if self.last_entry_at is not None and not idle:
            seconds += (entry.timestamp - self.last_entry_at).total_seconds()
        # After these events, no work is done until somebody resumes the run.
        at = None if isinstance(event, JobCompleted | Paused) else entry.timestamp
        return _RunTotals(at, seconds, spent, decisions, checkpoint, condensations)


def _is_resume(entry: Entry) -> bool:
    """Returns True if the entry is the message with which a person resumed the run."""
    return isinstance(event := entry.event, Message) and event.source == "resume" and bool(event.trigger_id)


class Trajectory:
    """The events of a run so far, and queries on these events. Read-only."""

    def __init__(self, entries: tuple[Entry, ...] = ()) -> None:
        self.entries = entries

    def __iter__(self) -> Iterator[Event]:
        return (entry.event for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def with_entry(self, entry: Entry) -> "Trajectory":
        """Returns this run with one more entry."""
        longer = Trajectory((*self.entries, entry))
        longer._totals = self._totals.add(entry)
        recent = _RunTotals() if self.entries and _is_resume(entry) else self._totals_since_resume
        longer._totals_since_resume = recent.add(entry)
        return longer

    @cached_property
    def _totals(self) -> "_RunTotals":
        return reduce(_RunTotals.add, self.entries, _RunTotals())

    @cached_property
    def _totals_since_resume(self) -> "_RunTotals":
        """The totals since a person last resumed the run, or since it started."""
        start = next((n for n in range(len(self.entries) - 1, 0, -1) if _is_resume(self.entries[n])), 0)
        return reduce(_RunTotals.add, self.entries[start:], _RunTotals())

    @property
    def run_started(self) -> RunStarted | None:
        return next((event for event in self if isinstance(event, RunStarted)), None)

    @property
    def subagent_started(self) -> SubagentStarted | None:
        """How another run started this run; None if a job started this run."""
        return next((event for event in self if isinstance(event, SubagentStarted)), None)

    def subagents(self) -> tuple[tuple[SubagentSpawned, SubagentResult | None], ...]:
        """Returns the subagents, each with its result. The result is None while the subagent works."""
        reports = {
            report.run: report
            for event in self
            if isinstance(event, ToolResult) and isinstance(event.observation, SubagentResult)
            for report in event.observation.results or (event.observation,)
        }
        return tuple((event, reports.get(event.run)) for event in self if isinstance(event, SubagentSpawned))

    @property
    def run_resumed(self) -> RunResumed | None:
        """The earlier run that this job continues, if any."""
        return next((event for event in self if isinstance(event, RunResumed)), None)

    @property
    def environment_prepared(self) -> EnvironmentPrepared | None:
        """Result of the latest environment setup; None if there was none."""
        return next((event for event in reversed(list(self)) if isinstance(event, EnvironmentPrepared)), None)

    @property
    def run_configured(self) -> RunConfigured | None:
        """The latest settings of the run; None if an older version of Patchwright ran it."""
        return next((event for event in reversed(list(self)) if isinstance(event, RunConfigured)), None)

    @property
    def agent_stopped(self) -> AgentStopped | None:
        """How the agent stopped; None while it works. A message after the stop restarts the agent."""
        for entry in reversed(self.entries):
            if isinstance(entry.event, AgentStopped):
                return entry.event
            if isinstance(entry.event, Message | ModelReply):
                return None
        return None

    @property
    def job_completed(self) -> JobCompleted | None:
        last = self.entries[-1].event if self.entries else None
        return last if isinstance(last, JobCompleted) else None

    @property
    def verdict(self) -> Verdict | None:
        """The latest verdict; None if the agent has since changed the work tree or stopped again."""
        for entry in reversed(self.entries):
            if isinstance(entry.event, VerificationCompleted):
                return entry.event.verdict
            if isinstance(entry.event, AgentStopped | Checkpoint):
                return None
        return None

    @property
    def is_baseline_pending(self) -> bool:
        """True while the agent waits for the results of the tests on the untouched code."""
        for entry in reversed(self.entries):
            match entry.event:
                case BaselinePending():
                    return True
                case Message(source="baseline" | "verification") | VerificationCompleted():
                    return False
                case _:
                    pass
        return False

    def replies(self) -> tuple[ModelReply, ...]:
        return self._totals.replies

    def pending_calls(self) -> tuple[ToolCall, ...]:
        """Returns the calls of the last reply that have no result yet, in order."""
        answered: set[str] = set()
        for entry in reversed(self.entries):
            match entry.event:
                case ToolResult(call_id=call):
                    answered.add(call)
                case ModelReply(calls=calls):
                    return tuple(call for call in calls if call.id not in answered)
                case _:
                    continue
        return ()

    def last_checkpoint(self) -> Patch | None:
        """Returns the latest state of the work tree, or None if it never differed from the base."""
        return self._totals.checkpoint

    def network_visits(self) -> tuple[ConnectionSummary, ...]:
        """Returns all connections of the agent's sandboxes."""
        return merge_summaries(
            visit for event in self if isinstance(event, NetworkAccess) for visit in event.visits
        )

    def condensations(self) -> tuple[Condensation, ...]:
        return self._totals.condensations

    def usage(self) -> Usage:
        """Returns the dollars, tokens, steps and seconds of work so far."""
        return self._totals.total_usage

    def usage_since_resume(self) -> Usage:
        """Returns the usage that counts toward the limits: since the start, or since a person last resumed the run."""
        return self._totals_since_resume.total_usage
