"""What the proof costs beside the tests themselves: the wait for the runs at base, and the time to the first verdict.

Real pytest in clean local sandboxes, on a repository of 2,000 tests in 100 files, each of which sleeps PAUSE. A change
to one module mends one of the 20 tests that call it. `proof_first_verdict` is the time from the agent's end to the
verdict on these 20 (with everything that differs run a second time, with the patch and without), as a share of the
time that the whole suite takes; `..._at_once` the same for an agent that was done before anything was known of base.
`proof_waiting` is what a run whose agent takes longer than the suite waits for the runs at base: at its beginning, so
that the first message can tell of them, and at its end. Floor of the verdicts: one run of these 20 tests by hand.
"""

import asyncio
import os
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.measure import Result, in_a_directory, report
from resolver.domain import Patch, Verdict
from resolver.preparing.preparing import BASELINE_WAIT
from resolver.proof.baseline import Bases
from resolver.suites.suite import Suite, Suites
from resolver.validate import prove
from resolver.workspace import Workspace, Workspaces
from runtime.local import LocalSandboxes

FILES, TESTS, PAUSE = 100, 20, 0.02  # seconds
SECONDS = 600
SUITE = Suite(command="python3 -m pytest -q", report="pytest", why="")
SUITES = Suites(all=(SUITE,), likely=SUITE)
CHANGED = "module_42.py"


def measure() -> list[Result]:
    return in_a_directory(_measure)


async def _measure(place: Path) -> list[Result]:
    tree = _repository(place / "tree")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    sandboxes = LocalSandboxes(place / "sandboxes", os.environ | {"PATH": path})
    async with AsyncExitStack() as stack:
        workspace = await stack.enter_async_context(Workspaces(place / "cache").local(tree))
        patch = _patch(tree, workspace)
        bases = await stack.enter_async_context(Bases(workspace, sandboxes, "known", SECONDS))
        began = time.perf_counter()
        base = await bases.begin(SUITE)
        suite = time.perf_counter() - began
        assert (base.passed, base.failed) == (FILES * TESTS - 1, 1), base
        waited = await _waited(workspace, sandboxes)
        first = await _first(workspace, patch, sandboxes, bases)
        async with Bases(workspace, sandboxes, "unknown", SECONDS) as unknown:
            unknown.begin(SUITE)
            at_once = await _first(workspace, patch, sandboxes, unknown)
    floor = 100 * _by_hand(tree, path) / suite
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
    ]


async def _first(workspace: Workspace, patch: Patch, sandboxes: LocalSandboxes, bases: Bases) -> float:
    """Seconds to the first verdict, with which the proof is content."""
    heard: list[Verdict] = []

    async def enough(verdict: Verdict) -> bool:
        heard.append(verdict)
        return True

    began = time.perf_counter()
    await prove(workspace, patch, SUITES, sandboxes, "proof", SECONDS, bases, enough)
    taken = time.perf_counter() - began
    (verdict,) = heard
    assert (verdict.kind, verdict.partial, len(verdict.newly_passing)) == ("fixed", True, 1), verdict
    return taken


async def _waited(workspace: Workspace, sandboxes: LocalSandboxes) -> float:
    """Seconds of a run that are spent on nothing but the runs at base; here of a suite of 20 tests."""
    short = Suite(command=f"{SUITE.command} test_module_1.py", report="pytest", why="")
    async with Bases(workspace, sandboxes, "short", SECONDS) as bases:
        before = bases.begin(short)
        began = time.perf_counter()
        await asyncio.wait({before}, timeout=BASELINE_WAIT)
        waited = time.perf_counter() - began
        await asyncio.wait({before})  # the agent works, and a little longer than they do
        await asyncio.sleep(0.5)
        began = time.perf_counter()
        await bases.begin(short)
        return waited + time.perf_counter() - began


def _by_hand(tree: Path, path: str) -> float:
    began = time.perf_counter()
    subprocess.run(
        ["python3", "-m", "pytest", "-q", f"test_{CHANGED}"],
        cwd=tree,
        env={"PATH": path},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    return time.perf_counter() - began


def _repository(tree: Path) -> Path:
    tree.mkdir()
    for number in range(FILES):
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
    return Patch(base=workspace.base, diff=diff)


def _git(tree: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(tree), *arguments], capture_output=True, check=True).stdout


if __name__ == "__main__":
    report(measure())
