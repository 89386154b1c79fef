"""Checks an instance before a model is paid for it: the reference fix must resolve it, and no change must not."""

from patchwright.evaluation.hidden_tests import HiddenTests, Score, grade
from patchwright.resolver.domain import Patch
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.output_text import clip_line

MAX_PROBLEM = 600  # characters of an installer's output
MAX_OUTPUT = 2_000  # characters


class ControlResult(FrozenModel):
    """Whether an instance can be used, and the tests that decide it."""

    instance: str
    problem: str = ""
    """Why the instance is broken, and left out of the score; empty if it can be used."""
    image: str = ""
    """The instance's own Docker image, if it was used."""
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    gold_resolved: bool = False
    empty_resolved: bool = False
    seconds: float = 0.0
    """Duration of the test runs."""
    output: str = ""
    """End of the tests' output with the reference fix, if the instance is broken."""


async def check_instance(tests: HiddenTests) -> ControlResult:
    """Runs the hidden tests on the reference fix and on the unchanged code."""
    instance, base = tests.instance, tests.workspace.base
    gold_patch = Patch(base_sha=base, diff=instance.gold_patch.encode())
    gold = await tests.run(gold_patch, "gold")
    empty = await tests.run(Patch(base_sha=base, diff=b""), "empty")
    fail_to_pass, pass_to_pass = instance.fail_to_pass, instance.pass_to_pass
    seconds = gold.seconds + empty.seconds
    if not fail_to_pass and not pass_to_pass:
        again = await tests.run(gold_patch, "gold-again")  # A test that passes only sometimes shows nothing.
        stable = gold.passed & again.passed
        seconds += again.seconds
        fail_to_pass = tuple(sorted(stable - empty.passed))
        pass_to_pass = tuple(sorted(stable & empty.passed))
    gold_score, empty_score = (grade(run, fail_to_pass, pass_to_pass) for run in (gold, empty))
    problem = _find_problem(gold_score, empty_score)
    if problem and tests.setup_problem:
        problem += f" Not all dependencies could be installed: {clip_line(tests.setup_problem, MAX_PROBLEM)}"
    return ControlResult(
        instance=instance.id,
        problem=problem,
        fail_to_pass=fail_to_pass,
        pass_to_pass=pass_to_pass,
        gold_resolved=gold_score.resolved,
        empty_resolved=empty_score.resolved,
        seconds=seconds,
        output=gold.output[-MAX_OUTPUT:] if problem else "",
    )


def _find_problem(gold: Score, empty: Score) -> str:
    if gold.problem:
        return f"The hidden tests cannot run with the reference fix. {gold.problem}"
    if not gold.fail_to_pass and not gold.still_failing:
        return "No hidden test fails before the reference fix and passes after it."
    if not gold.resolved:
        failing = (*gold.still_failing, *gold.regressions)
        return f"{len(failing)} of the hidden tests fail with the reference fix, such as {failing[0]}."
    if empty.resolved:
        return "All hidden tests pass without any change."
    return ""
