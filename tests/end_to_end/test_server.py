"""`patchwright serve` with labels, mentions, redeliveries, rejections, and crashes."""

import asyncio

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.runtime.actions import RunShell
from tests.end_to_end.conftest import CODE, FIX_TURNS, Scenario
from tests.end_to_end.server_scenario import wait_until
from tests.preloaded_command import COMMAND

pytestmark = pytest.mark.redis


async def test_a_label_becomes_a_pull_request_and_one_comment(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    async with scenario.serve() as served:
        async with asyncio.timeout(30):  # its worker takes jobs a moment before it is counted
            while await served.health() != 200:
                await asyncio.sleep(0.05)
        scenario.fake_github.add_webhook(served.webhook, "story-webhook-secret")
        past = len(scenario.fake_github.api_requests)
        delivery = await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
        assert delivery.status == 202
        await scenario.wait_for_completion()
    # The first poll, 5 s after the start, also uses the App's credentials and a token that can only read.
    fake_github = scenario.fake_github
    tokens = {
        f"Bearer {token}"
        for token in fake_github.tokens
        if "contents" in fake_github.token_permissions(token)
    }
    requests = [one for one in fake_github.api_requests[past:] if one.credentials in tokens]
    requests = [one for one in requests if not one.path.endswith("/labels")]
    # A slow run also updates its comment while it works. These edits do not count, only the last one.
    # One more request, as the App itself, reads its permissions in the repository.
    counted = [(one.method, one.path) for one in requests if one.method != "PATCH"]
    assert len(counted) + 2 <= 26, counted
    paths = [(one.path, one.status) for one in requests]
    assert paths.count(("/repos/acme/calc/issues/1/comments", 200)) == 1
    assert scenario.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    assert not scenario.pull.draft
    (comment,) = scenario.comments
    assert comment.startswith("I opened pull request #2. **Fixed:**")


@pytest.mark.slow
async def test_the_same_delivery_again_changes_nothing(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS, delay=0.2)
    async with scenario.serve() as served:
        scenario.fake_github.add_webhook(served.webhook, "story-webhook-secret")
        delivery = await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
        again = await asyncio.gather(*(scenario.fake_github.redeliver(delivery) for _ in range(5)))
        await scenario.wait_for_completion()
        late = await scenario.fake_github.redeliver(delivery)
        assert {one.status for one in (*again, late)} == {202}
        await asyncio.sleep(1)
    assert len(scenario.repo.pulls) == len(scenario.comments) == len(scenario.runs) == 1
    assert scenario.repo.branches == ("main", "patchwright/issue-1")
    assert len(scenario.endpoint.requests) == len(FIX_TURNS)


@pytest.mark.slow
async def test_the_text_of_a_mention_reaches_the_agent(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    async with scenario.serve() as served:
        scenario.fake_github.add_webhook(served.webhook, "story-webhook-secret")
        await scenario.fake_github.add_comment(
            scenario.issue, "@agent please mind negative numbers", by="maintainer"
        )
        await scenario.wait_for_completion()
    brief = scenario.endpoint.requests[0]["messages"][1]["content"]
    assert "added:\n> please mind negative numbers" in brief
    assert not scenario.pull.draft


@pytest.mark.slow
async def test_a_label_on_a_pull_request_without_a_review_gets_an_explanation(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    async with scenario.serve() as served:
        scenario.fake_github.add_webhook(served.webhook, "story-webhook-secret")
        await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
        await scenario.wait_for_completion()
        request_count = len(scenario.endpoint.requests)
        delivery = await scenario.fake_github.add_label(scenario.pull, "fix-me", by="maintainer")
        assert (delivery.event, delivery.status) == ("pull_request", 202)
        await scenario.wait_for_completion(runs=2)
    assert len(scenario.endpoint.requests) == request_count
    assert "There is no open review thread here" in scenario.pull.comments[-1].body


@pytest.mark.slow
async def test_a_stranger_cannot_start_a_run_and_learns_why(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    async with scenario.serve() as served:
        scenario.fake_github.add_webhook(served.webhook, "story-webhook-secret")
        await scenario.fake_github.add_label(
            scenario.issue, "fix-me", by="triager"
        )  # a label proves only triage access
        await scenario.fake_github.add_comment(scenario.issue, "@agent do it", by="stranger")
        await wait_until(lambda: len(scenario.comments) == 3)
    assert (scenario.endpoint.requests, scenario.runs) == ([], ())  # they are not even queued
    assert (scenario.repo.branches, scenario.repo.pulls) == (("main",), ())
    ours = [
        comment
        for comment in scenario.comments
        if comment.endswith("A maintainer can add the label `fix-me`.\n")
    ]
    assert {comment.split()[0] for comment in ours} == {"@triager", "@stranger"}
    assert {write.method for write in scenario.fake_github.writes} == {"POST"}
    assert all(write.path.endswith("/comments") for write in scenario.fake_github.writes)


@pytest.mark.slow
async def test_a_restarted_server_continues_the_run_of_a_killed_one(scenario: Scenario) -> None:
    first, *rest = FIX_TURNS
    hang = RunShell(command=f"[ -e {scenario.data / 'again'} ] || sleep 600")
    requested = asyncio.Event()

    def note(turn: int, body: object) -> None:
        if turn == 2:
            requested.set()

    # The hanging command is the third turn; by then the first edit is saved.
    await scenario.script_model(first, rest[0], RecordedTurn("Wait.", hang), *rest[1:], on_request=note)
    async with scenario.serve(COMMAND) as served:
        scenario.fake_github.add_webhook(served.webhook, "story-webhook-secret")
        await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
        async with asyncio.timeout(60):
            await requested.wait()
        await asyncio.sleep(0.5)
        served.process.kill()
        await served.process.wait()
    (scenario.data / "again").touch()
    assert scenario.repo.pulls == ()
    async with scenario.serve():
        await scenario.wait_for_completion()
    assert scenario.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    assert len(scenario.runs) == len(scenario.repo.pulls) == len(scenario.comments) == 1


@pytest.mark.slow
async def test_a_rejected_model_key_is_reported_in_the_thread_without_a_pull_request(
    scenario: Scenario,
) -> None:
    await scenario.script_model(*FIX_TURNS)
    scenario.environment["PATCHWRIGHT_MODEL_API_KEY"] = "sk-wrong-wrong-wrong"
    async with scenario.serve() as served:
        scenario.fake_github.add_webhook(served.webhook, "story-webhook-secret")
        await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
        async with asyncio.timeout(60):
            while not scenario.comments or "had to stop" not in scenario.comments[0]:
                await asyncio.sleep(0.1)
    (comment,) = scenario.comments
    assert comment.startswith("I had to stop before I started.")
    assert "`PATCHWRIGHT_MODEL_API_KEY`" in comment
    assert "sk-wrong" not in comment
    assert (scenario.repo.branches, scenario.repo.pulls) == (("main",), ())
