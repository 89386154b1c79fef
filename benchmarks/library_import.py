"""Measures how long `from patchwright import LLM, Agent, Conversation` takes in a new process.

`library_import_cpu` is the processor time of that process, which says more than the time on a busy machine. Floor, in
the same run: the import of pydantic, on which each of the three classes is built. Peer, in the same run if
OPENHANDS_PYTHON is set: `from openhands.sdk import LLM, Agent, Conversation` (see benchmarks/openhands.py).

litellm and docker are not imported: tests/sdk/test_values.py holds that.
"""

import sys

from benchmarks.measure import Result, Run, median_run, report
from benchmarks.openhands import find_openhands_python

TIMES = 9


def measure() -> list[Result]:
    """Returns medians in milliseconds and MB."""
    ours = _import(sys.executable, "from patchwright import LLM, Agent, Conversation")
    floor = _import(sys.executable, "import pydantic; pydantic.BaseModel")
    openhands = find_openhands_python()
    peer = _import(openhands, "from openhands.sdk import LLM, Agent, Conversation") if openhands else None

    def result(name: str, figure: str, unit: str, target: float | None) -> Result:
        def read(run: Run) -> float:
            return round(float(getattr(run, figure)), 1)

        return Result(
            name=name,
            value=read(ours),
            unit=unit,
            floor=read(floor),
            peers={"OpenHands": read(peer)} if peer else {},
            target=target,
        )

    return [
        result("library_import", "milliseconds", "ms", 150),
        result("library_import_cpu", "cpu_milliseconds", "ms", None),
        result("library_import_memory", "megabytes", "MB", None),
    ]


def _import(python: str, statement: str) -> Run:
    return median_run([python, "-c", statement], TIMES)


if __name__ == "__main__":
    report(measure())
