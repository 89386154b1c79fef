"""Which run a `retry` repeats: the last one of its thread, or the one it was requested from on the dashboard."""

from pathlib import Path

import pytest

from patchwright.resolver.domain import Issue, Job, JobId, Repo, User
from patchwright.resolver.events import Trajectory
from patchwright.resolver.pipeline.admission import expand_retry
from patchwright.resolver.run_log import FileLogStore
from tests.resolver.sample_runs import started

WRITER = User(id=1, login="maintainer")


def job(name: str, command: str, number: int = 7, retry_of: str | None = None) -> Job:
    repo = Repo(owner="acme", name="calc")
    return Job(
        id=JobId(name), repo=repo, number=number, requester=WRITER, command=command,
        retry_of=JobId(retry_of) if retry_of else None,
    )  # fmt: skip


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
    issue = Issue(
        number=7, title="t", body="", author=WRITER, trusted=True, open=True, url="", reported_runs=("first", "second")
    )  # fmt: skip
    for run_job in (job("first", "the first"), job("second", "the second"), job("elsewhere", "x", number=8)):
        async with logs.open(run_job.id) as log:
            await log.append(started().model_copy(update={"job": run_job}))
    expanded = await expand_retry(job("third", "retry", retry_of=retry_of), issue, Trajectory(()), logs)
    assert expanded.command == command
