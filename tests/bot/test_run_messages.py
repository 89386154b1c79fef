"""A comment during a run reaches its agent once, or starts its own run."""

import asyncio

import pytest
from pydantic import SecretStr

from patchwright.bot.github.auth import GitHubServer, TokenAuth
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.jobs import Answered, JobResult, Retry, Stopped
from patchwright.bot.run_messages import RunMessages
from patchwright.resolver.domain import Job, Rejected
from patchwright.resolver.events import Entry, Message, Trajectory
from tests.bot.handler_scenario import QUEUED_NOTICE, QUICK, HandlerScenario
from tests.bot.handler_scenario import scenario as scenario  # the fixture
from tests.bot.jobs import DONE, RecordingHandler, running_worker, wait_for_state
from tests.bot.reconcile.deployments import app_auth
from tests.resolver.sample_runs import started


async def test_a_comment_reaches_the_running_agent_once_and_starts_no_job(scenario: HandlerScenario) -> None:
    handler, mail = RecordingHandler(), RunMessages(scenario.queue, scenario.forge)
    async with running_worker(scenario.queue, handler):
        run = await scenario.label()
        await handler.running.wait()
        requests = [await scenario.request(f"@agent {text}") for text in ("first <!-- hidden -->", "second")]
        first, second = await mail.fetch_new(run, Trajectory())
        assert (first.trigger_id, second.trigger_id) == (requests[0].id, requests[1].id)
        assert first.source == "comment"
        assert "maintainer, who may write to the repository, writes in the thread" in first.text
        assert "> first" in first.text and "hidden" not in first.text
        log = Trajectory((Entry(seq=0, timestamp=scenario.fake_github.now(), event=first),))
        assert await mail.fetch_new(run, log) == (second,)
        record = await scenario.queue.get_record(requests[0].id)
        assert record is not None and record.result == Answered(run=run.id)
        handler.go.set()
        await wait_for_state(scenario.queue, requests[1].id)
    assert handler.started == {run.id: 1, requests[1].id: 1}


async def test_work_requested_during_an_explanation_runs_after_it(scenario: HandlerScenario) -> None:
    handler, mail = RecordingHandler(), RunMessages(scenario.queue, scenario.forge)
    async with running_worker(scenario.queue, handler):
        run = await scenario.request("@agent explain how a is read")
        await handler.running.wait()
        work = await scenario.request("@agent then fix it")
        assert await scenario.wait_for_reply("Queued: ") == QUEUED_NOTICE
        assert await mail.fetch_new(run, Trajectory()) == ()
        handler.go.set()
        await wait_for_state(scenario.queue, work.id)
    assert handler.started == {run.id: 1, work.id: 1}


def at_work(scenario: HandlerScenario, run: Job) -> Trajectory:
    """Returns the log of a run for the scenario's issue."""
    return Trajectory(
        (Entry(seq=0, timestamp=scenario.fake_github.now(), event=started().model_copy(update={"job": run})),)
    )


async def test_a_label_after_a_mention_is_completed_by_its_run(scenario: HandlerScenario) -> None:
    handler, mail = RecordingHandler(), RunMessages(scenario.queue, scenario.forge)
    async with running_worker(scenario.queue, handler):
        run = await scenario.request("@agent please fix this, the sign is wrong")
        await handler.running.wait()
        label = await scenario.label()
        assert await scenario.wait_for_reactions(scenario.issue) == ["eyes"]
        scenario.queue_notices.enabled.set()
        await asyncio.sleep(0.5)  # Longer than the delay, so that a queue notice would be posted.
        assert await mail.fetch_new(run, at_work(scenario, run)) == ()
        record = await scenario.queue.get_record(label.id)
        assert record is not None and record.result == Answered(run=run.id)
        handler.go.set()
        await wait_for_state(scenario.queue, run.id)
    assert handler.started == {run.id: 1}
    assert scenario.replies == []


@pytest.mark.parametrize("label", [True, False], ids=["label", "mention"])
async def test_a_request_after_a_stop_is_not_read_by_the_canceled_run(
    scenario: HandlerScenario, *, label: bool
) -> None:
    mail, started_jobs, ended = (
        RunMessages(scenario.queue, scenario.forge),
        asyncio.Queue[Job](),
        asyncio.Event(),
    )

    async def handler(job: Job, tries: int) -> JobResult | Retry:
        await started_jobs.put(job)
        try:
            await asyncio.Event().wait()
        finally:
            await ended.wait()  # It saves its work.
        return DONE

    async with running_worker(scenario.queue, handler):
        run = await scenario.request("@agent fix it")
        assert await started_jobs.get() == run
        await scenario.request("@agent stop")
        again = await (scenario.label() if label else scenario.request("@agent fix it otherwise"))
        assert await mail.fetch_new(run, at_work(scenario, run)) == ()
        ended.set()
        async with asyncio.timeout(20):
            assert (await started_jobs.get()).id == again.id


@pytest.mark.parametrize("text", ["@agent plan this", "@agent explain this"])
async def test_a_label_after_a_read_only_request_starts_in_turn(scenario: HandlerScenario, text: str) -> None:
    handler, mail = RecordingHandler(), RunMessages(scenario.queue, scenario.forge)
    async with running_worker(scenario.queue, handler):
        run = await scenario.request(text)
        await handler.running.wait()
        label = await scenario.label()
        assert await scenario.wait_for_reply("Queued: ") == QUEUED_NOTICE
        assert await mail.fetch_new(run, at_work(scenario, run)) == ()
        handler.go.set()
        await wait_for_state(scenario.queue, label.id)
    assert handler.started == {run.id: 1, label.id: 1}


async def test_a_label_by_a_stranger_after_a_mention_is_rejected_and_a_stop_cancels_that_of_a_writer(
    scenario: HandlerScenario,
) -> None:
    scenario.fake_github.set_role(scenario.repo, "triager", "triage")
    handler, mail = RecordingHandler(), RunMessages(scenario.queue, scenario.forge)
    async with running_worker(scenario.queue, handler):
        run = await scenario.request("@agent fix it")
        await handler.running.wait()
        await scenario.deliver(await scenario.fake_github.add_label(scenario.issue, "fix-me", by="triager"))
        await mail.fetch_new(run, at_work(scenario, run))
        (refusal,) = scenario.replies
        assert refusal.startswith("@triager needs write access to start a run")
        label = await scenario.label()
        await scenario.request("@agent stop")
        assert (await wait_for_state(scenario.queue, label.id)).result == Stopped(by="maintainer")
    assert scenario.replies == [refusal]


async def said_by_a_writer_of_before(scenario: HandlerScenario, words: str, *, by: str) -> Job:
    """Queues a comment of a user who has lost write access since."""
    scenario.fake_github.set_role(scenario.repo, by, "write")
    job = await scenario.request(words, by=by)
    scenario.fake_github.set_role(scenario.repo, by, "read")
    return job


async def test_a_rejection_that_cannot_be_posted_does_not_block_other_messages(
    scenario: HandlerScenario,
) -> None:
    run = await scenario.label()
    stranger = await said_by_a_writer_of_before(scenario, "@agent spam", by="stranger")
    await scenario.request("@agent mind the tests")
    scenario.fake_github.lock_thread(scenario.issue)
    app = scenario.fake_github.create_app()  # A locked thread keeps it out.
    scenario.fake_github.install_app(app, scenario.repo)
    fake_github = scenario.fake_github
    async with GitHubForge(app_auth(app), fake_github.urls, policy=QUICK) as forge:
        (message,) = await RunMessages(scenario.queue, forge).fetch_new(run, Trajectory())
    assert "> mind the tests" in message.text and message.author == "maintainer"
    record = await scenario.queue.get_record(stranger.id)
    assert record is not None and isinstance(record.result, Rejected)
    assert scenario.replies == []


async def test_a_request_through_the_api_reaches_the_running_agent(scenario: HandlerScenario) -> None:
    run = await scenario.label()
    request = run.model_copy(
        update={"id": "nightly-7", "requester": None, "command": "mind zero", "label": None, "snapshot": None}
    )
    assert await scenario.queue.put(request)
    (message,) = await RunMessages(scenario.queue, scenario.forge).fetch_new(run, Trajectory())
    assert message.trigger_id == "nightly-7" and "> mind zero" in message.text


async def test_only_comments_of_writers_reach_a_run(scenario: HandlerScenario) -> None:
    handler, mail = RecordingHandler(), RunMessages(scenario.queue, scenario.forge)
    async with running_worker(scenario.queue, handler):
        run = await scenario.label()
        await handler.running.wait()
        again = await scenario.request("@agent retry")
        stranger = await said_by_a_writer_of_before(scenario, "@agent rm -rf /", by="stranger")
        assert await mail.fetch_new(run, Trajectory()) == ()
        record = await scenario.queue.get_record(stranger.id)
        assert record is not None and isinstance(record.result, Rejected)
        assert [answer.split()[0] for answer in scenario.replies] == ["@stranger"]
        record = await scenario.queue.get_record(again.id)
        assert record is not None and record.state == "queued"


async def test_an_unavailable_forge_does_not_delay_the_agent(scenario: HandlerScenario) -> None:
    delivery = await scenario.label()
    await scenario.request("@agent mind this")
    async with GitHubForge(
        TokenAuth(SecretStr("x")), GitHubServer(github_server_url="http://127.0.0.1:1"), policy=QUICK
    ) as away:
        assert await RunMessages(scenario.queue, away).fetch_new(delivery, Trajectory()) == ()
    (message,) = await RunMessages(scenario.queue, scenario.forge).fetch_new(delivery, Trajectory())
    assert isinstance(message, Message)
