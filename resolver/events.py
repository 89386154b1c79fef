"""What happened in a run, as past participles; a run is the append-only list of these.

Agent, limits, cost, summary, progress and resume are functions of this list. The log, not the event, knows
order and clock, so that equal events are equal.
"""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from functools import cached_property, reduce
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from resolver.actions import Action, AnswerField, Called, Reported, Result
from resolver.circumstances import Configured, Connected, Prepared
from resolver.cost import Cost
from resolver.domain import EndingReason, Job, JobId, Outcome, Patch, RunId, Spent, Thread, Verdict
from resolver.request.request import Options
from runtime.egress.egress import Network, Visit, merged
from runtime.frozen import Frozen
from runtime.observations import Picture


class Usage(Frozen):
    """What one reply of a model cost."""

    model: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    """Part of the completion."""
    usd: Cost = None
    """As far as the price of this model, and of those that failed before it answered, is known."""
    seconds: float = 0.0


class Call(Frozen):
    """One tool call of a reply."""

    id: str
    """The provider's id; unique within a run."""
    action: Action


class Started(Frozen):
    """The run began, on this content: the thread and base are pinned here, whatever is edited later."""

    kind: Literal["started"] = "started"
    job: Job
    thread: Thread
    base: str
    """Commit id that the work starts from."""
    base_branch: str
    source: str
    """Where the repository was taken from: its clone URL, or a path on the operator's machine."""
    model: str
    """Name of the model that works on it."""
    sandbox: str
    """`docker` or `local`."""
    network: Network = "none"
    """Of the agent's sandbox; the tests' have none."""


Role = Literal["browse", "investigate"]
"""What an agent was asked for by another one."""


class Assigned(Frozen):
    """A run began that another one asked for: its task, and its share of what that one may still use."""

    kind: Literal["assigned"] = "assigned"
    parent: RunId
    call: str
    """Id of the parent's call, which its report answers."""
    depth: int = Field(ge=2)
    """A job's own run has depth 1."""
    role: Role = "browse"
    task: str
    model: str
    steps: int
    seconds: float
    usd: Decimal
    tokens: int | None = None
    concise: bool = False
    """It is shown how a single value is given as an answer."""
    fields: tuple[AnswerField, ...] = ()
    """What its answer has to contain; empty: it is free."""
    known: tuple[str, ...] = ()
    """Addresses that the run which asks has read: not made up, if they are gone to."""
    searchable: bool = False
    """The run which asks can search the web."""


class Prompted(Frozen):
    """The agent was set up: system prompt and tools, as the model gets them."""

    kind: Literal["prompted"] = "prompted"
    system: str
    tools: tuple[dict[str, Any], ...]
    """JSON schemas in the form of OpenAI function tools."""


class Told(Frozen):
    """Somebody said something to the agent: the brief, a reminder, the result of the proof."""

    kind: Literal["told"] = "told"
    text: str
    source: Literal["brief", "program", "comment", "resume", "nudge", "planning", "baseline", "proof"]
    """resume: the run goes on in a new sandbox; what passed between the entry before and this is not work.
    nudge: the run looks stuck. planning: it is time to look back and ahead.
    baseline: the tests have ended on the untouched code. proof: the work was judged, and goes on."""
    by: JobId | None = None
    """The trigger that brought it, so that it is told once."""
    approves: bool = False
    """It says go to the plan that the run has come to."""
    options: Options = Options()
    """What it sets for the run from here on."""
    pictures: tuple[Picture, ...] = ()
    """Shown with the text, to models that see."""


class Decided(Frozen):
    """The model replied: one event per reply, so parallel calls stay together."""

    kind: Literal["decided"] = "decided"
    thought: str
    calls: tuple[Call, ...]
    usage: Usage
    reasoning: tuple[dict[str, Any], ...] = ()
    """Provider's reasoning blocks, sent back unchanged."""
    truncated: bool = False
    """The model ran into its output limit."""
    prompt: str = ""
    """Fingerprint of what was sent (`resolver/replay.py`), so that a replay can tell whether it sends the same."""


class Observed(Frozen):
    """A call was answered: exactly one per call."""

    kind: Literal["observed"] = "observed"
    call: str
    observation: Result


class Delegated(Frozen):
    """A call was handed to another agent, which works on a log of its own."""

    kind: Literal["delegated"] = "delegated"
    call: str
    """Id of the call; its observation is a Reported. Several may answer one."""
    run: RunId
    """Id of that log."""
    role: Role = "browse"
    task: str


class Consulted(Frozen):
    """A model was asked beside the conversation: to look at a picture, to condense, to judge; or in it, and failed."""

    kind: Literal["consulted"] = "consulted"
    purpose: Literal["senses", "condense", "judge", "failed"]
    usage: Usage


class Condensed(Frozen):
    """The conversation is sent shorter from here on; the log keeps all of it.

    What it takes away adds up over a run: what one of these left out, a later one does not bring back.
    """

    kind: Literal["condensed"] = "condensed"
    cause: Literal["length", "overflow"] = "length"
    """overflow: the model's provider refused the prompt as too long."""
    masked: tuple[str, ...] = ()
    """Ids of calls whose results are sent as one line from here on."""
    forgotten: int = 0
    """The run's first so many replies, with what came of them, are not sent; `summary` stands in their place."""
    summary: str = ""
    """Empty when `forgotten` is 0."""
    before: int = 0
    """Tokens of the conversation before it, estimated."""
    after: int = 0
    """Tokens after it, estimated."""


class Checkpointed(Frozen):
    """The work tree as a diff against the base; a new sandbox starts from the last one."""

    kind: Literal["checkpointed"] = "checkpointed"
    patch: Patch


class Ended(Frozen):
    """The agent's work is over (the proof and the delivery follow)."""

    kind: Literal["ended"] = "ended"
    reason: EndingReason
    detail: str
    """One sentence for a person."""


class Judged(Frozen):
    """The proof's result."""

    kind: Literal["judged"] = "judged"
    verdict: Verdict


class Resumed(Frozen):
    """This trigger answers an earlier run: the work goes on in that one's log, and this one says how it settled."""

    kind: Literal["resumed"] = "resumed"
    run: JobId


class Settled(Frozen):
    """What became of the job; the last event of a run that nobody has to continue."""

    kind: Literal["settled"] = "settled"
    outcome: Outcome


Event = Annotated[
    Started
    | Assigned
    | Configured
    | Prepared
    | Prompted
    | Told
    | Decided
    | Observed
    | Delegated
    | Consulted
    | Condensed
    | Checkpointed
    | Ended
    | Judged
    | Connected
    | Resumed
    | Settled,
    Field(discriminator="kind"),
]


class Entry(Frozen):
    """One line of the log."""

    seq: int
    at: datetime
    """UTC."""
    event: Event


ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)


class _Tally(NamedTuple):
    """What every step asks of a run, counted on with each entry: counted anew, it took longer with each step."""

    at: datetime | None = None
    """Of the last entry."""
    seconds: float = 0.0
    spent: Spent = Spent()
    """Without the time."""
    decisions: tuple[Decided, ...] = ()
    checkpoint: Patch | None = None

    def counting(self, entry: Entry) -> "_Tally":
        _, seconds, spent, decisions, checkpoint = self
        match event := entry.event:
            case Decided(usage=usage):
                spent, decisions = spent.plus(usage, steps=1), (*decisions, event)
            case Consulted(usage=usage):
                spent = spent.plus(usage)
            case Observed(observation=Reported(spent=report)):
                spent = spent.plus(report, steps=report.steps, unpriced=report.unpriced)
            case Observed(observation=Called(usd=usd)):
                spent = spent.plus(Spent(usd=usd))
            case Checkpointed(patch=patch):
                checkpoint = patch
            case _:
                pass
        # Before these nobody worked, or what came of the work was published.
        idle = isinstance(event, Settled) or (isinstance(event, Told) and event.source == "resume")
        if self.at is not None and not idle:
            seconds += (entry.at - self.at).total_seconds()
        at = None if isinstance(event, Settled) else entry.at  # until somebody has it go on, nobody works
        return _Tally(at, seconds, spent, decisions, checkpoint)


class Trajectory:
    """A run so far, and the questions that everything else asks of it. Read-only."""

    def __init__(self, entries: tuple[Entry, ...] = ()) -> None:
        self.entries = entries

    def __iter__(self) -> Iterator[Event]:
        return (entry.event for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def followed_by(self, entry: Entry) -> "Trajectory":
        """This run and one entry more."""
        longer = Trajectory((*self.entries, entry))
        longer._tally = self._tally.counting(entry)
        return longer

    @cached_property
    def _tally(self) -> "_Tally":
        return reduce(_Tally.counting, self.entries, _Tally())

    @property
    def started(self) -> Started | None:
        return next((event for event in self if isinstance(event, Started)), None)

    @property
    def assigned(self) -> Assigned | None:
        """Who asked for this run; None: a job."""
        return next((event for event in self if isinstance(event, Assigned)), None)

    def delegations(self) -> tuple[tuple[Delegated, Reported | None], ...]:
        """What was handed to other agents, each with its report if there is one yet."""
        reports = {
            report.run: report
            for event in self
            if isinstance(event, Observed) and isinstance(event.observation, Reported)
            for report in event.observation.parts or (event.observation,)
        }
        return tuple((event, reports.get(event.run)) for event in self if isinstance(event, Delegated))

    @property
    def resumed(self) -> Resumed | None:
        """The earlier run that this trigger goes on with, if it does."""
        return next((event for event in self if isinstance(event, Resumed)), None)

    @property
    def prepared(self) -> Prepared | None:
        """What became of the set-up the last time; None: none was needed."""
        return next((event for event in reversed(list(self)) if isinstance(event, Prepared)), None)

    @property
    def configured(self) -> Configured | None:
        """The settings under which it went on last; None: an older version worked on it."""
        return next((event for event in reversed(list(self)) if isinstance(event, Configured)), None)

    @property
    def ended(self) -> Ended | None:
        """How the agent's work ended; None while it goes on (a message after an ending reopens it)."""
        for entry in reversed(self.entries):
            if isinstance(entry.event, Ended):
                return entry.event
            if isinstance(entry.event, Told | Decided):
                return None
        return None

    @property
    def settled(self) -> Settled | None:
        last = self.entries[-1].event if self.entries else None
        return last if isinstance(last, Settled) else None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the last ending, and on the tree as it stands; None when there is none yet."""
        for entry in reversed(self.entries):
            if isinstance(entry.event, Judged):
                return entry.event.verdict
            if isinstance(entry.event, Ended | Checkpointed):
                return None
        return None

    def decisions(self) -> tuple[Decided, ...]:
        return self._tally.decisions

    def unanswered(self) -> tuple[Call, ...]:
        """Calls of the last reply that have no observation yet, in order."""
        answered: set[str] = set()
        for entry in reversed(self.entries):
            match entry.event:
                case Observed(call=call):
                    answered.add(call)
                case Decided(calls=calls):
                    return tuple(call for call in calls if call.id not in answered)
                case _:
                    continue
        return ()

    def checkpoint(self) -> Patch | None:
        """The last state of the work tree, if it ever differed from the base."""
        return self._tally.checkpoint

    def visits(self) -> tuple[Visit, ...]:
        """All that the agent's sandboxes did by the network."""
        return merged(visit for event in self if isinstance(event, Connected) for visit in event.visits)

    def spent(self) -> Spent:
        """Dollars, tokens, steps and seconds of work so far."""
        return self._tally.spent.model_copy(update={"seconds": self._tally.seconds})
