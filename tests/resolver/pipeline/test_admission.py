"""Which run of a thread a `retry` repeats, and which one a `resume` continues."""

from pathlib import Path
from typing import Any

import pytest

from patchwright.resolver.domain import Issue, Job, JobId, Repo, User
from patchwright.resolver.events import Trajectory
from patchwright.resolver.pipeline.admission import expand_retry
from patchwright.resolver.pipeline.resumption import find_run_to_resume
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.actions import RunShell
from tests.resolver.sample_runs import model_reply, started

WRITER = User(id=1, login="maintainer")


def job(name: str, command: str, number: int = 7, retry_of: str | None = None) -> Job:
    repo = Repo(owner="acme", name="calc")
    return Job(
        id=JobId(name), repo=repo, number=number, requester=WRITER, command=command,
        retry_of=JobId(retry_of) if retry_of else None,
    )  # fmt: skip


def issue_with_runs(*runs: str) -> Issue:
    return Issue(
        number=7, title="t", body="", author=WRITER, trusted=True, open=True, url="", reported_runs=runs
    )


@pytest.mark.parametrize(
    ("retry_of", "command"),
    [
        (None, "the second"),
        ("first", "the first"),
        ("elsewhere", "the second"),  # a run in another thread
        ("nowhere", "the second"),  # its log is on another machine
    ],
)
async def test_a_retry_repeats_the_request_of_the_right_run(
    tmp_path: Path, retry_of: str | None, command: str
) -> None:
    logs = FileLogStore(tmp_path)
    issue = issue_with_runs("first", "second")
    for run_job in (job("first", "the first"), job("second", "the second"), job("elsewhere", "x", number=8)):
        async with logs.open(run_job.id) as log:
            await log.append(started().model_copy(update={"job": run_job}))
    third = job("third", "retry", retry_of=retry_of)
    forge: Any = None  # Not asked: the request is in a log.
    expanded = await expand_retry(third, issue, Trajectory(()), forge, logs, Settings(data=tmp_path))
    assert expanded.command == command


@pytest.mark.parametrize("name", ["third", "queued"])
async def test_a_queue_notice_does_not_hide_the_run_to_resume(tmp_path: Path, name: str) -> None:
    """The notice is a comment with the id of a job whose log is empty, such as the job that resumes."""
    logs = FileLogStore(tmp_path)
    stopped, resume = job("first", ""), job("third", "resume")
    async with logs.open(stopped.id) as log:
        for event in (
            started().model_copy(update={"job": stopped}),
            model_reply("1", RunShell(command="ls")),
        ):
            await log.append(event)
    async with logs.open(JobId(name)):
        issue = issue_with_runs("first", name)
        found = await find_run_to_resume(resume, issue, Trajectory(()), logs, Settings(data=tmp_path))
    assert found == "first"


async def test_a_later_run_that_failed_before_its_first_step_does_not_hide_the_run_to_resume(
    tmp_path: Path,
) -> None:
    logs = FileLogStore(tmp_path)
    stopped, failed, resume = job("first", ""), job("second", "a wish"), job("third", "resume")
    for run_job, work in ((stopped, (model_reply("1", RunShell(command="ls")),)), (failed, ())):
        async with logs.open(run_job.id) as log:
            for event in (started().model_copy(update={"job": run_job}), *work):
                await log.append(event)
    issue = issue_with_runs("first", "second")
    found = await find_run_to_resume(resume, issue, Trajectory(()), logs, Settings(data=tmp_path))
    assert found == "first"
