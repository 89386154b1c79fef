"""A run that goes on, told entry by entry: what is told so adds up to what is told of it at once."""

from resolver.events import Call, Decided, Observed, Trajectory, Usage
from resolver.viewer.exhibits import Album
from resolver.viewer.timeline import Item, timeline, touched
from resolver.viewer.viewer import entries, parts
from runtime.actions import RunShell
from runtime.observations import Ran
from tests.resolver.seen_runs import CHILD, RUN, child_run, run_of, started, whole_run

LIMIT, MOST = 4_000, 10_000


def read(run: str) -> Trajectory | None:
    return child_run() if run == CHILD else None


def step_by_step(run: Trajectory) -> dict[str, Item]:
    """The items as they stand when each entry was told as it came."""
    found: dict[str, Item] = {}
    for end in range(1, len(run) + 1):
        so_far = Trajectory(run.entries[:end])
        found |= {item.id: item for item in touched(so_far, end - 1, read, Album(), LIMIT)}
    return found


def test_entry_by_entry_comes_to_the_same_as_at_once() -> None:
    run = whole_run()
    at_once = timeline(run, read, Album(), LIMIT, MOST, live=True)
    told = step_by_step(run)
    assert list(told) == [item.id for item in at_once]
    assert list(told.values()) == list(at_once)


def test_a_call_that_is_under_way_is_no_trouble_and_its_answer_takes_its_place() -> None:
    asked = Decided(
        thought="", calls=(Call(id="a", action=RunShell(command="make")),), usage=Usage(model="m")
    )
    answer = Observed(call="a", observation=Ran(output="gone", exit_code=2, cwd="/", seconds=1))
    run = run_of(started(), asked, answer)
    before = Trajectory(run.entries[:2])
    (_, under_way) = touched(before, 1, read, Album(), LIMIT)
    assert (under_way.came, under_way.bad) == ("", False)
    (answered,) = touched(run, 2, read, Album(), LIMIT)
    assert (answered.id, answered.bad) == (under_way.id, True)
    (stopped,) = [item for item in timeline(before, read, Album(), LIMIT, MOST) if item.call]
    assert (stopped.came, stopped.bad) == ("no answer", True)


def test_an_answer_to_nothing_is_told_of_nothing() -> None:
    stray = Observed(call="nobody", observation=Ran(output="", exit_code=0, cwd="/", seconds=1))
    assert touched(run_of(started(), stray), 1, read, Album(), LIMIT) == ()


def test_each_entry_has_the_markup_that_the_whole_page_has_of_it() -> None:
    run = whole_run()
    page = parts(RUN, run, read, live=True).main
    album = Album()
    for item in timeline(run, read, album, LIMIT, MOST, live=True):
        for id, markup in entries((item,), album).items():
            assert f'id="{id}"' in markup
            assert markup.strip() in page


def test_a_page_of_a_long_run_stays_one_that_a_browser_takes() -> None:
    outputs = ["x\n" * 20_000, "y" * 9_000]
    run = run_of(started(), *(event for number in range(400) for event in _step(number, outputs[number % 2])))
    page = parts(RUN, run, read, live=False).main
    assert 400_000 < len(page) < 3_000_000
    assert "left out" in page


def _step(number: int, output: str) -> tuple[Decided, Observed]:
    call = Call(id=f"c{number}", action=RunShell(command=f"make {number}"))
    answer = Observed(call=call.id, observation=Ran(output=output, exit_code=0, cwd="/", seconds=1))
    return Decided(thought="Go on.", calls=(call,), usage=Usage(model="m")), answer
