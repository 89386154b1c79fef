"""Tasks whose answer is known: an issue in, a tree out, compared with the gold beside it (tests/tasks/README.md)."""

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from patchwright.bot.composition import composition_root
from patchwright.bot.terminal.local_files import read_issue
from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.resolver.domain import Job, JobId, Patch, Repo
from patchwright.resolver.pipeline.resolve import resolve_local
from patchwright.resolver.rendering.jinja_templates import set_template_directory
from patchwright.runtime.actions import ReplaceText, SandboxAction
from patchwright.runtime.observations import EditResult, Observation
from patchwright.runtime.sandbox import Sandbox, Sandboxes, WrapperSandbox
from tests.resolver.git_repository import Repository

TASKS = sorted(path.parent for path in (Path(__file__).parent / "tasks").glob("*/issue.md"))
KEY = "sk-task"
MAX_USD = "0.50"  # of a task with a real model


def tree(root: Path) -> dict[str, bytes]:
    """Every file below, by its path."""
    files = (
        path for path in root.rglob("*") if path.is_file() and ".git" not in path.relative_to(root).parts
    )
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def turns(task: Path) -> list[RecordedTurn]:
    return [RecordedTurn.model_validate(turn) for turn in json.loads((task / "turns.json").read_text())]


@dataclass
class Room:
    """Where one task is done."""

    place: Path

    async def done(
        self,
        task: Path,
        turns: list[RecordedTurn],
        sandboxes: Callable[[Sandboxes], Sandboxes] = lambda own: own,
        **environment: str,
    ) -> dict[str, bytes]:
        """The tree that the patch of a run makes, when the model says these turns."""
        async with RecordedModel(turns, key=KEY) as endpoint:
            model = {"MODEL": "openai/scripted", "MODEL_BASE_URL": endpoint.base_url, "MODEL_API_KEY": KEY}
            made = await self.resolved(task, sandboxes, model | environment)
        title = read_issue(task / "issue.md").title
        assert title in json.dumps(endpoint.requests[0]), "the issue does not reach the model"
        return made

    async def resolved(
        self, task: Path, sandboxes: Callable[[Sandboxes], Sandboxes], environment: dict[str, str]
    ) -> dict[str, bytes]:
        repository = Repository(self.place / task.name)
        repository.commit(tree(task / "repository"))
        here = {"DATA": str(self.place / "data"), "SANDBOX": "local", "SANDBOX_FEATURES": "none"}
        settings = composition_root.read_settings(
            {}, {f"PATCHWRIGHT_{name}": value for name, value in (here | environment).items()}, None, None
        )
        job = Job(id=JobId(task.name), repo=Repo(owner="local", name=task.name), number=1, requester=None)
        async with composition_root.build_run_dependencies(settings, notify=print) as dependencies:
            dependencies = replace(dependencies, sandboxes=sandboxes(dependencies.sandboxes))
            tried, _ = await resolve_local(job, read_issue(task / "issue.md"), repository.path, dependencies)
        return self.patched(repository.path, tried.patch)

    def patched(self, repository: Path, patch: Patch) -> dict[str, bytes]:
        copy = self.place / "patched"
        shutil.copytree(repository, copy)
        if not patch.is_empty:
            subprocess.run(["git", "apply", "-"], cwd=copy, input=patch.diff, check=True)
        return tree(copy)


@pytest.fixture
def room(short_tmp: Path) -> Room:
    return Room(short_tmp)


@pytest.fixture
def typos() -> Path:
    return next(task for task in TASKS if task.name == "typos")


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_the_resulting_tree_matches_the_expected_one(room: Room, task: Path) -> None:
    assert await room.done(task, turns(task)) == tree(task / "gold")


@pytest.mark.slow
async def test_the_typo_fixer_makes_the_gold_tree(room: Room, typos: Path) -> None:
    assert await room.done(typos, turns(typos), AGENT="typo-fixer") == tree(typos / "gold")


# A fault that is planted in each part makes the comparison fail.


@pytest.mark.slow
async def test_a_prompt_without_the_issue_is_detected(room: Room, typos: Path, tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "initial_prompt.md.j2").write_text("Do what you think is right.")
    try:
        with pytest.raises(AssertionError, match="does not reach the model"):
            await room.done(typos, turns(typos), TEMPLATES=str(tmp_path))
    finally:
        set_template_directory(None)


@pytest.mark.slow
async def test_a_fragmented_message_is_detected(room: Room, typos: Path) -> None:
    def cut(turn: RecordedTurn) -> RecordedTurn:
        calls = [
            call.model_copy(update={"arguments": json.dumps(call.arguments)[:-3]})
            if call.name == "replace_text"
            else call
            for call in turn.calls
        ]
        return turn.model_copy(update={"calls": tuple(calls)})

    assert await room.done(typos, [cut(turn) for turn in turns(typos)]) != tree(typos / "gold")


class Forgetful(WrapperSandbox):
    """A sandbox that says it has edited, and has not."""

    async def act(self, action: SandboxAction) -> Observation:
        if isinstance(action, ReplaceText):
            return EditResult(path=action.path, diff="-a\n+b\n")
        return await self._sandbox.act(action)


class Forgetting:
    """Sandboxes of that kind."""

    def __init__(self, own: Sandboxes) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    @asynccontextmanager
    async def open(self, name: str, **how: Any) -> AsyncIterator[Sandbox]:
        async with self._own.open(name, **how) as sandbox:
            yield Forgetful(sandbox)


@pytest.mark.slow
async def test_a_sandbox_that_does_nothing_is_detected(room: Room, typos: Path) -> None:
    assert await room.done(typos, turns(typos), Forgetting) != tree(typos / "gold")


# With a real model


@pytest.mark.llm
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_a_real_model_produces_the_expected_tree(room: Room, task: Path) -> None:
    given = {
        name.removeprefix("PATCHWRIGHT_"): os.environ[name]
        for name in os.environ
        if name.startswith("PATCHWRIGHT_MODEL")
    }
    if "MODEL" not in given:
        pytest.skip("PATCHWRIGHT_MODEL names no model: see script/test-models")
    capped = {"MAX_USD": MAX_USD, "MAX_STEPS": "20", "TIMEOUT": "300"}
    assert await room.resolved(task, lambda own: own, given | capped) == tree(task / "gold")
