"""Builds the viewer's timeline from a run's log. The items of a subagent are nested in the item of the call
that started the subagent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from patchwright.resolver.agent.messages import get_images
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import Entry, Event, ModelReply, ToolCall, ToolResult, Trajectory
from patchwright.resolver.run_events import SubagentSpawned
from patchwright.resolver.viewer.blocks import Block, ImageCollection
from patchwright.resolver.viewer.call_blocks import (
    ItemKind,
    build_call_blocks,
    build_reply_blocks,
    build_result_blocks,
    is_failure,
    render_call_cost,
    render_call_title,
    render_caption,
    summarize_result,
)
from patchwright.resolver.viewer.event_content import build_event_content
from patchwright.resolver.viewer.labels import format_usage
from patchwright.runtime.observations import ActionFailure
from patchwright.runtime.output_text import clip_line

MAX_DEPTH = 3  # levels of nested subagents

RunReader = Callable[[RunId], Trajectory | None]
"""Returns another run's log with secrets masked, or None if it is not available."""


@dataclass(frozen=True, slots=True)
class TimelineItem:
    """One entry of the timeline."""

    id: str
    kind: ItemKind
    seconds: float
    """Seconds since the start of the run."""
    title: str
    result: str = ""
    is_failure: bool = False
    """True if the call or step failed, or if it was refused."""
    step: int = 0
    """Number of the model's reply. It is 0 if the item does not represent a reply."""
    details: str = ""
    blocks: tuple[Block, ...] = ()
    nested: tuple["TimelineItem", ...] = ()
    call_id: str = ""
    tool: str = ""  # the name of the tool, if the item is a call
    """Id of the tool call; empty if the item is not a call."""


def build_timeline(
    trajectory: Trajectory,
    read_run: RunReader,
    images: ImageCollection,
    max_text_length: int,
    max_items: int,
    *,
    is_live: bool = False,
) -> tuple[TimelineItem, ...]:
    """Returns the items of a run in order, at most about `max_items`. Texts are clipped to about
    `max_text_length` characters.

    `is_live` means that the run is still in progress, so a call without a result is shown as running.
    """
    return tuple(
        _TimelineBuilder(read_run, images, max_text_length, max_items, is_live=is_live).build_items(
            trajectory, "", (), 0
        )
    )


def find_changed_items(
    trajectory: Trajectory, seq: int, read_run: RunReader, images: ImageCollection, max_text_length: int
) -> tuple[TimelineItem, ...]:
    """Returns the timeline items that were added or changed by log entry `seq` of a live run."""
    entry = trajectory.entries[seq]
    builder = _TimelineBuilder(read_run, images, max_text_length, max_items=len(trajectory), is_live=True)
    match entry.event:
        case ToolResult(call_id=call) | SubagentSpawned(call_id=call):
            before = range(seq - 1, -1, -1)
            reply_index = next(
                (at for at in before if _contains_call(trajectory.entries[at].event, call)), None
            )
            if reply_index is None:
                return ()
            items = builder.build_entry_items(
                _RunContext.from_trajectory(trajectory), trajectory.entries[reply_index]
            )
            return tuple(item for item in items if item.call_id == call)
        case _:
            return tuple(builder.build_entry_items(_RunContext.from_trajectory(trajectory), entry))


def _contains_call(event: Event, call_id: str) -> bool:
    return isinstance(event, ModelReply) and any(each.id == call_id for each in event.calls)


@dataclass(frozen=True, slots=True)
class _RunContext:
    """Data about a log that is needed to render one of its entries."""

    trajectory: Trajectory
    started_at: datetime
    results: Mapping[str, Entry]
    subagents: Sequence[SubagentSpawned]
    step_numbers: Mapping[int, int]
    """Numbers of the model's replies, by the sequence number of their log entry."""
    id_prefix: str = ""
    ancestors: tuple[RunId, ...] = ()
    """The runs in which this run is nested."""

    @classmethod
    def from_trajectory(
        cls, trajectory: Trajectory, id_prefix: str = "", ancestors: tuple[RunId, ...] = ()
    ) -> "_RunContext":
        entries = trajectory.entries
        reply_seqs = (entry.seq for entry in entries if isinstance(entry.event, ModelReply))
        return cls(
            trajectory,
            entries[0].timestamp if entries else datetime.min,
            {entry.event.call_id: entry for entry in entries if isinstance(entry.event, ToolResult)},
            [event for event in trajectory if isinstance(event, SubagentSpawned)],
            {seq: number for number, seq in enumerate(reply_seqs, start=1)},
            id_prefix,
            ancestors,
        )


class _TimelineBuilder:
    def __init__(
        self,
        read_run: RunReader,
        images: ImageCollection,
        max_text_length: int,
        max_items: int,
        *,
        is_live: bool,
    ) -> None:
        self._read_run = read_run
        self._images = images
        self._max_text_length = max_text_length
        self._items_left = max_items
        self._is_live = is_live

    def build_items(
        self, trajectory: Trajectory, id_prefix: str, ancestors: tuple[RunId, ...], depth: int
    ) -> Iterator[TimelineItem]:
        """Yields the items of one log. `ancestors` are the runs in which the log's run is nested."""
        run = _RunContext.from_trajectory(trajectory, id_prefix, ancestors)
        for entry in trajectory.entries:
            if self._items_left <= 0:
                remaining = len(trajectory) - entry.seq
                yield TimelineItem(
                    f"{id_prefix}{entry.seq}", "program", 0, f"{remaining:,} more entries are in the log"
                )
                return
            yield from self.build_entry_items(run, entry, depth)

    def build_entry_items(self, run: _RunContext, entry: Entry, depth: int = 0) -> Iterator[TimelineItem]:
        """Yields the items for one log entry. The item of a call also shows the result of the call."""
        seconds = (entry.timestamp - run.started_at).total_seconds()
        if not isinstance(entry.event, ModelReply):
            if item := self._build_event_item(entry, f"{run.id_prefix}{entry.seq}", seconds):
                self._items_left -= 1
                yield item
            return
        yield self._build_step_item(
            entry.event, f"{run.id_prefix}{entry.seq}", seconds, run.step_numbers[entry.seq]
        )
        for number, call in enumerate(entry.event.calls, start=1):
            self._items_left -= 1
            id = f"{run.id_prefix}{entry.seq}.{number}"
            item = self._build_call_item(call, run.results.get(call.id), id, run.started_at, seconds)
            subagents = [subagent for subagent in run.subagents if subagent.call_id == call.id]
            nested = tuple(self._build_subagent_items(subagents, id, run.ancestors, depth))
            yield replace(item, call_id=call.id, tool=call.action.kind, nested=nested)

    def _build_subagent_items(
        self, subagents: list[SubagentSpawned], id: str, ancestors: tuple[RunId, ...], depth: int
    ) -> Iterator[TimelineItem]:
        """Yields the items of a call's subagents. If there are several subagents, the items of each
        subagent follow an item that shows the subagent's task.
        """
        for number, subagent in enumerate(subagents, start=1):
            if len(subagents) == 1:
                yield from self._build_nested_items(subagent.run, id, ancestors, depth)
                return
            title = clip_line(f"{number} of {len(subagents)}: {subagent.task}")
            yield TimelineItem(f"{id}.{number}", "program", 0, title)
            yield from self._build_nested_items(subagent.run, f"{id}.{number}", ancestors, depth)

    def _build_nested_items(
        self, run: RunId, id: str, ancestors: tuple[RunId, ...], depth: int
    ) -> tuple[TimelineItem, ...]:
        if run in ancestors or depth >= MAX_DEPTH:
            return ()
        if (log := self._read_run(run)) is None:
            title = "The subagent is running" if self._is_live else f"The log of {run} is not available"
            return (TimelineItem(f"{id}-0", "program", 0, title, is_failure=not self._is_live),)
        return tuple(self.build_items(log, f"{id}-", (*ancestors, run), depth + 1))

    def _build_step_item(self, reply: ModelReply, id: str, seconds: float, step: int) -> TimelineItem:
        self._items_left -= 1
        calls = len(reply.calls)
        title = "" if calls == 1 else "No tool call" if not calls else f"{calls} parallel calls"
        result = "cut off at the output limit" if reply.truncated else ""
        return TimelineItem(
            id, "thought", seconds, title, result, is_failure=reply.truncated or not calls, step=step,
            details=format_usage(reply.usage), blocks=build_reply_blocks(reply, self._max_text_length),
        )  # fmt: skip

    def _build_call_item(
        self, call: ToolCall, result: Entry | None, id: str, started_at: datetime, seconds: float
    ) -> TimelineItem:
        description = call.action.describe()
        title, kind = render_call_title(description), description.kind
        if result is None or not isinstance(result.event, ToolResult):
            summary = "" if self._is_live else "no result"
            blocks = build_call_blocks(description, self._max_text_length, is_failed=True)
            return TimelineItem(id, kind, seconds, title, summary, not self._is_live, blocks=blocks)
        observation = result.event.observation
        image_blocks = tuple(
            self._images.add(image, render_caption(observation), id) for image in get_images(observation)
        )
        blocks = build_call_blocks(
            description, self._max_text_length, is_failed=isinstance(observation, ActionFailure)
        )
        # The result of a call that a restart interrupted is logged after the restart, which is a later item.
        if not (isinstance(observation, ActionFailure) and observation.reason == "lost"):
            seconds = (result.timestamp - started_at).total_seconds()
        return TimelineItem(
            id, kind, seconds, title,
            summarize_result(observation), is_failure(observation),
            details=render_call_cost(observation),
            blocks=(*blocks, *build_result_blocks(observation, self._max_text_length), *image_blocks),
        )  # fmt: skip

    def _build_event_item(self, entry: Entry, id: str, seconds: float) -> TimelineItem | None:
        """Returns the item of an entry that is not a step of the agent, or None if the entry is not shown."""
        content = build_event_content(entry.event, id, self._images, self._max_text_length)
        if content is None:
            return None
        return TimelineItem(
            id,
            content.kind,
            seconds,
            content.title,
            content.result,
            content.is_failure,
            details=content.details,
            blocks=content.blocks,
        )
