"""Measures how long `from patchwright import LLM, Agent, Conversation` takes in a new process.

All figures are those of the process minus those of `pass`, so they leave out the start of Python. Processor time
says more than the time on a busy machine. `library_first_use` also creates a model, which imports pydantic: the
statement alone imports no other library (tests/sdk/test_values.py). Peer, in the same run if OPENHANDS_PYTHON is set:
`from openhands.sdk import LLM, Agent, Conversation` (see benchmarks/openhands.py).
"""

import sys
from typing import NamedTuple

from benchmarks.measure import Result, median_run, report
from benchmarks.openhands import find_openhands_python

TIMES = 10
FIRST_USE = "from patchwright import LLM, Agent, Conversation; Agent(llm=LLM(model='openai/gpt-5'))"


class Import(NamedTuple):
    """What a statement needs in a new process, in addition to the start of Python."""

    milliseconds: float
    cpu_milliseconds: float
    megabytes: float


def measure() -> list[Result]:
    """Returns medians in milliseconds and MB."""
    ours = _import(sys.executable, "from patchwright import LLM, Agent, Conversation")
    used = _import(sys.executable, FIRST_USE)
    openhands = find_openhands_python()
    peer = _import(openhands, "from openhands.sdk import LLM, Agent, Conversation") if openhands else None

    def result(name: str, found: Import, figure: str, unit: str, target: float | None) -> Result:
        peers = {"OpenHands": getattr(peer, figure)} if peer and found is ours else {}
        value = getattr(found, figure)
        return Result(name=name, value=value, unit=unit, floor=None, peers=peers, target=target)

    return [
        result("library_import", ours, "milliseconds", "ms", 150),
        result("library_import_cpu", ours, "cpu_milliseconds", "ms", 150),
        result("library_import_memory", ours, "megabytes", "MB", None),
        result("library_first_use_cpu", used, "cpu_milliseconds", "ms", None),
    ]


def _import(python: str, statement: str) -> Import:
    bare, run = (median_run([python, "-c", code], TIMES) for code in ("pass", statement))
    return Import(*(round(getattr(run, name) - getattr(bare, name), 1) for name in Import._fields))


if __name__ == "__main__":
    report(measure())
