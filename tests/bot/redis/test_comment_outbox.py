"""The last text of a job reaches its thread, even if GitHub refuses it at first."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from patchwright.bot.comment_tags import parse_tag
from patchwright.bot.jobs import Answered, Failed, JobResult, Stopped
from patchwright.bot.redis.comment_outbox import CommentOutbox, open_outbox
from patchwright.demo.github import Issue
from patchwright.resolver.domain import InputRequired, Job, Published, Rejected, Reported, Verdict
from patchwright.resolver.errors import Forbidden, ForgeError, NotFound
from tests.bot.reconcile.deployments import SAMPLE, Deployment, open_deployment

pytestmark = pytest.mark.redis

FINAL = "I opened pull request #9."


@pytest.fixture
async def deployment(short_tmp: Path) -> AsyncIterator[Deployment]:
    async with AsyncExitStack() as stack:
        deployment = await stack.enter_async_context(open_deployment(short_tmp))
        await stack.enter_async_context(open_outbox(deployment.url, deployment.forge))
        yield deployment


def outbox_of(deployment: Deployment, later: timedelta = timedelta()) -> CommentOutbox:
    outbox = deployment.forge.outbox
    assert outbox is not None
    outbox._clock = lambda: datetime.now(UTC) + later
    return outbox


async def start_job(deployment: Deployment) -> tuple[Issue, Job]:
    """Returns an issue with a status comment, and the running job of the comment."""
    fake_github = deployment.fake_github
    issue = fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger")
    job = deployment.job_of(await fake_github.add_label(issue, "fix-me", by="maintainer"))
    await deployment.queue.put(job)
    await deployment.forge.upsert_comment(SAMPLE, issue.number, job.id, "Working.", in_progress=True)
    return issue, job


def comments(deployment: Deployment, issue: Issue) -> list[tuple[bool, str]]:
    """Returns for each comment of ours whether it says that its job is in progress, and its text."""
    tagged = [parse_tag(comment.body) for comment in deployment.repo.comments(issue.number)]
    return [(one.is_in_progress, one.text.strip()) for one in tagged]


@pytest.mark.parametrize(("status", "error"), [(404, NotFound), (403, Forbidden)])
async def test_a_final_text_that_github_refuses_is_posted_later(
    deployment: Deployment, status: int, error: type[ForgeError]
) -> None:
    issue, job = await start_job(deployment)
    (comment,) = deployment.repo.comments(issue.number)
    deployment.fake_github.fail_next_request("PATCH", f"/issues/comments/{comment.id}", status=status)
    with pytest.raises(error):
        await deployment.forge.upsert_comment(SAMPLE, issue.number, job.id, FINAL)
    await outbox_of(deployment).post_due()
    assert comments(deployment, issue) == [(True, "Working.")]  # the job may still be retried
    await deployment.queue.complete(job, Failed(error="NotFound"))
    await outbox_of(deployment).post_due()
    assert comments(deployment, issue) == [(False, FINAL)]
    writes = len(deployment.fake_github.writes)
    await outbox_of(deployment, timedelta(hours=1)).post_due()
    assert len(deployment.fake_github.writes) == writes


async def test_a_text_that_is_refused_again_waits_longer_and_is_dropped_after_three_days(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    issue, job = await start_job(deployment)
    await deployment.queue.complete(job, Failed(error="NotFound"))
    (comment,) = deployment.repo.comments(issue.number)
    deployment.fake_github.fail_next_request("PATCH", f"/issues/comments/{comment.id}", status=403, times=3)
    with pytest.raises(Forbidden):
        await deployment.forge.upsert_comment(SAMPLE, issue.number, job.id, FINAL)
    for hours in (0.0, 0.001, 1.0, 80.0):
        await outbox_of(deployment, timedelta(hours=hours)).post_due()
    events = [record.getMessage() for record in caplog.records if record.getMessage().startswith("comment ")]
    assert events == ["comment not posted yet", "comment not posted yet", "comment never posted"]


ENDED_TEXTS: tuple[tuple[JobResult, str], ...] = (
    (Answered(), "This request has ended."),
    (
        Published(url="u", number=9, branch="b", draft=True, verdict=Verdict(kind="untested")),
        "I opened the draft pull request #9.",
    ),
    (InputRequired(url="u", question="Which?"), "I need an answer before I continue: Which?"),
    (
        Reported(url="u", branch=None, reason="nothing changed.", verdict=Verdict(kind="empty")),
        "**No pull request:** nothing changed.",
    ),
    (Rejected(explanation="ask again."), "Ask again."),
    (Stopped(), "This run was stopped. An operator can find the log under the run `{run}`."),
    (
        Failed(error="x"),
        "This request failed. An operator can find the log under the run `{run}`.",
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize(("result", "text"), ENDED_TEXTS, ids=lambda value: getattr(value, "kind", ""))
async def test_a_comment_of_an_ended_job_does_not_stay_in_progress(
    deployment: Deployment, result: JobResult, text: str
) -> None:
    issue, job = await start_job(deployment)
    await deployment.queue.complete(job, result)
    await outbox_of(deployment).post_due()
    assert comments(deployment, issue) == [(False, text.replace("{run}", job.id))]


async def test_a_final_text_is_never_replaced_by_the_general_one(deployment: Deployment) -> None:
    issue, job = await start_job(deployment)
    await deployment.forge.upsert_comment(SAMPLE, issue.number, job.id, FINAL)
    await outbox_of(deployment).store(SAMPLE, issue.number, job.id, None)  # by an outdated worker
    await deployment.queue.complete(job, Failed(error="x"))
    await outbox_of(deployment).post_due()
    assert comments(deployment, issue) == [(False, FINAL)]


async def test_the_worker_that_polls_posts_what_github_refused(deployment: Deployment) -> None:
    issue, job = await start_job(deployment)
    await deployment.queue.complete(job, Stopped())
    await deployment.build_reconciler().reconcile()
    assert [in_progress for in_progress, _ in comments(deployment, issue)] == [False]
