"""Measures what verification costs besides the tests: the wait for the baseline, and the time to the first
verdict.

Real pytest in clean local sandboxes, on a repository of 2,000 tests in 100 files; each test sleeps for
20 ms. A change to one module fixes one of the 20 tests that call it. `proof_first_verdict` is the time from
the agent's end to the verdict on these 20 tests (every test with a different result runs again, with and
without the patch), as a share of the time for the full suite. `..._at_once` is the same for an agent that
finished before the baseline. `proof_waiting` is the time that a run waits for the baseline if its agent
takes longer than the suite: once at the start, so that the first message can include its result, and once
at the end. Floor of the verdicts: one run of these 20 tests by hand.

`proof_of_both_sides` is the whole proof of the patch with a suite of 10 s (25 files), from the baseline to the last
repetition, as a multiple of two runs of this suite by hand.
"""

import asyncio
import os
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.measure import Result, in_a_directory, report
from patchwright.resolver.domain import Patch, Verdict
from patchwright.resolver.git.workspaces import Workspace, WorkspaceFactory
from patchwright.resolver.pipeline.run_start import BASELINE_WAIT
from patchwright.resolver.proof.baseline import BaselineRuns
from patchwright.resolver.proof.verification import verify_patch
from patchwright.resolver.suites.execution import TestSetup
from patchwright.resolver.suites.suite import Suite, Suites
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes

FILES, TESTS, PAUSE = 100, 20, 0.02  # seconds
SECONDS = 600
SUITE = Suite(command="python3 -m pytest -q", runner="pytest", command_reason="")
SUITES = Suites(all=(SUITE,), primary=SUITE)
CHANGED = "module_42.py"
FILES_OF_10_SECONDS = range(30, 55)


def measure() -> list[Result]:
    return in_a_directory(_measure)


async def _measure(directory: Path) -> list[Result]:
    tree = _repository(directory / "tree", range(FILES))
    short = _repository(directory / "short", FILES_OF_10_SECONDS)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    sandboxes = LocalSandboxes(directory / "sandboxes", os.environ | {"PATH": path})
    async with AsyncExitStack() as stack:
        workspace = await stack.enter_async_context(WorkspaceFactory(directory / "cache").local(tree))
        patch = _patch(tree, workspace)
        bases = await stack.enter_async_context(BaselineRuns(workspace, sandboxes, "known", SECONDS))
        started_at = time.perf_counter()
        base = await bases.start(SUITE)
        suite = time.perf_counter() - started_at
        assert (base.passed_count, base.failed_count) == (FILES * TESTS - 1, 1), base
        waited = await _waited(workspace, sandboxes)
        first = await _first(workspace, patch, sandboxes, bases)
        async with BaselineRuns(workspace, sandboxes, "unknown", SECONDS) as unknown:
            unknown.start(SUITE)
            at_once = await _first(workspace, patch, sandboxes, unknown)
        short_workspace = await stack.enter_async_context(
            WorkspaceFactory(directory / "short-cache").local(short)
        )
        whole = await _prove(short_workspace, _patch(short, short_workspace), sandboxes)
    floor = 100 * _by_hand(tree, path, f"test_{CHANGED}") / suite
    twice = _by_hand(short, path, "") + _by_hand(short, path, "")
    return [
        Result(name="proof_waiting", value=waited, unit="s", floor=0, target=1),
        Result(name="proof_first_verdict", value=100 * first / suite, unit="%", floor=floor, target=10),
        Result(
            name="proof_first_verdict_at_once",
            value=100 * at_once / suite,
            unit="%",
            floor=floor,
            target=None,
        ),
        Result(name="proof_of_both_sides", value=whole / twice, unit="x", floor=1, target=1.3),
    ]


async def _first(workspace: Workspace, patch: Patch, sandboxes: LocalSandboxes, bases: BaselineRuns) -> float:
    """Returns the seconds to the first verdict, which ends verification."""
    verdicts: list[Verdict] = []

    async def enough(verdict: Verdict) -> bool:
        verdicts.append(verdict)
        return True

    started_at = time.perf_counter()
    await verify_patch(workspace, patch, TestSetup(SUITES, sandboxes, "proof", SECONDS), bases, enough)
    elapsed = time.perf_counter() - started_at
    (verdict,) = verdicts
    assert (verdict.kind, verdict.partial, len(verdict.fail_to_pass)) == ("fixed", True, 1), verdict
    return elapsed


async def _prove(workspace: Workspace, patch: Patch, sandboxes: LocalSandboxes) -> float:
    """Returns the seconds of the baseline and of the whole verification, with a suite of 10 seconds."""
    started_at = time.perf_counter()
    async with BaselineRuns(workspace, sandboxes, "whole", SECONDS) as bases:
        await bases.start(SUITE)
        setup = TestSetup(SUITES, sandboxes, "whole", SECONDS)
        verdict = await verify_patch(workspace, patch, setup, bases)
    elapsed = time.perf_counter() - started_at
    assert (verdict.kind, verdict.partial, len(verdict.fail_to_pass)) == ("fixed", False, 1), verdict
    return elapsed


async def _waited(workspace: Workspace, sandboxes: LocalSandboxes) -> float:
    """Returns the seconds of a run that are spent only on waiting for the baseline, here with a suite of 20
    tests.
    """
    short = Suite(command=f"{SUITE.command} test_module_1.py", runner="pytest", command_reason="")
    async with BaselineRuns(workspace, sandboxes, "short", SECONDS) as bases:
        before = bases.start(short)
        started_at = time.perf_counter()
        await asyncio.wait({before}, timeout=BASELINE_WAIT)
        waited = time.perf_counter() - started_at
        await asyncio.wait({before})  # the agent works a little longer than the baseline
        await asyncio.sleep(0.5)
        started_at = time.perf_counter()
        await bases.start(short)
        return waited + time.perf_counter() - started_at


def _by_hand(tree: Path, path: str, files: str) -> float:
    started_at = time.perf_counter()
    subprocess.run(
        ["sh", "-c", f"python3 -m pytest -q {files}"],
        cwd=tree,
        env={"PATH": path},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    return time.perf_counter() - started_at


def _repository(tree: Path, numbers: range) -> Path:
    tree.mkdir()
    for number in numbers:
        name = f"module_{number}"
        wrong = f"module_{number}.py" == CHANGED
        (tree / f"{name}.py").write_text(
            f"def twice(n):\n    return {'3 if n == 1 else ' if wrong else ''}2 * n\n"
        )
        tests = "".join(
            f"\n\ndef test_{n}():\n    time.sleep({PAUSE})\n    assert twice({n}) == {2 * n}\n"
            for n in range(TESTS)
        )
        (tree / f"test_{name}.py").write_text(f"import time\n\nfrom {name} import twice\n{tests}")
    _git(tree, "init", "--quiet", "--initial-branch=main")
    _git(tree, "add", "--all")
    _git(tree, "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "--quiet", "-m", "All")
    return tree


def _patch(tree: Path, workspace: Workspace) -> Patch:
    file = tree / CHANGED
    wrong = file.read_text()
    file.write_text(wrong.replace("3 if n == 1 else ", ""))
    diff = _git(tree, "diff", "--binary", "--full-index")
    file.write_text(wrong)
    return Patch(base_sha=workspace.base, diff=diff)


def _git(tree: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(tree), *arguments], capture_output=True, check=True).stdout


if __name__ == "__main__":
    report(measure())
