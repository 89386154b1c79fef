"""When the work tree is written down: as seldom as can be, and never too seldom."""

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from resolver.agent import Agent, begin
from resolver.domain import Patch, RunId
from resolver.events import Checkpointed
from resolver.git.tree import mark
from resolver.log import FileLog, FileLogs
from resolver.rules import Limits
from resolver.tools.sandboxed import sandbox_tools
from resolver.tools.talk import talk_tools
from resolver.tools.tool import Tools
from resolver.workspace import Workspaces
from runtime.actions import RunShell
from runtime.sandbox import Sandboxes
from tests.resolver.agents import FINISH, Box, create, patch
from tests.resolver.repositories import Repository
from tests.resolver.scripted import Line, Scripted

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
async def log(tmp_path: Path) -> AsyncIterator[FileLog]:
    async with FileLogs(tmp_path / "runs").open(RunId("run")) as log:
        yield log


class Watched(Box):
    """A sandbox of paper whose mark is the length of its tree, and that counts the looks at it."""

    looks = 0
    known = True

    async def mark(self) -> str | None:
        return str(len(self.tree)) if self.known else None

    async def patch(self) -> Patch:
        self.looks += 1
        return patch(*self.tree)


async def work(log: FileLog, box: Watched, *script: Line, steps: int = 100) -> None:
    worker = Agent(
        Scripted(script, usd=Decimal("0.01")),
        Tools((*sandbox_tools(box), *talk_tools())),
        Limits(steps=steps),
        checkpoint=box.patch,
        mark=box.mark,
        scratch=box.scratch,
    )
    await begin(log, "You mend.", "Issue 7", worker.tools)
    await worker.run(log)


async def test_a_tree_with_the_same_mark_is_not_looked_at_again_until_the_end(log: FileLog) -> None:
    box, reads = Watched(), [RunShell(command=f"cat {n}") for n in range(10)]
    await work(log, box, *reads, create("a"), *reads, FINISH)
    assert box.looks == 3  # at the first command, after the edit, before the ending
    assert log.trajectory.checkpoint() == patch("a")


async def test_a_tree_without_a_mark_is_looked_at_after_every_command(log: FileLog) -> None:
    box = Watched()
    box.known = False
    await work(log, box, *[RunShell(command=f"cat {n}") for n in range(10)], FINISH)
    assert box.looks == 11


async def test_what_is_written_while_the_tree_is_looked_at_is_not_missed(log: FileLog) -> None:
    class Busy(Watched):
        async def patch(self) -> Patch:
            seen = await super().patch()
            if "late" not in self.tree:
                self.tree.append("late")  # the look was too early for it
            return seen

    await work(log, Busy(), create("a"), RunShell(command="cat a"), FINISH)
    saved = [event.patch for event in log.trajectory if isinstance(event, Checkpointed)]
    assert saved == [patch("a"), patch("a", "late")]


@pytest.mark.parametrize("steps", [2, 100])
async def test_what_no_mark_tells_is_in_the_last_checkpoint_however_the_run_ends(
    log: FileLog, steps: int
) -> None:
    class Silent(Watched):
        async def mark(self) -> str | None:
            return "always the same"

    box = Silent()

    def behind(action: object) -> None:
        if action == RunShell(command="two"):
            box.tree.append("behind")

    box.before = behind
    await work(log, box, RunShell(command="one"), RunShell(command="two"), FINISH, steps=steps)
    assert [event.kind for event in log.trajectory][-2:] == ["checkpointed", "ended"]
    assert log.trajectory.checkpoint() == patch("behind")


async def test_a_real_run_misses_nothing_that_background_jobs_write(
    workspaces: Workspaces, sandboxes: Sandboxes, repository: Repository, log: FileLog
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
        await workspace.send(sandbox)
        worker = Agent(
            Scripted(script, usd=Decimal("0.01")),
            Tools((*sandbox_tools(sandbox), *talk_tools())),
            Limits(),
            checkpoint=lambda: workspace.take_patch(sandbox),
            mark=lambda: mark(sandbox),
            scratch=sandbox.scratch,
        )
        await begin(log, "You mend.", "Issue 7", worker.tools)
        await worker.run(log)
        saved = [event.patch.diff for event in log.trajectory if isinstance(event, Checkpointed)]
    assert b"sub/c.py" in saved[0] and b"a.py" not in saved[0]
    assert b"+% = 1" in saved[-1] and b"sub/c.py" in saved[-1]
    assert [event.kind for event in log.trajectory][-2:] == ["checkpointed", "ended"]
