"""Measures what `patchwright evaluate` loses or pays twice if it is killed (SIGKILL) three times on the way.

It evaluates 200 instances in the format of SWE-bench, four at a time, in local sandboxes. Each instance has its own
tiny repository. The model is a recording that answers at once, over HTTP. The process of the evaluation is killed
when 50, 100, and 150 results are stored, and the same command continues it.

A step is paid twice if the model receives the same request again, or if no log contains its reply.
The harness is what comes beside the run of the agent and the hidden tests, such as grading the patch.

It takes a quarter of an hour on two cores: `script/bench killed_evaluation`. `--instances N` measures fewer instances.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, report
from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.evaluation.built_repository import BuiltRepository
from patchwright.evaluation.results import AttemptResult, read_report_inputs
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import ModelReply, RunStarted
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import ReplaceText, RunShell

INSTANCES, WORKERS, KILLS = 200, 4, 3
CONFIG = '[[tests]]\ncommand = "python3 -m unittest -v"\n'
TEST = """import unittest

import calc


class {name}(unittest.TestCase):
    def test_{name}(self) -> None:
        self.assertEqual(calc.add({a}, {b}), {sum})
"""
NEW_TEST = "cat > test_new.py <<'END'\n{text}END\npython3 -m unittest"
DONE = Finish(cause="add() subtracted.", change="It adds now.", testing="python3 -m unittest: all pass.")


def _test(name: str, a: int, b: int) -> bytes:
    return TEST.format(name=name, a=a, b=b, sum=a + b).encode()


class InstantModel(RecordedModel):
    """Fixes every instance, and answers at once. The prompt names the instance, so each request belongs to one."""

    def __init__(self) -> None:
        command = NEW_TEST.format(text=_test("new", 4, 5).decode())
        fix = ReplaceText(path="calc.py", old="a - b", new="a + b")
        turns = (RecordedTurn("Fix it.", fix), RecordedTurn("Test it.", RunShell(command=command)))
        super().__init__((*turns, *(RecordedTurn("Done.", DONE),) * 6))

    def count_repeated(self) -> int:
        """Returns how many requests are equal to an earlier one. No two steps of a run have the same messages."""
        seen = Counter(json.dumps(request["messages"], sort_keys=True) for request in self.requests)
        return sum(times - 1 for times in seen.values())


async def _write_data_set(directory: Path, count: int) -> None:
    base = {"calc.py": b"def add(a, b):\n    return a - b\n", "test_zero.py": _test("zero", 2, 0)}
    base[".github/patchwright.toml"] = CONFIG.encode()
    clones = directory / "clones"
    clones.mkdir()
    rows = []
    for number in range(count):
        files = {**base, "number.py": f"NUMBER = {number}\n".encode()}
        repository = await BuiltRepository.create(clones / f"acme__calc-{number:03}", files)
        fixed = {**files, "calc.py": files["calc.py"].replace(b"-", b"+")}
        tested = {**files, "test_hidden.py": _test("hidden", 2, 3)}
        row = {
            "instance_id": f"acme__calc-{number:03}",
            "repo": f"acme/calc-{number:03}",
            "base_commit": repository.commit,
            "problem_statement": f"add() subtracts, case {number:03}\n\nadd(2, 3) gives -1.",
            "patch": await repository.diff(fixed),
            "test_patch": await repository.diff(tested),
            "FAIL_TO_PASS": json.dumps(["test_hidden (test_hidden.hidden)"]),
            "PASS_TO_PASS": "[]",
        }
        rows.append(json.dumps(row) + "\n")
    (directory / "issues.jsonl").write_text("".join(rows))


@dataclass(frozen=True)
class Command:
    """The command line of the evaluation, in its own process."""

    directory: Path
    base_url: str

    async def start(self, *options: str) -> asyncio.subprocess.Process:
        environment = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.directory),
            "PATCHWRIGHT_DATA": str(self.directory / "data"),
            "PATCHWRIGHT_MODEL_API_KEY": "sk-benchmark",
            "PATCHWRIGHT_SANDBOX_FEATURES": "none",
        }
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "patchwright", "evaluate", "issues.jsonl", "--out", "results"),
            *("--repositories", "clones", "--sandbox", "local", "--model", "openai/scripted"),
            *("--base-url", self.base_url, *options),
            cwd=self.directory,
            env=environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=None if "VERBOSE" in os.environ else asyncio.subprocess.DEVNULL,
        )

    async def run_until(self, results: int) -> None:
        """Kills the command when this number of results is stored. Raises RuntimeError if it ends before."""
        process = await self.start("--workers", str(WORKERS))
        while sum(1 for _ in (self.directory / "results" / "attempts").glob("*.json")) < results:
            if process.returncode is not None:
                raise RuntimeError(f"the evaluation ended with {process.returncode} before it was killed")
            await asyncio.sleep(0.05)
        process.kill()
        await process.wait()

    async def finish(self, *options: str) -> None:
        """Raises RuntimeError if an attempt has no result."""
        process = await self.start(*options)
        if code := await process.wait():
            raise RuntimeError(f"the evaluation ended with {code}")


@dataclass(frozen=True)
class Outcome:
    """What is on the disk afterwards, and what the model received."""

    attempts: Sequence[AttemptResult]
    started_twice: int
    logged: int
    """Replies of the model in all logs."""
    received: int
    repeated: int

    @classmethod
    def read(cls, results: Path, model: InstantModel) -> "Outcome":
        _, _, attempts = read_report_inputs(results)
        logs = FileLogStore(results / "runs")
        logged = started_twice = 0
        for attempt in attempts:
            trajectory = logs.read(RunId(attempt.run))
            logged += sum(isinstance(event, ModelReply) for event in trajectory)
            started_twice += sum(isinstance(event, RunStarted) for event in trajectory) != 1
        return cls(attempts, started_twice, logged, len(model.requests), model.count_repeated())


async def evaluate(directory: Path, count: int) -> list[Result]:
    await _write_data_set(directory, count)
    results = directory / "results"
    async with InstantModel() as model:
        command, started_at = Command(directory, model.base_url), time.monotonic()
        for kill in range(KILLS):
            await command.run_until((kill + 1) * count // (KILLS + 1))
        await command.finish("--workers", str(WORKERS))
        minutes = (time.monotonic() - started_at) / 60
        outcome = Outcome.read(results, model)
    instances = Counter(attempt.instance for attempt in outcome.attempts)
    figures: Mapping[str, tuple[float, float | None, str]] = {
        "resolved_once": (sum(each.resolved for each in outcome.attempts), count, ""),
        "lost": (count - len(instances), 0, ""),
        "made_twice": (outcome.started_twice + len(outcome.attempts) - len(instances), 0, ""),
        "paid_twice": (max(outcome.repeated, outcome.received - outcome.logged), 0, ""),
        "steps": (outcome.logged, None, ""),
        "minutes": (minutes, None, "min"),
        "harness": (statistics.median(each.harness_seconds for each in outcome.attempts), 5, "s"),
    }
    return [_result(name, *figure) for name, figure in figures.items()]


def _result(name: str, value: float, target: float | None, unit: str) -> Result:
    more: dict[str, Any] = {"better": "higher"} if name == "resolved_once" else {}
    return Result(
        name=f"killed_evaluation_{name}", value=round(value, 1), unit=unit, floor=None, target=target, **more
    )


def measure(count: int = INSTANCES) -> list[Result]:
    """Returns what was lost, and what was paid twice."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(evaluate(Path(directory), count))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--instances", type=int, default=INSTANCES)
    report(measure(parser.parse_args().instances))
