"""Requests in comments are handled once, only for users with permission, and in any order of arrival."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module

import pytest

from patchwright.bot.errors import QueueDown
from patchwright.bot.jobs import Answered, JobResult, Stopped, UnreadableJob
from patchwright.bot.redis.quotas import MAX_REFUSALS
from patchwright.bot.run_messages import RunMessages
from patchwright.bot.triggers.stop_command import STALE_STOP_AGE
from patchwright.bot.webhooks.delivery import CommentCreated, parse_delivery
from patchwright.resolver.comment_commands import COMMANDS, Command
from patchwright.resolver.domain import Job, JobId, Rejected, Repo, User
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.events import Trajectory
from tests.bot.handler_scenario import QUEUED_NOTICE, HandlerScenario
from tests.bot.handler_scenario import scenario as scenario  # the fixture
from tests.bot.inline_queue import InlineQueue
from tests.bot.jobs import RecordingHandler, running_worker, wait_for_state
from tests.bot.local_services import LocalRefusalLimit


async def test_a_request_by_a_writer_gets_a_reaction_before_it_starts(scenario: HandlerScenario) -> None:
    await scenario.label()
    assert await scenario.wait_for_reactions(scenario.issue) == ["eyes"]
    await scenario.request("@agent mind the tests")
    assert await scenario.wait_for_reactions(scenario.issue.comments[-1]) == ["eyes"]
    assert scenario.replies == []


async def test_a_mention_in_the_text_that_opens_an_issue_is_a_request(scenario: HandlerScenario) -> None:
    fake_github, repo = scenario.fake_github, scenario.repo
    opened = await fake_github.open_issue(
        repo, title="Slow", body="Hello.\n\n@agent make it fast", by="maintainer"
    )
    jobs = [await scenario.deliver(opened) for _ in range(2)]
    assert [record.job for record in await scenario.queue.all_active_jobs()] == jobs[:1]
    assert (jobs[0].command, jobs[0].requester and jobs[0].requester.login) == ("make it fast", "maintainer")
    issue = repo.threads[jobs[0].number]
    assert await scenario.wait_for_reactions(issue) == ["eyes"]
    # A comment or label with the same number is another request.
    scenario.issue = issue
    assert (await scenario.request("@agent make it fast")).id != jobs[0].id != (await scenario.label()).id

    rejected = await scenario.deliver(
        await fake_github.open_issue(repo, title="Slow", body="@agent make it fast", by="stranger")
    )
    (reply,) = repo.comments(rejected.number)
    assert "@stranger needs write access to start a run" in reply.body


async def test_an_inline_comment_gets_a_reaction(scenario: HandlerScenario) -> None:
    scenario.repo.commit("topic", {"a.py": "x = 2\n"})
    pull = scenario.fake_github.create_pull(scenario.repo, "topic", by="maintainer")
    review = scenario.fake_github.add_review(pull, ("a.py", 1, "@agent why 2?"), by="maintainer")
    await scenario.deliver((await scenario.fake_github.deliver_review(pull, review))[-1])
    assert await scenario.wait_for_reactions(pull.review_threads[0].comments[0]) == ["eyes"]


async def test_a_request_by_a_stranger_gets_no_reaction(scenario: HandlerScenario) -> None:
    await scenario.request("@agent do it", by="stranger")
    await asyncio.sleep(0.5)
    assert scenario.issue.comments[-1].reactions == []


async def test_a_request_by_a_stranger_is_rejected_at_once_and_not_queued(
    scenario: HandlerScenario,
) -> None:
    asking = await scenario.comment("@agent do it", by="stranger")
    for _ in range(2):
        job = await scenario.deliver(asking)
    (answer,) = scenario.replies
    assert answer.startswith("@stranger needs write access to start a run")
    assert await scenario.queue.all_active_jobs() == ()
    record = await scenario.queue.get_record(job.id)
    assert record is not None and isinstance(record.result, Rejected)


async def test_a_redelivery_after_losing_permission_cancels_no_queued_job(
    scenario: HandlerScenario,
) -> None:
    asking = await scenario.comment("@agent do it", by="member")
    scenario.fake_github.set_role(scenario.repo, "member", "write")
    job = await scenario.deliver(asking)
    scenario.fake_github.set_role(scenario.repo, "member", "read")
    await scenario.deliver(asking)
    record = await scenario.queue.get_record(job.id)
    assert record is not None and record.state == "queued"  # The permission is checked again when it starts.


async def test_a_job_is_queued_if_the_permission_check_fails(scenario: HandlerScenario) -> None:
    scenario.fake_github.fail_next_request("GET", "/permission", status=400, times=50)
    job = await scenario.request("@agent do it")
    record = await scenario.queue.get_record(job.id)
    assert record is not None and record.state == "queued"


async def test_help_is_answered_once_and_starts_no_job(scenario: HandlerScenario) -> None:
    asking = await scenario.comment("@agent help", by="stranger")
    for _ in range(3):
        job = await scenario.deliver(asking)
    (answer,) = scenario.replies
    assert answer.startswith("I understand these commands from people with write access to this repository:")
    assert "| `@agent stop` | stop and save the work so far to a branch |" in answer
    record = await scenario.queue.get_record(job.id)
    assert record is not None and record.result == Answered()


async def test_a_stop_cancels_running_and_queued_jobs_once(scenario: HandlerScenario) -> None:
    handler = RecordingHandler()
    async with running_worker(scenario.queue, handler):
        running = await scenario.label()
        await handler.running.wait()
        waiting = await scenario.request("@agent retry")
        stopping = await scenario.comment("@agent stop")
        await scenario.deliver(stopping)
        for job in (running, waiting):
            assert (await wait_for_state(scenario.queue, job.id)).result == Stopped(by="maintainer")
        assert await scenario.wait_for_reactions(scenario.issue.comments[1]) == ["eyes"]
        later = await scenario.request("@agent retry")
        await scenario.deliver(stopping)
        assert scenario.replies == ["@maintainer stopped this run before it started."]  # The queued job.
        record = await scenario.queue.get_record(later.id)
        assert record is not None and record.state != "completed"


async def test_a_stop_that_arrives_before_the_label_prevents_its_job(scenario: HandlerScenario) -> None:
    label = await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
    await scenario.request("@agent stop!")
    job = await scenario.deliver(label)
    assert await scenario.queue.get_record(job.id) is None
    assert scenario.replies == ["There is nothing to stop: I am not working on this."]
    later = await scenario.request("@agent retry, please")
    assert await scenario.queue.get_record(later.id) is not None


async def test_a_stop_before_the_job_starts_posts_a_cancellation_notice(scenario: HandlerScenario) -> None:
    job = await scenario.label()
    await scenario.request("@agent stop")
    record = await scenario.queue.get_record(job.id)
    assert record is not None and record.result == Stopped(by="maintainer")
    assert scenario.replies == ["@maintainer stopped this run before it started."]
    assert await scenario.wait_for_reactions(scenario.issue.comments[0]) == ["eyes"]


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside one that is stopped"])
async def test_a_stop_reports_jobs_of_another_version_that_stay_queued(
    scenario: HandlerScenario, beside: bool
) -> None:
    job = await scenario.label()
    assert job.requester is not None
    unread = UnreadableJob(id=JobId("tomorrow"), repo=job.repo, number=job.number, requester=job.requester)
    scenario.queue.left.append(unread)
    if not beside:
        await scenario.queue.cancel(job.id)
    stopping = await scenario.request("@agent stop")
    assert scenario.replies[:-1] == (["@maintainer stopped this run before it started."] if beside else [])
    assert scenario.replies[-1] == (
        "I could not stop everything here: a different version of Patchwright queued some of the jobs. "
        "Comment `@agent stop` again after the operator has upgraded all workers to the same version."
    )
    known = await scenario.queue.get_record(stopping.id)
    assert known is not None and known.result == Answered()


def lose_the_next_edit(scenario: HandlerScenario) -> None:
    scenario.fake_github.fail_next_request(
        "PATCH", f"/issues/comments/{scenario.issue.comments[-1].id}", status=400
    )


async def test_a_redelivered_stop_posts_the_lost_cancellation_notice(scenario: HandlerScenario) -> None:
    waiting = await scenario.label()
    await scenario.wait_for_reply("Queued: ")
    lose_the_next_edit(scenario)
    stopping = await scenario.comment("@agent stop")
    with pytest.raises(ForgeError):
        await scenario.deliver(stopping)
    await scenario.deliver(stopping)
    record = await scenario.queue.get_record(waiting.id)
    assert record is not None and record.result == Stopped(by="maintainer")
    assert scenario.replies == ["@maintainer stopped this run before it started."]


async def test_a_redelivered_stop_does_not_claim_that_nothing_ran(scenario: HandlerScenario) -> None:
    class Dying(InlineQueue):
        """A queue that fails right after a stop was executed."""

        alive = True

        async def complete(self, job: Job, result: JobResult) -> None:
            self.alive = not self.alive
            if not self.alive:
                raise QueueDown("killed")
            await super().complete(job, result)

    scenario = replace(scenario, queue=Dying())
    waiting = await scenario.label()
    await scenario.wait_for_reply("Queued: ")
    stopping = await scenario.comment("@agent stop")
    with pytest.raises(QueueDown):
        await scenario.deliver(stopping)
    assert (await wait_for_state(scenario.queue, waiting.id)).result == Stopped(by="maintainer")
    stop = await scenario.deliver(stopping)
    assert (await wait_for_state(scenario.queue, stop.id)).result == Answered()
    assert scenario.replies == ["@maintainer stopped this run before it started."]
    await scenario.handler.close()


@pytest.mark.parametrize("by", ["maintainer", "stranger"])
async def test_the_requester_of_an_unreadable_job_gets_one_notice(scenario: HandlerScenario, by: str) -> None:
    asking = await scenario.comment("@agent do it", by="maintainer")
    job = await scenario.deliver(asking)
    await scenario.wait_for_reply("Queued: ")
    asker = scenario.fake_github.user(by)
    unread = UnreadableJob(id=job.id, repo=job.repo, number=job.number, requester=User(id=asker.id, login=by))
    await scenario.queue_notices.post_unreadable(unread)
    writes = scenario.fake_github.writes
    await scenario.queue_notices.post_unreadable(unread)
    assert scenario.fake_github.writes == writes
    (answer,) = scenario.replies
    notice = (
        "Queued: the worker runs a different version. I start once the operator has upgraded all workers. "
        "To try earlier, add the label again or write a new comment."
    )
    assert (notice in answer) is (by == "maintainer")
    assert scenario.replies_in_progress == [answer]  # Polling finds it again if Redis was wiped.


async def test_running_jobs_are_canceled_even_if_notices_fail(scenario: HandlerScenario) -> None:
    handler = RecordingHandler()
    async with running_worker(scenario.queue, handler):
        running = await scenario.label()
        await handler.running.wait()
        await scenario.request("@agent plan the rest")
        await scenario.wait_for_reply("Queued: ")
        lose_the_next_edit(scenario)
        with pytest.raises(ForgeError):
            await scenario.request("@agent stop")
        assert (await wait_for_state(scenario.queue, running.id)).result == Stopped(by="maintainer")


async def test_an_old_stop_cancels_no_later_job(scenario: HandlerScenario) -> None:
    stop = await scenario.comment("@agent stop")
    job = await scenario.label()
    await scenario.deliver(stop)
    record = await scenario.queue.get_record(job.id)
    assert record is not None and record.state == "queued"


async def test_a_stranger_cannot_stop_a_run_and_is_told_once(scenario: HandlerScenario) -> None:
    job = await scenario.label()
    stopping = await scenario.comment("@agent stop", by="stranger")
    for _ in range(2):
        await scenario.deliver(stopping)
    record = await scenario.queue.get_record(job.id)
    assert record is not None and record.state == "queued"
    (answer,) = scenario.replies
    assert answer.startswith("@stranger needs write access to stop a run")


async def test_a_user_without_access_to_a_private_repository_gets_no_reply(scenario: HandlerScenario) -> None:
    scenario.repo.private = True
    job = await scenario.label()
    for words in ("@agent stop", "@agent help", "@agent sotp"):
        await scenario.request(words, by="stranger")
    record = await scenario.queue.get_record(job.id)
    assert record is not None and record.state == "queued"
    await scenario.request("@agent fix it", by="stranger")
    assert await RunMessages(scenario.queue, scenario.forge).fetch_new(job, Trajectory()) == ()
    await scenario.wait_for_reply("Queued: ")  # For the maintainer, who added the label.
    assert len(scenario.replies) == 1
    scenario.fake_github.set_role(scenario.repo, "member", "read")
    await scenario.request("@agent stop", by="member")
    (_, answer) = scenario.replies
    assert answer.startswith("@member needs write access to stop a run")


async def test_a_recovered_stop_is_answered_unless_it_is_old(scenario: HandlerScenario) -> None:
    parsed = parse_delivery("issue_comment", (await scenario.comment("@agent stop")).body)
    assert isinstance(parsed, CommentCreated)
    old = parsed.model_copy(
        update={"comment_id": 1, "occurred_at": (datetime.now(UTC) - 2 * STALE_STOP_AGE).isoformat()}
    )
    await scenario.handler.handle(old, {})
    assert scenario.replies == []
    await scenario.handler.handle(parsed, {})
    assert scenario.replies == ["There is nothing to stop: I am not working on this."]


async def test_a_queue_notice_becomes_the_status_comment_of_its_run(scenario: HandlerScenario) -> None:
    handler = RecordingHandler()
    async with running_worker(scenario.queue, handler):
        await scenario.label()
        await handler.running.wait()
        waits = await scenario.request("@agent plan the rest")
        assert await scenario.wait_for_reply("Queued: ") == QUEUED_NOTICE
        assert scenario.replies_in_progress == [QUEUED_NOTICE], (
            "found again where Redis was wiped, it is requested still"
        )
        await scenario.forge.upsert_comment(waits.repo, waits.number, waits.id, "begun")
        assert scenario.replies == ["begun"] and not scenario.replies_in_progress


async def test_a_queue_notice_says_how_many_jobs_are_ahead(scenario: HandlerScenario) -> None:
    for title in ("one", "two"):
        other = scenario.fake_github.create_issue(scenario.repo, title=title, body="", by="reporter")
        await scenario.deliver(await scenario.fake_github.add_label(other, "fix-me", by="maintainer"))
    await scenario.label()
    run = await scenario.wait_for_reply("Queued: ")
    assert run.startswith("Queued: 2 runs ahead.")


async def test_a_message_to_a_run_gets_no_queue_notice(scenario: HandlerScenario) -> None:
    handler = RecordingHandler()
    async with running_worker(scenario.queue, handler):
        await scenario.label()
        await handler.running.wait()
        await scenario.request("@agent mind the tests")
        await scenario.request("@agent explain")
        await scenario.wait_for_reply("Queued: ")
        await asyncio.sleep(0.5)
        assert len(scenario.replies) == 1


async def test_an_invalid_command_is_answered_at_once_during_a_run(scenario: HandlerScenario) -> None:
    handler = RecordingHandler()
    async with running_worker(scenario.queue, handler):
        run = await scenario.label()
        await handler.running.wait()
        slip = await scenario.comment("@agent sotp")
        for _ in range(2):
            job = await scenario.deliver(slip)
        await scenario.request("@agent retyr", by="stranger")
        assert (await scenario.queue.get_record(run.id)).state == "running"  # type: ignore[union-attr]
    first, second = scenario.replies
    assert first == (
        "`sotp` is not a command. Did you mean `stop`? If you meant a request, describe it in a few more words."
    )
    assert second.startswith("@stranger needs write access to start a run")
    record = await scenario.queue.get_record(job.id)
    assert record is not None and isinstance(record.result, Rejected)


async def test_refusals_to_strangers_are_limited_per_thread(scenario: HandlerScenario) -> None:
    for _ in range(MAX_REFUSALS + 2):
        await scenario.request("@agent fix it", by="stranger")
    await scenario.request("@agent help", by="stranger")
    assert len(scenario.replies) == MAX_REFUSALS
    # Positive control: those who may write get an answer to each request, in the same thread.
    for _ in range(MAX_REFUSALS + 1):
        await scenario.request("@agent help")
    assert len(scenario.replies) == 2 * MAX_REFUSALS + 1


async def test_a_redelivery_of_a_refused_request_does_not_count_again() -> None:
    limit, repo = LocalRefusalLimit(), Repo(owner="acme", name="sample")
    allowed = [
        await limit.allow_refusal(repo, 1, JobId(name)) for name in ("a", "a", "b", "c", "d", "a", "d")
    ]
    assert allowed == [True, True, True, True, False, True, False]
    assert await limit.allow_refusal(repo, 2, JobId("d"))


@pytest.mark.parametrize("command", [one for one in COMMANDS if not one.starts_run], ids=lambda one: one.verb)
def test_a_command_without_a_run_has_a_module_of_its_name(command: Command) -> None:
    assert callable(import_module(f"patchwright.bot.triggers.{command.verb}_command").handle)
