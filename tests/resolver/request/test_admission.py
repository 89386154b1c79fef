"""What a `retry` means: the last run of its thread, or the one whose page was open."""

from pathlib import Path

import pytest

from resolver.domain import Issue, Job, JobId, Repo, User
from resolver.events import Trajectory
from resolver.log import FileLogs
from resolver.request.admission import meant
from tests.resolver.seen_runs import started

WRITER = User(id=1, login="maintainer")


def job(name: str, command: str, number: int = 7, again: str | None = None) -> Job:
    repo = Repo(owner="acme", name="calc")
    return Job(
        id=JobId(name), repo=repo, number=number, requester=WRITER, command=command,
        again=JobId(again) if again else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("again", "command"),
    [
        (None, "the second"),
        ("first", "the first"),
        ("elsewhere", "the second"),  # of another thread
        ("nowhere", "the second"),  # its log is on another machine
    ],
)
async def test_a_retry_asks_for_what_the_run_was_asked_that_it_means(
    tmp_path: Path, again: str | None, command: str
) -> None:
    logs = FileLogs(tmp_path)
    issue = Issue(
        number=7, title="t", body="", author=WRITER, trusted=True, open=True, url="", reports=("first", "second")
    )  # fmt: skip
    for asked in (job("first", "the first"), job("second", "the second"), job("elsewhere", "x", number=8)):
        async with logs.open(asked.id) as log:
            await log.append(started().model_copy(update={"job": asked}))
    found = await meant(job("third", "retry", again=again), issue, Trajectory(()), logs)
    assert found.command == command
