"""A sandbox that is lost during a run is replaced from the last checkpoint, and the model gets a notice."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from patchwright.resolver.domain import Issue, Job, Repo, RunId, User
from patchwright.resolver.events import Message, RunStarted, ToolResult
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.pipeline.resolve import resolve_local
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.sandbox.session import MAX_REBUILDS, SandboxSession, run_in_sandbox
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import build_settings
from patchwright.runtime.actions import ReplaceText, RunShell, SandboxAction
from patchwright.runtime.errors import OutOfMemory, ProtocolError, SandboxError, SandboxLost
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.observations import ActionFailure, Observation
from patchwright.runtime.sandbox import Sandbox
from tests.resolver.agent_runs import FINISH, count_lost_calls
from tests.resolver.git_repository import HOST_ENVIRONMENT, Repository
from tests.resolver.patch_verifier import BUG, TESTS
from tests.resolver.scripted_model import ScriptedModel, ScriptLine

FIX = ReplaceText(path="calc.py", old="a - b", new="a + b")


class LosableSandbox:
    """A sandbox that is lost when it runs `perish`."""

    def __init__(self, sandbox: Sandbox, error: SandboxError) -> None:
        self._sandbox = sandbox
        self._error = error
        self.root, self.scratch = sandbox.root, sandbox.scratch

    async def act(self, action: SandboxAction) -> Observation:
        if action == RunShell(command="perish"):
            raise self._error
        return await self._sandbox.act(action)


class LosableSandboxes(LocalSandboxes):
    """Local sandboxes in which the agent's sandbox can be lost; those of test runs cannot."""

    def __init__(self, parent: Path, error: SandboxError) -> None:
        super().__init__(parent, HOST_ENVIRONMENT)
        self.opened = 0
        self._error = error

    @asynccontextmanager
    async def open(
        self, name: str, *, online: bool = False, adoptable: bool = False
    ) -> AsyncIterator[Sandbox]:
        async with super().open(name, online=online, adoptable=adoptable) as sandbox:
            self.opened += name.endswith("-agent")
            yield LosableSandbox(sandbox, self._error)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    repository = Repository(tmp_path / "calc")
    repository.commit({"calc.py": BUG, "tests/test_calc.py": TESTS})
    return repository.path


async def run(
    path: Path, place: Path, error: SandboxError, *script: ScriptLine
) -> tuple[LosableSandboxes, FileLogStore, str]:
    sandboxes = LosableSandboxes(place / "sandboxes", error)
    dependencies = RunDependencies(
        settings=build_settings({"data": place}),
        model=ScriptedModel(script),
        sandboxes=sandboxes,
        workspaces=WorkspaceFactory(place / "cache"),
        logs=FileLogStore(place / "runs"),
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
    tried, _ = await resolve_local(job, issue, path, dependencies)
    return sandboxes, FileLogStore(place / "runs"), tried.patch.diff.decode()


@pytest.mark.slow
async def test_a_lost_sandbox_is_replaced_and_the_run_continues_from_the_checkpoint(
    path: Path, tmp_path: Path
) -> None:
    lost = SandboxLost("the container was removed")
    script = (
        FIX,
        RunShell(command="perish"),
        RunShell(command="cat calc.py"),
        FINISH,
        FINISH,  # sent back once for the checks, and once for the verdict `unproven`
        FINISH,
    )
    sandboxes, logs, diff = await run(path, tmp_path, lost, *script)
    assert sandboxes.opened == 2
    assert "+    return a + b" in diff
    trajectory = logs.read(RunId("run"))
    assert count_lost_calls(trajectory) == 1
    messages = [event.text for event in trajectory if isinstance(event, Message) and event.source == "resume"]
    assert len(messages) == 1 and messages[0].startswith("The sandbox was lost: the container was removed.")
    answers = [event.observation for event in trajectory if isinstance(event, ToolResult)]
    assert isinstance(answers[1], ActionFailure) and answers[1].reason == "lost"
    assert "return a + b" in str(answers[2])


@pytest.mark.slow
async def test_a_sandbox_lost_repeatedly_ends_the_attempt(path: Path, tmp_path: Path) -> None:
    full = OutOfMemory("the sandbox ran out of memory")
    perish = [RunShell(command="perish")] * (MAX_REBUILDS + 1)
    with pytest.raises(OutOfMemory):
        await run(path, tmp_path, full, *perish)
    assert isinstance(FileLogStore(tmp_path / "runs").read(RunId("run")).run_started, RunStarted)


@pytest.mark.slow
async def test_a_protocol_violation_is_not_retried(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ProtocolError):
        await run(path, tmp_path, ProtocolError("no answer"), RunShell(command="perish"), FINISH)
    assert count_lost_calls(FileLogStore(tmp_path / "runs").read(RunId("run"))) == 0


@pytest.mark.parametrize("losses", [0, 1, MAX_REBUILDS, MAX_REBUILDS + 1])
async def test_a_lost_sandbox_is_replaced_a_few_times_and_the_work_learns_why(
    tmp_path: Path, losses: int
) -> None:
    reasons: list[str | None] = []

    async def work(session: SandboxSession) -> str:
        reasons.append(session.loss_reason)
        if len(reasons) <= losses:
            raise SandboxLost(f"loss {len(reasons)}")
        return "done"

    working = run_in_sandbox(LocalSandboxes(tmp_path, HOST_ENVIRONMENT), "a", work, resumed=False)
    if losses > MAX_REBUILDS:
        with pytest.raises(SandboxLost):
            await working
    else:
        assert await working == "done"
    replaced = min(losses, MAX_REBUILDS)
    assert reasons == [None, *(f"loss {number}" for number in range(1, replaced + 1))]


async def test_an_abandoned_sandbox_is_adopted_only_by_a_resumed_run(tmp_path: Path) -> None:
    received: list[str] = []

    class Left(LocalSandboxes):
        @asynccontextmanager
        async def adopt(self, name: str) -> AsyncIterator[Sandbox | None]:
            received.append(name)
            async with self.open(name) as sandbox:
                yield sandbox

    async def work(bench: SandboxSession) -> bool:
        return bench.is_adopted

    sandboxes = Left(tmp_path, HOST_ENVIRONMENT)
    assert await run_in_sandbox(sandboxes, "a", work, resumed=False) is False
    assert await run_in_sandbox(sandboxes, "b", work, resumed=True) is True
    assert received == ["b"]
