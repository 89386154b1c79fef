"""Compares our grading with that of SWE-bench's own harness.

Install `swebench` into an environment of its own, and set SWEBENCH_PYTHON to its Python. There are two parts:

1. Random results and lists of tests. Both graders must judge each of them in the same way.
2. Instances in the format of SWE-bench, three for each test runner (grading_fixtures.toml). Each is evaluated as
   `patchwright evaluate` does it, with the reference fix, without a change, and with a wrong fix that breaks other
   tests. SWE-bench's parser of the runner reads the output of the same run, and its harness grades the result.

Set PATCHWRIGHT_IMAGE to an image that has all test runners. An instance whose runner is missing is left out and
reported. `python -m benchmarks.grading vitest go` evaluates only the instances of these runners.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.grading_fixtures import load_fixtures
from benchmarks.measure import Result, report
from patchwright.bot.composition import composition_root
from patchwright.evaluation.checkouts import check_out
from patchwright.evaluation.hidden_tests import HiddenTestRun, HiddenTests, Score, grade
from patchwright.evaluation.instances import Instance
from patchwright.evaluation.practice_models import PracticeModel, use_practice_model
from patchwright.evaluation.swe_bench import read_row
from patchwright.resolver.domain import Patch, TestStatus
from patchwright.resolver.run.dependencies import RunDependencies

RANDOM_RESULTS = 20_000
# SWE-bench's names of results, and ours. As in the hidden tests, an expected failure has passed.
STATUSES: dict[str, TestStatus] = {
    "PASSED": "passed",
    "FAILED": "failed",
    "ERROR": "error",
    "SKIPPED": "skipped",
    "XFAIL": "passed",
}
PEER = Path(__file__).with_name("grading_peer.py")


class Case(NamedTuple):
    """What both graders judge: lists of tests, and either the results of a run, or its output."""

    name: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    score: Score
    """Our judgment."""
    statuses: dict[str, str] | None = None
    parser: str = ""
    output: str = ""

    def describe(self) -> dict[str, Any]:
        """Returns our judgment in the words of SWE-bench."""
        regressions = self.score.regressions
        return {
            "resolved": self.score.resolved,
            "fixed": list(self.score.fail_to_pass),
            "not_fixed": list(self.score.still_failing),
            "maintained": [test for test in self.pass_to_pass if test not in regressions],
            "broken": list(regressions),
        }


def make_random_cases() -> Iterator[Case]:
    """Yields results of tests with parameters, and lists in which the ids are cut at a space, as in SWE-bench."""
    rng = random.Random(21)
    for number in range(RANDOM_RESULTS):
        names = [
            f"tests/test_{rng.choice('ab')}.py::test_{rng.randrange(9)}" for _ in range(rng.randrange(8))
        ]
        tests = [name + rng.choice(("", "[a]", "[a b]", "[a c]", "[x[0] y]", "[(a b]")) for name in names]
        statuses = {test: rng.choice((*STATUSES, "PASSED", "PASSED")) for test in tests}
        listed = [test.split()[0] if rng.random() < 0.7 else test for test in tests] + [
            "tests/test_a.py::test_absent"
        ]
        passing, skipped = ([rng.choice(listed) for _ in range(rng.randrange(least, 4))] for least in (1, 0))
        ours = HiddenTestRun(statuses={test: STATUSES[status] for test, status in statuses.items()})
        fail_to_pass, pass_to_pass = tuple(passing), tuple(skipped)
        score = grade(ours, fail_to_pass, pass_to_pass)
        yield Case(f"random-{number}", fail_to_pass, pass_to_pass, score, statuses)


def ask_swebench(python: str, cases: list[Case]) -> list[dict[str, Any]]:
    """Returns the judgment of SWE-bench's harness on each case."""
    rows = [{**case._asdict(), "score": None} for case in cases]
    done = subprocess.run([python, "-P", str(PEER)], input=json.dumps(rows), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"swebench did not grade the results: {done.stderr[-2000:]}")
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


async def evaluate_fixtures(directory: Path, runners: Sequence[str]) -> tuple[list[Case], list[str]]:
    """Returns our judgment on each patch of each instance, and the instances that were left out."""
    settings = composition_root.read_settings({}, composition_root.read_environment(), None, None)
    settings = settings.model_copy(update={"data": directory / "data", "language_images": {}})
    cases: list[Case] = []
    left_out: list[str] = []
    async with PracticeModel("gold", ()) as model:
        settings = use_practice_model(settings, "gold", model.base_url)
        async with composition_root.build_run_dependencies(settings, notify=_print) as deps:
            for fixture in load_fixtures():
                if runners and fixture.runner not in runners:
                    continue
                for function in fixture.functions:
                    row, patches = await fixture.build_row(function, directory / "clones")
                    instance = read_row(row, directory / "clones")
                    runs = await _run_patches(instance, patches, directory, deps)
                    if runs["gold"].problem:
                        left_out.append(f"{instance.id}: {runs['gold'].problem}")
                        continue
                    cases += _judge(fixture.parser, instance, runs)
    return cases, left_out


def _judge(parser: str, instance: Instance, runs: dict[str, HiddenTestRun]) -> Iterator[Case]:
    fail_to_pass, pass_to_pass = instance.fail_to_pass, instance.pass_to_pass
    for name, run in runs.items():
        score = grade(run, fail_to_pass, pass_to_pass)
        _print(f"{instance.id} {name}: {'resolved' if score.resolved else 'not resolved'}")
        yield Case(
            f"{instance.id} {name}", fail_to_pass, pass_to_pass, score, parser=parser, output=run.output
        )


async def _run_patches(
    instance: Instance, patches: dict[str, str], directory: Path, deps: RunDependencies
) -> dict[str, HiddenTestRun]:
    async with (
        check_out(instance, directory / "checkouts", deps.workspaces) as checkout,
        deps.workspaces.local(checkout) as workspace,
    ):
        tests = await HiddenTests.prepare(instance, checkout, workspace, deps)
        return {
            name: await tests.run(Patch(base_sha=workspace.base, diff=diff.encode()), name)
            for name, diff in patches.items()
        }


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _count_differences(python: str, cases: list[Case]) -> int:
    different = 0
    for case, answer in zip(cases, ask_swebench(python, cases), strict=True):
        if answer != case.describe():
            different += 1
            _print(f"DIFFERENT {case.name}\n  SWE-bench:   {answer}\n  Patchwright: {case.describe()}")
    return different


def measure(runners: Sequence[str] = ()) -> list[Result]:
    """Returns how many results were graded, and in how many of them the two graders differ."""
    if (python := os.environ.get("SWEBENCH_PYTHON")) is None:
        raise RuntimeError("Set SWEBENCH_PYTHON to the Python of an environment with swebench")
    random_cases = list(make_random_cases())
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        cases, left_out = asyncio.run(evaluate_fixtures(Path(directory), runners))
    for text in left_out:
        _print(f"left out {text}")
    kinds = {
        kind: [case for case in cases if case.name.endswith(f" {kind}")]
        for kind in ("gold", "empty", "wrong")
    }
    resolved = {kind: sum(case.score.resolved for case in found) for kind, found in kinds.items()}
    figures: tuple[tuple[str, float, float | None], ...] = (
        ("random_results", len(random_cases), None),
        ("random_different", _count_differences(python, random_cases), 0),
        ("instances", len(kinds["gold"]), None),
        ("left_out", len(left_out), None),
        ("log_different", _count_differences(python, cases), 0),
        ("gold_not_resolved", len(kinds["gold"]) - resolved["gold"], 0),
        ("empty_resolved", resolved["empty"], 0),
        ("wrong_resolved", resolved["wrong"], 0),
    )
    return [
        Result(name=f"grading_{name}", value=value, unit="", floor=None, target=target)
        for name, value, target in figures
    ]


if __name__ == "__main__":
    report(measure(sys.argv[1:]))
