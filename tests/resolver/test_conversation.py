"""A run as a program of one's own holds it: begun, listened to, spoken to, paused, and gone on with; in any sandbox."""

import asyncio
import os
from pathlib import Path
from typing import Literal

import pytest

from bot.compose import FOR_IMAGES, only, read_settings
from bot.sandboxes import sandboxes_for
from resolver.deliver import Attempt
from resolver.domain import Issue, Job, JobId, Repo, RunId, User
from resolver.events import Decided, Ended, Entry, Judged, Observed, Told, Trajectory
from resolver.kit import Kit
from resolver.log import FileLogs
from resolver.resolve import resolve_path
from resolver.secrets import Secrets
from resolver.workspace import Workspaces
from runtime.actions import ReplaceText, RunShell
from tests.resolver.agents import FINISH
from tests.resolver.proofs import BUG, TESTS
from tests.resolver.repositories import HOST, Repository
from tests.resolver.scripted import Scripted

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
WORD = Told(text="Mind negative numbers.", source="comment", by=JobId("a comment"))


@pytest.mark.parametrize("kind", ["local", pytest.param("docker", marks=pytest.mark.docker)])
async def test_a_run_is_listened_to_paused_spoken_to_and_gone_on_with(
    kind: Literal["local", "docker"], tmp_path: Path
) -> None:
    repository = Repository(tmp_path / "calc")
    repository.commit({"calc.py": BUG, "tests/test_calc.py": TESTS})
    wanted = {"data": tmp_path / "data", "sandbox": kind, "plugins": "none"}
    settings = read_settings(wanted, only(os.environ, FOR_IMAGES), None, None)
    sandboxes = await sandboxes_for(settings, HOST, trusted=True, say=print)
    assert type(sandboxes).__name__ == {"local": "LocalSandboxes", "docker": "DockerSandboxes"}[kind]
    heard: list[Entry] = []
    paused = asyncio.Event()

    def listen(entry: Entry) -> None:
        heard.append(entry)
        if isinstance(entry.event, Observed):
            paused.set()

    async def said(job: Job, trajectory: Trajectory) -> tuple[Told, ...]:
        return () if WORD in list(trajectory) else (WORD,)

    def kit(model: Scripted, **more: object) -> Kit:
        return Kit(
            settings=settings,
            model=model,
            sandboxes=sandboxes,
            workspaces=Workspaces(settings.data / "cache"),
            logs=FileLogs(settings.data / "runs"),
            secrets=Secrets(),
            listeners=(listen,),
            **more,  # type: ignore[arg-type]
        )

    try:
        first = asyncio.create_task(
            resolve_path(JOB, ISSUE, repository.path, kit(Scripted([FIX, RunShell(command="sleep 600")])))
        )
        async with asyncio.timeout(120):
            await paused.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        state = FileLogs(settings.data / "runs").read(RunId("run"))
        assert (state.ended, state.spent().steps in (1, 2)) == (None, True)
        assert list(state.entries) == heard  # all that is kept was heard, in order, once

        model = Scripted([LOOK, FINISH, FINISH])  # once it is sent back to test
        tried, trajectory = await gone_on(kit(model, news=said), repository.path)
    finally:
        await sandboxes.close()
    assert tried.ending.reason == "finished"
    assert "+    return a + b" in tried.patch.diff.decode()
    assert tried.verdict.kind == "unproven"  # nothing that failed before passes now
    assert "Mind negative numbers." in str(model.asked[-1])
    assert list(trajectory.entries) == heard
    assert [sum(isinstance(event, kind) for event in trajectory) for kind in (Ended, Judged)] == [1, 1]
    assert trajectory.spent().steps == len([event for event in trajectory if isinstance(event, Decided)])


async def gone_on(kit: Kit, path: Path) -> tuple[Attempt, Trajectory]:
    """The same job once more is the same run."""
    return await resolve_path(JOB, ISSUE, path, kit)
