"""`patchwright resolve --continue`: which run it continues."""

import argparse
from pathlib import Path

import pytest

from patchwright.bot.commands.resolve_command import run_resolve
from patchwright.resolver.domain import JobId, RunId
from patchwright.resolver.errors import UsageError
from patchwright.resolver.run_events import RunResumed
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.settings.settings import Settings
from tests.resolver.sample_runs import model_reply, started


async def test_the_job_of_a_server_that_resumed_a_run_stands_for_that_run(tmp_path: Path) -> None:
    logs = FileLogStore(tmp_path / "runs")
    async with logs.open(RunId("first")) as log:
        await log.append(started())
        await log.append(model_reply("a"))
    async with logs.open(RunId("second")) as log:
        await log.append(RunResumed(run=JobId("first")))
    options = argparse.Namespace(
        run="second", answer=None, include_changes=False, url=None, repo=None, issue=None, out="fix.diff"
    )
    with pytest.raises(UsageError, match="the run first opens a pull request"):
        await run_resolve(options, Settings(data=tmp_path))
