"""A program can start, observe, message, pause and resume a run in any sandbox."""

import asyncio
import os
from pathlib import Path
from typing import Literal

import pytest

from patchwright.bot.composition.composition_root import IMAGE_VARIABLES, read_settings, select_variables
from patchwright.bot.composition.sandbox_factory import build_sandboxes, prepare_sandboxes
from patchwright.bot.github_action.null_objects import NullSandboxes
from patchwright.resolver.domain import Issue, Job, JobId, Repo, RunId, User
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.events import (
    AgentStopped,
    Entry,
    Message,
    ModelReply,
    ToolResult,
    Trajectory,
    VerificationCompleted,
)
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.pipeline.publish import Attempt
from patchwright.resolver.pipeline.resolve import resolve_local
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.actions import ReplaceText, RunShell
from tests.resolver.agent_runs import FINISH
from tests.resolver.git_repository import HOST_ENVIRONMENT, Repository
from tests.resolver.patch_verifier import BUG, TESTS
from tests.resolver.scripted_model import ScriptedModel

JOB = Job(id=JobId("run"), repo=Repo(owner="local", name="calc"), number=1, requester=None)
ISSUE = Issue(
    number=1,
    title="add() subtracts",
    body="It should add.",
    author=User(id=1, login="someone"),
    trusted=True,
    open=True,
    url="",
)
FIX = ReplaceText(path="calc.py", old="a - b", new="a + b")
LOOK = RunShell(command="cat calc.py")
COMMENT = Message(text="Mind negative numbers.", source="comment", trigger_id=JobId("a comment"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", pytest.param("docker", marks=pytest.mark.docker)])
async def test_a_library_user_can_observe_pause_message_and_resume_a_run(
    kind: Literal["local", "docker"], tmp_path: Path
) -> None:
    repository = Repository(tmp_path / "calc")
    repository.commit({"calc.py": BUG, "tests/test_calc.py": TESTS})
    wanted = {"data": tmp_path / "data", "sandbox": kind, "sandbox_features": "none"}
    settings = read_settings(wanted, select_variables(os.environ, IMAGE_VARIABLES), None, None)
    sandboxes = build_sandboxes(settings, HOST_ENVIRONMENT, notify=print)
    await prepare_sandboxes(sandboxes, settings)
    assert type(sandboxes).__name__ == {"local": "LocalSandboxes", "docker": "DockerSandboxes"}[kind]
    entries: list[Entry] = []
    paused = asyncio.Event()

    def listen(entry: Entry) -> None:
        entries.append(entry)
        if isinstance(entry.event, ToolResult):
            paused.set()

    async def get_new_comments(job: Job, trajectory: Trajectory) -> tuple[Message, ...]:
        return () if COMMENT in list(trajectory) else (COMMENT,)

    def build_dependencies(model: ScriptedModel, **more: object) -> RunDependencies:
        return RunDependencies(
            settings=settings,
            model=model,
            sandboxes=sandboxes,
            workspaces=WorkspaceFactory(settings.data / "cache"),
            logs=FileLogStore(settings.data / "runs"),
            secrets=Secrets(),
            listeners=(listen,),
            **more,  # type: ignore[arg-type]
        )

    try:
        first = asyncio.create_task(
            resolve_local(
                JOB,
                ISSUE,
                repository.path,
                build_dependencies(ScriptedModel([FIX, RunShell(command="sleep 600")])),
            )
        )
        async with asyncio.timeout(120):
            await paused.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        state = FileLogStore(settings.data / "runs").read(RunId("run"))
        assert (state.agent_stopped, state.usage().steps in (1, 2)) == (None, True)
        # Every stored entry was passed to the listener, in order, once.
        assert list(state.entries) == entries

        # The first finish call is rejected because no tests ran. After the second one, the agent is told that no
        # test shows the fix.
        model = ScriptedModel([LOOK, FINISH, FINISH, FINISH])
        tried, trajectory = await resume_run(
            build_dependencies(model, get_new_messages=get_new_comments), repository.path
        )
    finally:
        await sandboxes.close()
    assert tried.agent_stopped.reason == "finished"
    assert "+    return a + b" in tried.patch.diff.decode()
    assert tried.verdict.kind == "unproven"  # Nothing that failed before passes now.
    assert "Mind negative numbers." in str(model.requests[-1])
    assert list(trajectory.entries) == entries
    assert [
        sum(isinstance(event, kind) for event in trajectory) for kind in (AgentStopped, VerificationCompleted)
    ] == [2, 2]
    assert trajectory.usage().steps == len([event for event in trajectory if isinstance(event, ModelReply)])


async def test_an_unreachable_model_ends_a_run_before_a_sandbox_is_made(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "calc")
    repository.commit({"calc.py": BUG})
    settings = Settings(data=tmp_path / "data", model="openai/x", model_base_url="http://127.0.0.1:9/v1")
    dependencies = RunDependencies(
        settings=settings,
        model=ScriptedModel([]),
        sandboxes=NullSandboxes(),
        workspaces=WorkspaceFactory(settings.data / "cache"),
        logs=FileLogStore(settings.data / "runs"),
        secrets=Secrets(),
    )
    with pytest.raises(SettingsError, match=r"The model's endpoint 127\.0\.0\.1:9 cannot be reached"):
        await resume_run(dependencies, repository.path)


async def resume_run(dependencies: RunDependencies, path: Path) -> tuple[Attempt, Trajectory]:
    """Runs the same job again, which resumes its run."""
    return await resolve_local(JOB, ISSUE, path, dependencies)
