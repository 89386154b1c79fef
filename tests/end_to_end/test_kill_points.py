"""A worker is killed (SIGKILL) during a run, and another one continues: nothing is lost or duplicated.

Covers some of the points of `benchmarks/kills.py`, which covers all of them.
"""

import pytest

from benchmarks.killer import Point
from benchmarks.kills import OUTLIVE, KillTrialResult, killed

pytestmark = [pytest.mark.redis, pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]


def choose_points(reference: KillTrialResult) -> list[Point]:
    last = reference.writes
    return [
        Point("line", 0),
        Point("line", reference.lines // 2, "after"),
        Point("command", 0),
        Point("proof", 10),
        Point("write", last - 1, "after"),
        Point("edit", 1),
        Point("line", reference.lines - 2, "after"),  # some runs have one line less than others
    ]


async def test_a_run_killed_at_any_point_has_the_same_result() -> None:
    reference, results = await killed(choose_points)
    assert (reference.result_kind, reference.killed) == ("published", False)
    assert "+    return a + b" in reference.diff and "draft: False" in reference.diff
    assert {(one.point, one.killed) for one in results} == {
        (point, True) for point in choose_points(reference)
    }
    for one in results:
        assert (one.result_kind, one.diff) == (reference.result_kind, reference.diff), one
        assert (one.pulls, one.branches, one.comments) == (1, 1, 1), one
        assert one.twice == 0, one
        assert one.resumed <= 60, one
        assert one.outlived <= OUTLIVE, one
    assert max(one.resumed for one in results) > 10  # at least one worker had to wait for a lease
    assert sum(one.sandbox == "docker" for one in results) == 4
