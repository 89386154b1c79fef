"""A worker is killed (SIGKILL) in the middle of a run, and another one goes on: nothing is lost or done twice.

A few of the points of `benchmarks/kills.py`, which takes all of them.
"""

import pytest

from benchmarks.killer import Point
from benchmarks.kills import OUTLIVE, Seen, killed

pytestmark = [pytest.mark.redis, pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]


def chosen(whole: Seen) -> list[Point]:
    last = whole.writes
    return [
        Point("line", 0),
        Point("line", whole.lines // 2, "after"),
        Point("command", 0),
        Point("proof", 10),
        Point("write", last - 1, "after"),
        Point("write", last, "before"),
        Point("line", whole.lines - 1, "after"),
    ]


async def test_a_run_killed_at_any_step_ends_as_if_nobody_had_killed_it() -> None:
    whole, seen = await killed(chosen)
    assert (whole.came_to, whole.killed) == ("delivered", False)
    assert "+    return a + b" in whole.diff and "draft: False" in whole.diff
    assert {(one.point, one.killed) for one in seen} == {(point, True) for point in chosen(whole)}
    for one in seen:
        assert (one.came_to, one.diff) == (whole.came_to, whole.diff), one
        assert (one.pulls, one.branches, one.comments) == (1, 1, 1), one
        assert one.twice == 0, one
        assert one.resumed <= 60, one
        assert one.outlived <= OUTLIVE, one
    assert max(one.resumed for one in seen) > 10  # somebody really had to wait for a lease
    assert sum(one.sandbox == "docker" for one in seen) == 4
