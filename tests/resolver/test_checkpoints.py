"""Checkpoints of the work tree are taken as rarely as possible, and never too rarely."""

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from patchwright.resolver.agent.agent import Agent, record_prompts
from patchwright.resolver.domain import Patch, RunId
from patchwright.resolver.events import Checkpoint
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.git.worktree_patch import WorktreePatch
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import FileLogStore, FileRunLog
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.runtime.actions import RunShell
from patchwright.runtime.sandbox import Sandboxes
from tests.resolver.agent_runs import FINISH, FakeSandbox, create_file, make_patch
from tests.resolver.git_repository import Repository
from tests.resolver.scripted_model import ScriptedModel, ScriptLine

MAPS = """python3 -c '
import mmap, os, time
held = mmap.mmap(os.open("a.py", os.O_RDWR), 0)
print("mapped", flush=True)
while not os.path.exists(os.environ["TMPDIR"] + "/go"): time.sleep(0.01)
held[0:1] = b"%"
open(os.environ["TMPDIR"] + "/gone", "w").close()
time.sleep(60)
' & sleep 0.3"""


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[FileRunLog]:
    async with FileLogStore(tmp_path / "runs").open(RunId("run")) as log:
        yield log


class FingerprintedSandbox(FakeSandbox):
    """A fake sandbox that counts its diffs. Its fingerprint is the length of its tree."""

    looks = 0
    known = True

    async def mark(self) -> str | None:
        return str(len(self.tree)) if self.known else None

    async def patch(self) -> Patch:
        self.looks += 1
        return make_patch(*self.tree)


async def work(log: FileRunLog, box: FingerprintedSandbox, *script: ScriptLine, steps: int = 100) -> None:
    worker = Agent(
        ScriptedModel(script, usd=Decimal("0.01")),
        ToolRegistry((*build_sandbox_tools(box), *build_control_tools())),
        Limits(steps=steps),
        take_patch=box.patch,
        fingerprint_tree=box.mark,
        scratch=box.scratch,
    )
    await record_prompts(log, "You fix.", "Issue 7", worker.tools)
    await worker.run(log)


async def test_a_tree_with_the_same_fingerprint_is_not_diffed_again_until_the_end(log: FileRunLog) -> None:
    box, reads = FingerprintedSandbox(), [RunShell(command=f"cat {n}") for n in range(10)]
    await work(log, box, *reads, create_file("a"), *reads, FINISH)
    assert box.looks == 3  # After the first command, after the edit, and before the stop.
    assert log.trajectory.last_checkpoint() == make_patch("a")


async def test_a_tree_without_a_fingerprint_is_diffed_after_every_command(log: FileRunLog) -> None:
    box = FingerprintedSandbox()
    box.known = False
    await work(log, box, *[RunShell(command=f"cat {n}") for n in range(10)], FINISH)
    assert box.looks == 11


async def test_a_write_during_a_diff_is_in_the_next_checkpoint(log: FileRunLog) -> None:
    class Busy(FingerprintedSandbox):
        async def patch(self) -> Patch:
            result = await super().patch()
            if "late" not in self.tree:
                self.tree.append("late")  # Written after the diff was taken.
            return result

    await work(log, Busy(), create_file("a"), RunShell(command="cat a"), FINISH)
    saved = [event.patch for event in log.trajectory if isinstance(event, Checkpoint)]
    assert saved == [make_patch("a"), make_patch("a", "late")]


@pytest.mark.parametrize("steps", [2, 100])
async def test_a_change_that_the_fingerprint_misses_is_in_the_last_checkpoint(
    log: FileRunLog, steps: int
) -> None:
    class Silent(FingerprintedSandbox):
        async def mark(self) -> str | None:
            return "always the same"

    box = Silent()

    def behind(action: object) -> None:
        if action == RunShell(command="two"):
            box.tree.append("behind")

    box.before = behind
    await work(log, box, RunShell(command="one"), RunShell(command="two"), FINISH, steps=steps)
    assert [event.kind for event in log.trajectory][-2:] == ["checkpoint", "agent_stopped"]
    assert log.trajectory.last_checkpoint() == make_patch("behind")


async def test_a_real_run_checkpoints_the_writes_of_background_jobs(
    workspaces: WorkspaceFactory, sandboxes: Sandboxes, repository: Repository, log: FileRunLog
) -> None:
    repository.commit({"a.py": "x = 1\n", "sub/b.py": "y = 2\n"})
    wait = 'until [ -e "$TMPDIR/gone" ]; do sleep 0.01; done'
    script = (
        RunShell(command='(until [ -e "$TMPDIR/write" ]; do sleep 0.01; done; echo z >sub/c.py) & sleep 0.1'),
        RunShell(command='touch "$TMPDIR/write"; sleep 0.3'),
        RunShell(command="cat a.py"),
        RunShell(command=MAPS),
        RunShell(command=f'touch "$TMPDIR/go"; {wait}'),
        FINISH,
    )
    async with workspaces.local(repository.path) as workspace, sandboxes.open("agent") as sandbox:
        await workspace.send_to(sandbox)
        worktree_patch = WorktreePatch(workspace, sandbox)
        worker = Agent(
            ScriptedModel(script, usd=Decimal("0.01")),
            ToolRegistry((*build_sandbox_tools(sandbox), *build_control_tools())),
            Limits(),
            take_patch=worktree_patch.take,
            fingerprint_tree=worktree_patch.read_fingerprint,
            scratch=sandbox.scratch,
        )
        await record_prompts(log, "You fix.", "Issue 7", worker.tools)
        await worker.run(log)
        saved = [event.patch.diff for event in log.trajectory if isinstance(event, Checkpoint)]
    assert b"sub/c.py" in saved[0] and b"a.py" not in saved[0]
    assert b"+% = 1" in saved[-1] and b"sub/c.py" in saved[-1]
    assert [event.kind for event in log.trajectory][-2:] == ["checkpoint", "agent_stopped"]
