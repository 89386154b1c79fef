"""The list of runs and the page of a run."""

import asyncio
import re
from typing import get_args

import pytest

from patchwright.bot.commands.server_logs import share_with_server
from patchwright.bot.faults import Fault
from patchwright.bot.jobs import Failed, JobRecord, Stopped
from patchwright.bot.observe.run_index import index_result, with_run_index
from patchwright.bot.redis.shared_run_log import SharedLogStore
from patchwright.bot.run_messages import is_message_to_run
from patchwright.bot.run_summary import RunState, summarize_log
from patchwright.bot.status_comment import null_reporter
from patchwright.bot.webhooks.triggers import TriggerRequest
from patchwright.resolver.domain import InputRequired, JobId, RunId, Verdict
from patchwright.resolver.events import AgentStopped, JobCompleted, Message, ToolCall, VerificationCompleted
from patchwright.resolver.run_events import RunResumed
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.actions import RunShell
from tests.bot.dashboard.conftest import DashboardServer
from tests.bot.dashboard.event_stream import watch_run
from tests.bot.dashboard.test_access_control import parse_csrf
from tests.bot.jobs import DONE
from tests.resolver.sample_runs import full_run, model_reply, started
from tests.resolver.test_confirmation import reply, waiting_for

pytestmark = pytest.mark.redis


async def test_the_operator_opens_a_run_from_the_list(server: DashboardServer) -> None:
    await server.add_finished_run("acme-calc-1-done", *full_run())
    browser = await server.operator()
    response = await browser.get("/")
    assert response.status_code == 200
    assert 'href="/runs/acme-calc-1-done"' in response.text
    page = await browser.get("/runs/acme-calc-1-done")
    assert page.status_code == 200
    assert "Timeline" in page.text
    assert "If pull request #8 is open, close it first." in page.text
    run = await server.runs.get(RunId("acme-calc-1-done"))
    assert run is not None
    await server.runs.put(
        run.model_copy(update={"number": 8})
    )  # A run on the pull request itself needs it open.
    page = await browser.get("/runs/acme-calc-1-done")
    assert "Retry starts a new run" in page.text and "close it first" not in page.text


async def test_an_interrupted_run_shows_who_is_responsible(server: DashboardServer) -> None:
    browser = await server.operator()
    await server.add_finished_run("acme-calc-1-off", started())
    page = (await browser.get("/runs/acme-calc-1-off")).text
    assert "The run stopped before it finished." in page
    assert "See the comment on the issue or pull request for details." not in page
    listed = await server.runs.get(RunId("acme-calc-1-off"))
    assert listed is not None
    for fault in get_args(Fault):
        await server.runs.put(listed.with_result(Failed(error="ModelError: It is <down>.", fault=fault)))
        page = (await browser.get("/runs/acme-calc-1-off")).text
        assert 'class="mark failed">failed<' in page, fault
        # The cause comes before the buttons.
        assert 0 < page.find(" It is &lt;down&gt;.</p>") < page.find("/retry"), fault


async def test_a_job_that_resumed_a_run_shows_its_title_and_its_own_work(server: DashboardServer) -> None:
    logs, first, second = FileLogStore(server.data / "runs"), RunId("first-run"), "second-run"
    message = Message(text="Go on.", source="resume", trigger_id=JobId(second))
    stopped = AgentStopped(reason="limit", detail="The limit is reached.")
    browser = await server.operator()
    async with logs.open(first) as earlier, server.add_running_run(second) as worker:
        await worker.write(RunResumed(run=JobId(first)))
        for event in (started(), model_reply("a", usd="0.5"), stopped, message, model_reply("b", usd="0.25")):
            await earlier.append(event)
        page = (await browser.get(f"/runs/{second}")).text
        assert "<h1>add() subtracts</h1>" in page
        assert (
            "<dt>Cost</dt><dd>$0.2500</dd>" in page,
            "<dt>Steps</dt><dd>1</dd>" in page,
            "The run is in progress." in page,
            f'href="/runs/{first}">that run</a> shows the steps of both' in page,
        ) == (True, True, True, True)
        async with watch_run(browser, second) as watch:
            head = await watch.until("head")
            assert (head.data["title"], "$0.2500" in head.data["header"]) == ("add() subtracts", True)
        await earlier.append(model_reply("c", usd="0.25"))
        await server.end_job(worker.job)
    page = (await browser.get(f"/runs/{second}")).text
    assert ("<dt>Cost</dt><dd>$0.5000</dd>" in page, "-0.0 s" in page) == (True, False)


async def test_a_resumed_run_is_listed_once_and_its_page_stops_the_job_that_resumed_it(
    server: DashboardServer,
) -> None:
    run, browser = server.job("acme-calc-1-first"), await server.operator()
    shared = SharedLogStore(FileLogStore(server.data / "elsewhere"), server.redis)
    reporting = with_run_index(null_reporter, server.runs, interval=0.02)
    await server.queue.put(run)
    async with shared.open(run.id) as log:
        async with reporting(run, log):
            await log.append(started().model_copy(update={"job": run}))
            await log.append(model_reply("a"))
        await server.queue.complete(run, Stopped())
        await index_result(run.id, Stopped(), server.runs, server.queue)
        async with server.add_running_run("acme-calc-1-second") as worker:
            await worker.write(RunResumed(run=run.id))
            async with reporting(worker.job, log):
                await log.append(Message(text="Go on.", source="resume", trigger_id=worker.job.id))
                await asyncio.sleep(0.2)  # the index is updated
                page = (await browser.get(f"/runs/{run.id}")).text
                assert ('class="mark running">running<' in page, "resolve --continue" in page) == (
                    True,
                    False,
                )
                hidden = dict(re.findall(r'name="(csrf|nonce)" value="(\w+)"', page))
                assert (await browser.post(f"/runs/{run.id}/stop", data=hidden)).status_code == 303
                (delivery,) = await server.inbox.read("a-test")
                assert TriggerRequest.model_validate_json(delivery.body).run == worker.job.id
                await server.queue.cancel(worker.job.id)
                page = (await browser.get(f"/runs/{run.id}")).text
                assert ("Stop requested." in page, "Stop this run" in page) == (True, False)
                assert find_listed_runs((await browser.get("/")).text) == [run.id]
            await server.queue.complete(worker.job, DONE)
            await index_result(worker.job.id, DONE, server.runs, server.queue)
    await shared.close()
    listed = {
        state: find_listed_runs((await browser.get(f"/?state={state}")).text) for state in get_args(RunState)
    }
    assert {state: runs for state, runs in listed.items() if runs} == {
        DONE.kind: [run.id],
        "resumed": [worker.job.id],
    }
    page = (await browser.get(f"/runs/{worker.job.id}")).text
    assert 'class="mark resumed">resumed<' in page and f'href="/runs/{run.id}">that run</a>' in page
    assert "Retry" not in page


def find_listed_runs(page: str) -> list[str]:
    return re.findall(r'href="/runs/(acme-calc-[^"]+)"', page)


async def test_a_stopped_run_says_who_stopped_it_and_how_to_continue_it(server: DashboardServer) -> None:
    browser, run = await server.operator(), RunId("acme-calc-1-stopped")
    await server.add_finished_run(run, started(), model_reply("a"))
    page = (await browser.get(f"/runs/{run}")).text
    resume = "To continue this run, comment <code>@agent resume</code>"
    assert ("stopped this run." in page, "The work so far" in page, resume in page) == (False, False, True)

    listed = await server.runs.get(run)
    assert listed is not None
    for by, person in {"maintainer": "@maintainer", "": "The operator"}.items():
        await server.runs.put(
            listed.model_copy(update={"saved_branch": "patchwright/issue-1-after-1-steps"}).with_result(
                Stopped(by=by)
            )
        )
        page = (await browser.get(f"/runs/{run}")).text
        assert (
            f"{person} stopped this run." in page,
            "on the branch <code>patchwright/issue-1-after-1-steps</code>" in page,
            resume in page,
        ) == (True, True, True)
    await server.runs.put(listed.with_result(Stopped(reason="access_lost")))
    page = (await browser.get(f"/runs/{run}")).text
    assert ("The App lost its access to this repository." in page, resume in page) == (True, False)


async def test_a_queued_run_is_shown_as_queued(server: DashboardServer) -> None:
    job = server.job("acme-calc-9-waiting", number=9)
    await server.queue.put(job)
    browser = await server.operator()
    page = (await browser.get("/runs/acme-calc-9-waiting")).text
    assert 'class="mark queued">queued<' in page
    assert "The run has not started." in page


async def test_a_run_that_is_being_stopped_has_no_stop_button(server: DashboardServer) -> None:
    browser = await server.operator()
    async with server.add_running_run("acme-calc-1-live") as worker:
        await worker.write(started())
        page = (await browser.get("/runs/acme-calc-1-live")).text
        assert ('class="mark running">running<' in page, "Stop this run" in page) == (True, True)
        await server.queue.cancel(worker.job.id)  # by a comment, for example
        page = (await browser.get("/runs/acme-calc-1-live")).text
        assert ('class="mark stopping">stopping<' in page, "Stop this run" in page) == (True, False)
        assert "Stop requested." in page


async def test_a_run_that_continued_on_the_command_line_is_shown_live(server: DashboardServer) -> None:
    first, *rest = list(full_run())
    browser, logs = await server.operator(), FileLogStore(server.data / "runs")
    job, settings = server.job("acme-calc-1-cli"), Settings(data=server.data)
    shared = SharedLogStore(logs, server.redis)
    async with shared.open(job.id) as log:
        await log.append(first)
        await server.runs.put(summarize_log(job, log.trajectory, is_running=False))
    await shared.close()
    page = (await browser.get(f"/runs/{job.id}")).text
    assert ('class="mark stopped">stopped<' in page, "Retry starts a new run" in page) == (True, True)

    sharing = share_with_server(job, settings, logs, null_reporter, print)
    async with sharing as (continued, reporter), continued.open(job.id) as work:
        async with reporter(job, work):
            await work.append(rest[0])
            page = (await browser.get(f"/runs/{job.id}")).text
            assert 'class="mark running">running<' in page and "Settings of the run" in page
            assert "patchwright resolve --continue</code> is working on this run" in page
            assert "Stop this run" not in page
            for event in rest[1:-1]:
                await work.append(event)
        await work.append(rest[-1])  # the outcome is logged after the reporter has ended
    page = (await browser.get(f"/runs/{job.id}")).text
    assert 'class="mark published">published<' in page and "The job completed: published" in page
    listed = await server.runs.get(job.id)
    assert listed is not None and (listed.state, listed.verdict) == ("published", "fixed")


async def test_a_run_that_continued_without_the_server_is_shown_later(server: DashboardServer) -> None:
    first, configured, *rest = list(full_run())
    browser, logs, job = (
        await server.operator(),
        FileLogStore(server.data / "runs"),
        server.job("acme-calc-2"),
    )
    shared = SharedLogStore(logs, server.redis)
    async with shared.open(job.id) as log:
        await log.append(first)
        await server.runs.put(summarize_log(job, log.trajectory, is_running=False))
    await shared.close()
    assert "The job completed" not in (await browser.get(f"/runs/{job.id}")).text
    async with logs.open(job.id) as local:
        await local.append(configured)
        await asyncio.sleep(0.1)  # the summary counts tenths of a second
        for event in rest:
            await local.append(event)
    page = (await browser.get(f"/runs/{job.id}")).text
    assert 'class="mark published">published<' in page and "The job completed: published" in page
    assert 'class="mark published">published<' in (await browser.get("/")).text


async def test_a_run_of_the_command_line_alone_is_not_shared(server: DashboardServer) -> None:
    logs, job = FileLogStore(server.data / "runs"), server.job("only-here")
    async with share_with_server(job, Settings(data=server.data), logs, null_reporter, print) as (
        own,
        reporter,
    ):
        assert own is logs and reporter is null_reporter


async def test_a_message_on_the_run_page_works_like_a_comment(server: DashboardServer) -> None:
    async with server.add_running_run("acme-calc-1-live") as worker:
        await worker.write(started())
        reader, writer = await server.person("reader"), await server.person("maintainer")
        path = "/runs/acme-calc-1-live"
        assert f"{path}/message" not in (await reader.get(path)).text
        page = (await writer.get(path)).text
        assert f'action="{path}/message"' in page and "The agent reads it before its next step." in page
        hidden = dict(re.findall(r'name="(csrf|nonce)" value="(\w+)"', page))
        text = "@agent Keep the old name.\r\n\r\nAnd add a test."
        sent = await writer.post(f"{path}/message", data={**hidden, "message": text})
        assert (sent.status_code, sent.headers["location"]) == (303, f"{path}?requested=message")
        (stored,) = await server.inbox.read("a-test")
        request = TriggerRequest.model_validate_json(stored.body)
        assert (request.job.command, request.run) == ("Keep the old name.\n\nAnd add a test.", None)
        assert request.job.requester is not None and request.job.requester.login == "maintainer"
        assert is_message_to_run(JobRecord(job=request.job), worker.job)
        assert "Your message is sent." in (await writer.get(f"{path}?requested=message")).text
        for browser, form, status in (
            (reader, {**hidden, "csrf": parse_csrf((await reader.get("/")).text), "message": text}, 403),
            (writer, {**hidden, "message": text, "csrf": "0" * 64}, 403),
            (writer, {**hidden, "message": " "}, 400),
            (writer, {**hidden, "message": "x" * 3_001}, 400),
        ):
            assert (await browser.post(f"{path}/message", data=form)).status_code == status
        assert not await server.inbox.read("a-test")


async def test_a_failed_run_says_how_it_failed(server: DashboardServer) -> None:
    browser, run = await server.operator(), "acme-calc-1-gave-up"
    verdict = VerificationCompleted(verdict=Verdict(kind="empty"))
    await server.add_finished_run(run, started(), AgentStopped(reason="finished", detail="Done."), verdict)
    assert "How this run failed: gave up without a change." in (await browser.get(f"/runs/{run}")).text
    assert "<small>gave up without a change</small>" in (await browser.get("/")).text


async def test_a_waiting_call_is_shown_and_decided_with_buttons(server: DashboardServer) -> None:
    run, call = "acme-calc-1-waits", ToolCall(id="a", action=RunShell(command="git push \x1b[2K<b>"))
    stopped = waiting_for(call)
    assert stopped.confirmation is not None
    outcome = InputRequired(url="", question=stopped.detail, confirmation=stopped.confirmation)
    await server.add_finished_run(run, started(), reply(call), stopped, JobCompleted(outcome=outcome))
    reader = await server.person("reader")
    page = (await reader.get(f"/runs/{run}")).text
    assert "<pre>run_shell: git push ␛[2K&lt;b&gt;</pre>" in page and f"/runs/{run}/approve" not in page
    writer = await server.person("maintainer")
    page = (await writer.get(f"/runs/{run}")).text
    hidden = {name: re.findall(f'name="{name}" value="(.*?)"', page)[0] for name in ("csrf", "nonce", "code")}
    assert hidden["code"] == stopped.confirmation.code
    commands = []
    for verb, more in (("approve", {}), ("approve", {"scope": "run"}), ("reject", {"reason": "use a file"})):
        nonce = f"{len(commands):012x}"
        response = await writer.post(f"/runs/{run}/{verb}", data={**hidden, "nonce": nonce, **more})
        assert (response.status_code, response.headers["location"]) == (303, f"/runs/{run}?requested={verb}")
        (stored,) = await server.inbox.read("a-test")
        commands.append(TriggerRequest.model_validate_json(stored.body).job.command)
    code = hidden["code"]
    assert commands == [f"approve {code}", f"approve {code} all like this", f"reject {code} use a file"]
    assert "Your decision is sent." in (await writer.get(f"/runs/{run}?requested=approve")).text
    refused = await reader.post(f"/runs/{run}/approve", data=hidden)
    wrong = await writer.post(f"/runs/{run}/approve", data={**hidden, "code": "all like this"})
    assert (refused.status_code, wrong.status_code) == (403, 400)
