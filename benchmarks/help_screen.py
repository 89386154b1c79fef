"""Measures the time and memory of `patchwright --help`.

Floor: `python -c pass` in the same run. Peers: mini-swe-agent 2.4.6 and OpenHands 1.58.2, measured on a
Debian 12 machine with 2 cores and Python 3.11.
"""

import sys
from pathlib import Path

from benchmarks.measure import Result, median_run, report

TIMES = 15


def measure() -> list[Result]:
    """Returns medians of wall time and peak memory."""
    ours = median_run([str(Path(sys.executable).parent / "patchwright"), "--help"], TIMES)
    floor = median_run([sys.executable, "-c", "pass"], TIMES)
    return [
        Result(
            name="help_screen_time",
            value=ours.milliseconds,
            unit="ms",
            floor=floor.milliseconds,
            peers={"mini-swe-agent": 189, "OpenHands": 4000},
            target=120,
        ),
        Result(
            name="help_screen_memory",
            value=ours.megabytes,
            unit="MB",
            floor=floor.megabytes,
            peers={"mini-swe-agent": 41, "OpenHands": 251},
            target=30,
        ),
    ]


if __name__ == "__main__":
    report(measure())
