"""Trajectory -> what happened, item by item, as the viewer shows it; a delegate's items stand in its call's."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from resolver.circumstances import Configured, Connected, Prepared
from resolver.domain import RunId
from resolver.events import (
    Call,
    Condensed,
    Consulted,
    Decided,
    Delegated,
    Ended,
    Entry,
    Event,
    Judged,
    Observed,
    Prompted,
    Resumed,
    Settled,
    Told,
    Trajectory,
    Usage,
)
from resolver.render import pictures_of
from resolver.summary import clip
from resolver.viewer.calls import Kind, answered, asked, came_of, caption, head, is_bad, kind, took
from resolver.viewer.exhibits import Album, Exhibit, printed, words
from resolver.words import wording
from runtime.egress.egress import WHY
from runtime.observations import Failed

DEEPEST = 3  # of delegates' delegates

KINDS: dict[Kind, str] = {
    "thought": "Thoughts",
    "command": "Commands",
    "edit": "Edits",
    "read": "Reading",
    "browse": "Browsing",
    "plan": "Plans",
    "tool": "Other calls",
    "program": "Program",
    "end": "Endings",
}
TOLD = {
    "brief": "The agent got its brief",
    "program": "The program reminded the agent",
    "comment": "Somebody commented",
    "resume": "The run went on in a new sandbox",
    "nudge": "The run looked stuck, and the agent was told so",
    "planning": "It was time to look back and ahead",
    "baseline": "The agent was told how the tests ended on the untouched code",
    "proof": "The agent was told what the proof showed",
}
CONSULTED = {
    "senses": "A model looked at something for the agent",
    "condense": "A model summed up the conversation",
    "judge": "A second model was asked",
    "failed": "A request to the model failed",
}

Read = Callable[[RunId], Trajectory | None]
"""Another run's log, free of secrets; None when it is not to be had."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that happened."""

    id: str
    kind: Kind
    at: float
    """Seconds since its run began."""
    head: str
    came: str = ""
    bad: bool = False
    """It failed, or was refused."""
    step: int = 0
    """Number of the model's reply, where the item is one."""
    facts: str = ""
    exhibits: tuple[Exhibit, ...] = ()
    nested: tuple["Item", ...] = ()
    call: str = ""
    """Id of the call that it is."""


def timeline(
    trajectory: Trajectory, read: Read, album: Album, limit: int, most: int, *, live: bool = False
) -> tuple[Item, ...]:
    """About the first `most` items of a run in order; texts are clipped to about `limit` characters.

    `live`: the run goes on, so that a call without an answer is under way.
    """
    return tuple(_Teller(read, album, limit, most, live=live).tell(trajectory, "", (), 0))


def touched(trajectory: Trajectory, seq: int, read: Read, album: Album, limit: int) -> tuple[Item, ...]:
    """The items that this entry of a run that goes on has brought or changed, as they are now."""
    entry = trajectory.entries[seq]
    teller = _Teller(read, album, limit, most=len(trajectory), live=True)
    match entry.event:
        case Observed(call=call) | Delegated(call=call):
            before = range(seq - 1, -1, -1)
            asked = next((at for at in before if _asks(trajectory.entries[at].event, call)), None)
            if asked is None:
                return ()
            items = teller.of_entry(_Run.of(trajectory), trajectory.entries[asked])
            return tuple(item for item in items if item.call == call)
        case _:
            return tuple(teller.of_entry(_Run.of(trajectory), entry))


def _asks(event: Event, call: str) -> bool:
    return isinstance(event, Decided) and any(each.id == call for each in event.calls)


@dataclass(frozen=True, slots=True)
class _Run:
    """What is to be known of a log to tell one of its entries."""

    trajectory: Trajectory
    began: datetime
    answers: Mapping[str, Entry]
    handed: Sequence[Delegated]
    steps: Mapping[int, int]
    """Number of the model's reply, by that of the entry."""
    prefix: str = ""
    above: tuple[RunId, ...] = ()
    """The runs in which it is nested."""

    @classmethod
    def of(cls, trajectory: Trajectory, prefix: str = "", above: tuple[RunId, ...] = ()) -> "_Run":
        entries = trajectory.entries
        decided = (entry.seq for entry in entries if isinstance(entry.event, Decided))
        return cls(
            trajectory,
            entries[0].at if entries else datetime.min,
            {entry.event.call: entry for entry in entries if isinstance(entry.event, Observed)},
            [event for event in trajectory if isinstance(event, Delegated)],
            {seq: number for number, seq in enumerate(decided, start=1)},
            prefix,
            above,
        )


class _Teller:
    def __init__(self, read: Read, album: Album, limit: int, most: int, *, live: bool) -> None:
        self._read = read
        self._album = album
        self._limit = limit
        self._room = most
        self._live = live

    def tell(
        self, trajectory: Trajectory, prefix: str, above: tuple[RunId, ...], depth: int
    ) -> Iterator[Item]:
        """The items of one log. `above`: the runs in which it is nested."""
        run = _Run.of(trajectory, prefix, above)
        for entry in trajectory.entries:
            if self._room <= 0:
                left = len(trajectory) - entry.seq
                yield Item(f"{prefix}{entry.seq}", "program", 0, f"{left:,} more entries stand in the log")
                return
            yield from self.of_entry(run, entry, depth)

    def of_entry(self, run: _Run, entry: Entry, depth: int = 0) -> Iterator[Item]:
        """The items of one entry, with what came of them."""
        at = (entry.at - run.began).total_seconds()
        if not isinstance(entry.event, Decided):
            if item := self._aside(entry, f"{run.prefix}{entry.seq}", at):
                self._room -= 1
                yield item
            return
        yield self._thought(entry.event, f"{run.prefix}{entry.seq}", at, run.steps[entry.seq])
        for number, call in enumerate(entry.event.calls, start=1):
            self._room -= 1
            id = f"{run.prefix}{entry.seq}.{number}"
            item = self._call(call, run.answers.get(call.id), id, run.began, at)
            others = [each for each in run.handed if each.call == call.id]
            nested = tuple(self._of_all(others, id, run.above, depth))
            yield replace(item, call=call.id, nested=nested)

    def _of_all(
        self, handed: list[Delegated], id: str, above: tuple[RunId, ...], depth: int
    ) -> Iterator[Item]:
        """The work of those that were asked by one call; where there are several, each under its question."""
        for number, each in enumerate(handed, start=1):
            if len(handed) == 1:
                yield from self._nested(each.run, id, above, depth)
                return
            said = clip(f"{number} of {len(handed)}: {each.task}")
            yield Item(f"{id}.{number}", "program", 0, said)
            yield from self._nested(each.run, f"{id}.{number}", above, depth)

    def _nested(self, run: RunId, id: str, above: tuple[RunId, ...], depth: int) -> tuple[Item, ...]:
        if run in above or depth >= DEEPEST:
            return ()
        if (log := self._read(run)) is None:
            said = "The other agent is at work" if self._live else f"The log of {run} is not to be had"
            return (Item(f"{id}-0", "program", 0, said, bad=not self._live),)
        return tuple(self.tell(log, f"{id}-", (*above, run), depth + 1))

    def _thought(self, decided: Decided, id: str, at: float, step: int) -> Item:
        self._room -= 1
        calls = len(decided.calls)
        head = "" if calls == 1 else "No call" if not calls else f"{calls} calls at once"
        said = (words("", decided.thought, self._limit),) if decided.thought.strip() else ()
        cut = "cut off at the output limit" if decided.truncated else ""
        return Item(
            id, "thought", at, head, cut, bad=decided.truncated or not calls, step=step,
            facts=_usage(decided.usage), exhibits=said,
        )  # fmt: skip

    def _call(self, call: Call, answer: Entry | None, id: str, began: datetime, at: float) -> Item:
        line, sort = head(call.action), kind(call.action)
        if answer is None or not isinstance(answer.event, Observed):
            came = "" if self._live else "no answer"
            what = asked(call.action, self._limit, failed=True)
            return Item(id, sort, at, line, came, not self._live, exhibits=what)
        seen = answer.event.observation
        pictures = tuple(self._album.add(each, caption(seen), id) for each in pictures_of(seen))
        what = asked(call.action, self._limit, failed=isinstance(seen, Failed))
        return Item(
            id, sort, (answer.at - began).total_seconds(), line, came_of(seen), is_bad(seen),
            facts=took(seen), exhibits=(*what, *answered(seen, self._limit), *pictures),
        )  # fmt: skip

    def _aside(self, entry: Entry, id: str, at: float) -> Item | None:
        """What happened beside the agent's own steps."""
        limit = self._limit
        match entry.event:
            case Prompted(system=text, tools=tools):
                said = words("system prompt", text, limit, fold=True)
                return Item(
                    id, "program", at, f"The agent was set up with {len(tools)} tools", exhibits=(said,)
                )
            case Configured(version=version) as event:
                under = printed("settings", "\n".join(_settings(event)), limit, fold=True)
                return Item(
                    id, "program", at, "The settings of the run", f"Patchwright {version}", exhibits=(under,)
                )
            case Prepared() as event:
                lasted = "" if event.warm or event.problem else wording.duration(event.seconds)
                bad = event.problem is not None or bool(event.chosen and event.chosen.problem)
                return Item(id, "program", at, _prepared(event), bad=bad, facts=lasted,
                            exhibits=self._setup(event))  # fmt: skip
            case Told(text=text, source="resume", by=str()):
                return Item(
                    id, "program", at, "Somebody had the run go on", exhibits=(words("", text, limit),)
                )
            case Told(text=text, source=source, pictures=pictures):
                shots = tuple(self._album.add(each, "Picture of the issue", id) for each in pictures)
                said = words("text" if source == "brief" else "", text, limit, fold=source == "brief")
                return Item(id, "program", at, TOLD[source], exhibits=(said, *shots))
            case Consulted(purpose=purpose, usage=usage):
                return Item(
                    id, "program", at, CONSULTED[purpose], bad=purpose == "failed", facts=_usage(usage)
                )
            case Condensed(before=before, after=after, summary=text, cause=cause):
                kept = (words("summary", text, limit, fold=True),) if text else ()
                why = "The model took no longer one: t" if cause == "overflow" else "T"
                size = f"{before:,} → {after:,} tokens"
                return Item(
                    id, "program", at, f"{why}he conversation was shortened", facts=size, exhibits=kept
                )
            case Connected(visits=visits, by=by):
                refused = [f"refused {each.host}: {WHY[each.refused]}" for each in visits if each.refused]
                hosts = dict.fromkeys(each.host for each in visits if not each.refused)
                went = ", ".join((*hosts, *([f"{len(refused)} refused"] if refused else ())))
                told = (words("", "\n".join(refused), limit),) if refused else ()
                return Item(
                    id,
                    "program",
                    at,
                    "The sandbox used the network" if by == "sandbox" else "MCP servers were called",
                    clip(went),
                    bool(refused),
                    exhibits=told,
                )
            case Ended(reason=reason, detail=detail):
                bad = reason not in ("finished", "asked")
                return Item(id, "end", at, f"The agent's work ended: {reason}", bad=bad,
                            exhibits=(words("", detail, limit),))  # fmt: skip
            case Judged(verdict=verdict):
                about = "Verdict on the tests that were run first" if verdict.partial else "Verdict"
                return Item(id, "end", at, f"{about}: {verdict.kind}", bad=verdict.kind == "regressed",
                            exhibits=(words("", verdict.reason, limit),))  # fmt: skip
            case Resumed(run=run):
                return Item(id, "end", at, f"The work went on in the run {run}")
            case Settled(outcome=outcome):
                return Item(id, "end", at, f"The job ended: {outcome.kind}", bad=outcome.kind == "refused")
            case _:  # Started and Assigned are the header's, checkpoints show in the edits
                return None

    def _setup(self, event: Prepared) -> tuple[Exhibit, ...]:
        commands = (printed("commands", "\n".join(event.commands), self._limit),) if event.commands else ()
        told = filter(None, (*event.missed, event.problem))
        problem = tuple(words("", problem, self._limit) for problem in told)
        chosen = event.chosen
        image = (
            (words(f"image for {chosen.language}", chosen.problem or chosen.image, self._limit),)
            if chosen
            else ()
        )
        return (*image, *commands, *problem)


def _usage(usage: Usage) -> str:
    """What one request cost, for a reader."""
    tokens = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
    price = wording.dollars(usage.usd) if usage.usd is not None else ""
    return ", ".join(filter(None, (tokens if usage.prompt_tokens else "", price)))


def _settings(event: Configured) -> Iterator[str]:
    """A line each, as the operator or the repository's maintainers could write it."""
    yield f"at most {event.steps} steps, ${event.usd}, {wording.duration(event.seconds)}"
    yield from (f"model to {purpose}: {name}" for purpose, name in event.models.items())
    yield from (f"{key} = {json.dumps(value)}" for key, value in sorted(event.settings.items()))
    yield from (f"repository: {key} = {json.dumps(value)}" for key, value in sorted(event.repository.items()))


def _prepared(event: Prepared) -> str:
    if event.problem is not None:
        return "The repository's set-up was not done"
    if not event.commands:
        return "The sandboxes' image was chosen by language"
    return f"The repository's set-up was {'kept from an earlier run' if event.warm else 'done'}"
