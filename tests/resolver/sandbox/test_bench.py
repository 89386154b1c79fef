"""A sandbox that is lost in mid-run: a new one, from the last checkpoint, and the model hears why."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from resolver.domain import Issue, Job, Repo, RunId, User
from resolver.events import Observed, Started, Told
from resolver.kit import Kit
from resolver.log import FileLogs
from resolver.resolve import resolve_path
from resolver.sandbox.bench import REBUILDS, Bench, at_bench
from resolver.secrets import Secrets
from resolver.settings.settings import build
from resolver.workspace import Workspaces
from runtime.actions import ReplaceText, RunShell, SandboxAction
from runtime.errors import OutOfMemory, ProtocolBroken, SandboxError, SandboxLost
from runtime.local import LocalSandboxes
from runtime.observations import Failed, Observation
from runtime.sandbox import Sandbox
from tests.resolver.agents import FINISH, lost_in
from tests.resolver.proofs import BUG, TESTS
from tests.resolver.repositories import HOST, Repository
from tests.resolver.scripted import Line, Scripted

FIX = ReplaceText(path="calc.py", old="a - b", new="a + b")


class Fragile:
    """A sandbox that is lost when it is asked to run `perish`."""

    def __init__(self, sandbox: Sandbox, error: SandboxError) -> None:
        self._sandbox = sandbox
        self._error = error
        self.root, self.scratch = sandbox.root, sandbox.scratch

    async def act(self, action: SandboxAction) -> Observation:
        if action == RunShell(command="perish"):
            raise self._error
        return await self._sandbox.act(action)


class Mortal(LocalSandboxes):
    """Local sandboxes that are lost; those of tests are not."""

    def __init__(self, parent: Path, error: SandboxError) -> None:
        super().__init__(parent, HOST)
        self.opened = 0
        self._error = error

    @asynccontextmanager
    async def open(self, name: str, *, online: bool = False, kept: bool = False) -> AsyncIterator[Sandbox]:
        async with super().open(name, online=online, kept=kept) as sandbox:
            self.opened += name.endswith("-agent")
            yield Fragile(sandbox, self._error)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    repository = Repository(tmp_path / "calc")
    repository.commit({"calc.py": BUG, "tests/test_calc.py": TESTS})
    return repository.path


async def run(path: Path, place: Path, error: SandboxError, *script: Line) -> tuple[Mortal, FileLogs, str]:
    sandboxes = Mortal(place / "sandboxes", error)
    kit = Kit(
        settings=build({"data": place}, "the test"),
        model=Scripted(script),
        sandboxes=sandboxes,
        workspaces=Workspaces(place / "cache"),
        logs=FileLogs(place / "runs"),
        secrets=Secrets(),
    )
    job = Job(id=RunId("run"), repo=Repo(owner="local", name="calc"), number=1, requester=None)
    someone = User(id=1, login="someone")
    issue = Issue(
        number=1,
        title="add() subtracts",
        body="It should add.",
        author=someone,
        trusted=True,
        open=True,
        url="",
    )
    tried, _ = await resolve_path(job, issue, path, kit)
    return sandboxes, FileLogs(place / "runs"), tried.patch.diff.decode()


async def test_a_lost_sandbox_is_replaced_and_the_work_goes_on_from_the_checkpoint(
    path: Path, tmp_path: Path
) -> None:
    lost = SandboxLost("the container was removed")
    script = (
        FIX,
        RunShell(command="perish"),
        RunShell(command="cat calc.py"),
        FINISH,
        FINISH,
    )  # once sent back
    sandboxes, logs, diff = await run(path, tmp_path, lost, *script)
    assert sandboxes.opened == 2
    assert "+    return a + b" in diff
    trajectory = logs.read(RunId("run"))
    assert lost_in(trajectory) == 1
    told = [event.text for event in trajectory if isinstance(event, Told) and event.source == "resume"]
    assert len(told) == 1 and told[0].startswith("The sandbox was lost: the container was removed.")
    answers = [event.observation for event in trajectory if isinstance(event, Observed)]
    assert isinstance(answers[1], Failed) and answers[1].reason == "lost"
    assert "return a + b" in str(answers[2])


async def test_a_sandbox_that_is_lost_again_and_again_ends_the_try(path: Path, tmp_path: Path) -> None:
    full = OutOfMemory("the sandbox ran out of memory")
    perish = [RunShell(command="perish")] * (REBUILDS + 1)
    with pytest.raises(OutOfMemory):
        await run(path, tmp_path, full, *perish)
    assert isinstance(FileLogs(tmp_path / "runs").read(RunId("run")).started, Started)


async def test_a_machine_that_lies_is_not_given_another_try(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ProtocolBroken):
        await run(path, tmp_path, ProtocolBroken("no answer"), RunShell(command="perish"), FINISH)
    assert lost_in(FileLogs(tmp_path / "runs").read(RunId("run"))) == 0


async def test_a_sandbox_that_was_left_is_adopted_only_by_a_run_that_goes_on(tmp_path: Path) -> None:
    asked: list[str] = []

    class Left(LocalSandboxes):
        @asynccontextmanager
        async def adopt(self, name: str) -> AsyncIterator[Sandbox | None]:
            asked.append(name)
            async with self.open(name) as sandbox:
                yield sandbox

    async def work(bench: Bench) -> bool:
        return bench.adopted

    sandboxes = Left(tmp_path, HOST)
    assert await at_bench(sandboxes, "a", work, resumed=False) is False
    assert await at_bench(sandboxes, "b", work, resumed=True) is True
    assert asked == ["b"]
