"""The timeline of a live run, built entry by entry, equals the timeline of the complete log."""

from datetime import timedelta

from patchwright.resolver.events import Message, ModelReply, ReplyUsage, ToolCall, ToolResult, Trajectory
from patchwright.resolver.viewer.blocks import ImageCollection
from patchwright.resolver.viewer.run_html import render_fragments, render_items
from patchwright.resolver.viewer.timeline import TimelineItem, build_timeline, find_changed_items
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ActionFailure, ShellResult
from tests.resolver.sample_runs import CHILD, RUN, child_run, full_run, run_of, started

LIMIT, MOST = 4_000, 10_000


def read_no_run(run: str) -> Trajectory | None:
    return child_run() if run == CHILD else None


def build_step_by_step(run: Trajectory) -> dict[str, TimelineItem]:
    """Returns the items after each entry was added in order."""
    found: dict[str, TimelineItem] = {}
    for end in range(1, len(run) + 1):
        so_far = Trajectory(run.entries[:end])
        found |= {
            item.id: item
            for item in find_changed_items(so_far, end - 1, read_no_run, ImageCollection(), LIMIT)
        }
    return found


def test_the_live_timeline_equals_the_complete_one() -> None:
    run = full_run()
    at_once = build_timeline(run, read_no_run, ImageCollection(), LIMIT, MOST, is_live=True)
    timeline = build_step_by_step(run)
    assert list(timeline) == [item.id for item in at_once]
    assert list(timeline.values()) == list(at_once)


def test_a_running_call_is_no_failure_and_is_updated_by_its_result() -> None:
    reply = ModelReply(
        thought="", calls=(ToolCall(id="a", action=RunShell(command="make")),), usage=ReplyUsage(model="m")
    )
    answer = ToolResult(call_id="a", observation=ShellResult(output="gone", exit_code=2, cwd="/", seconds=1))
    run = run_of(started(), reply, answer)
    before = Trajectory(run.entries[:2])
    (_, under_way) = find_changed_items(before, 1, read_no_run, ImageCollection(), LIMIT)
    assert (under_way.result, under_way.is_failure) == ("", False)
    (answered,) = find_changed_items(run, 2, read_no_run, ImageCollection(), LIMIT)
    assert (answered.id, answered.is_failure) == (under_way.id, True)
    (stopped,) = [
        item for item in build_timeline(before, read_no_run, ImageCollection(), LIMIT, MOST) if item.call_id
    ]
    assert (stopped.result, stopped.is_failure) == ("no result", True)


def test_a_new_sandbox_is_named_at_its_place() -> None:
    resumed = Message(text="Set up again what you need.", source="resume", new_sandbox=True)
    (item,) = find_changed_items(run_of(started(), resumed), 1, read_no_run, ImageCollection(), LIMIT)
    assert item.title == "The run continued in a new sandbox"
    assert item.result == "what the agent had started or installed in the old one is gone"
    same = Message(text="Files are unchanged.", source="resume")
    (item,) = find_changed_items(run_of(started(), same), 1, read_no_run, ImageCollection(), LIMIT)
    assert item.title == "The run continued"


def test_an_interrupted_call_keeps_its_time_before_the_restart() -> None:
    reply = ModelReply(
        thought="", calls=(ToolCall(id="a", action=RunShell(command="make")),), usage=ReplyUsage(model="m")
    )
    lost = ToolResult(call_id="a", observation=ActionFailure(reason="lost", message="It was interrupted."))
    restart = Message(text="Set up again what you need.", source="resume", new_sandbox=True)
    run = run_of(started(), reply, restart, lost)
    entries = [
        entry.model_copy(update={"timestamp": run.entries[0].timestamp + timedelta(minutes=entry.seq)})
        for entry in run.entries
    ]
    items = build_timeline(Trajectory(tuple(entries)), read_no_run, ImageCollection(), LIMIT, MOST)
    assert [item.seconds for item in items] == [60, 60, 120]


def test_a_result_without_a_call_has_no_item() -> None:
    stray = ToolResult(call_id="nobody", observation=ShellResult(output="", exit_code=0, cwd="/", seconds=1))
    assert find_changed_items(run_of(started(), stray), 1, read_no_run, ImageCollection(), LIMIT) == ()


def test_each_live_entry_has_the_same_markup_as_in_the_page() -> None:
    run = full_run()
    page = render_fragments(RUN, run, read_no_run, is_live=True).main
    album = ImageCollection()
    for item in build_timeline(run, read_no_run, album, LIMIT, MOST, is_live=True):
        for id, markup in render_items((item,), album).items():
            assert f'id="{id}"' in markup
            assert markup.strip() in page


def test_the_page_of_a_long_run_stays_small() -> None:
    outputs = ["x\n" * 20_000, "y" * 9_000]
    run = run_of(started(), *(event for number in range(400) for event in _step(number, outputs[number % 2])))
    page = render_fragments(RUN, run, read_no_run, is_live=False).main
    assert 400_000 < len(page) < 3_000_000
    assert "left out" in page


def _step(number: int, output: str) -> tuple[ModelReply, ToolResult]:
    call = ToolCall(id=f"c{number}", action=RunShell(command=f"make {number}"))
    answer = ToolResult(
        call_id=call.id, observation=ShellResult(output=output, exit_code=0, cwd="/", seconds=1)
    )
    return ModelReply(thought="Go on.", calls=(call,), usage=ReplyUsage(model="m")), answer
