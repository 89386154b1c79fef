"""The tasks with known results as issues, for the real model that PATCHWRIGHT_MODEL names."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from patchwright.bot.composition import composition_root
from patchwright.bot.terminal.local_files import read_issue
from patchwright.resolver.domain import Job, JobId, Repo
from patchwright.resolver.pipeline.resolve import resolve_local
from tests.integration.scenario import read_tree
from tests.resolver.git_repository import Repository

TASKS = sorted(path.parent for path in Path(__file__).parent.glob("*/gold"))
MAX_USD = "0.50"  # of a task
LIMITS = {"MAX_USD": MAX_USD, "MAX_STEPS": "20", "TIMEOUT": "300"}


@pytest.mark.llm
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_a_real_model_produces_the_expected_tree(short_tmp: Path, task: Path) -> None:
    given = {name: os.environ[name] for name in os.environ if name.startswith("PATCHWRIGHT_MODEL")}
    if "PATCHWRIGHT_MODEL" not in given:
        pytest.skip("PATCHWRIGHT_MODEL names no model: see script/test-models")
    assert await resolve_task(task, short_tmp, given) == read_tree(task / "gold")


async def resolve_task(task: Path, directory: Path, model: dict[str, str]) -> dict[str, bytes]:
    """Returns the files after a run on the task as an issue."""
    repository = Repository(directory / task.name)
    repository.commit(dict(read_tree(task / "workspace")))
    here = {"DATA": str(directory / "data"), "SANDBOX": "local", "SANDBOX_FEATURES": "none"}
    settings = composition_root.read_settings(
        {}, {f"PATCHWRIGHT_{name}": value for name, value in (here | LIMITS).items()} | model, None, None
    )
    job = Job(id=JobId(task.name), repo=Repo(owner="local", name=task.name), number=1, requester=None)
    async with composition_root.build_run_dependencies(settings, notify=print) as dependencies:
        tried, _ = await resolve_local(job, read_issue(task / "task.md"), repository.path, dependencies)
    copy = directory / "patched"
    shutil.copytree(repository.path, copy)
    if not tried.patch.is_empty:
        subprocess.run(["git", "apply", "-"], cwd=copy, input=tried.patch.diff, check=True)
    return read_tree(copy)
