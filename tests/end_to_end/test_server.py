"""`patchwright serve` as people meet it: label, mention, redelivery, refusal, crash."""

import asyncio

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.runtime.actions import RunShell
from tests.end_to_end.conftest import CODE, MENDED, Scene
from tests.end_to_end.server_scenario import until

pytestmark = pytest.mark.redis


async def test_a_label_becomes_a_pull_request_and_one_comment_tells_it(scene: Scene) -> None:
    await scene.will(*MENDED)
    async with scene.serving() as served:
        async with asyncio.timeout(30):  # its worker takes jobs a moment before it is counted
            while await served.health() != 200:
                await asyncio.sleep(0.05)
        scene.world.add_webhook(served.webhook, "story-webhook-secret")
        delivery = await scene.world.add_label(scene.issue, "fix-me", by="maintainer")
        assert delivery.status == 202
        await scene.settled()
    assert scene.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    assert not scene.pull.draft
    (comment,) = scene.comments
    assert comment.startswith("I opened pull request #2. **Fixed:**")


@pytest.mark.slow
async def test_the_same_delivery_again_changes_nothing(scene: Scene) -> None:
    await scene.will(*MENDED, delay=0.2)
    async with scene.serving() as served:
        scene.world.add_webhook(served.webhook, "story-webhook-secret")
        delivery = await scene.world.add_label(scene.issue, "fix-me", by="maintainer")
        again = await asyncio.gather(*(scene.world.redeliver(delivery) for _ in range(5)))
        await scene.settled()
        late = await scene.world.redeliver(delivery)
        assert {one.status for one in (*again, late)} == {202}
        await asyncio.sleep(1)
    assert len(scene.repo.pulls) == len(scene.comments) == len(scene.runs) == 1
    assert scene.repo.branches == ("main", "patchwright/issue-1")
    assert len(scene.endpoint.requests) == len(MENDED) + 1  # its finish is sent back once


@pytest.mark.slow
async def test_a_mention_carries_what_was_asked_to_the_agent(scene: Scene) -> None:
    await scene.will(*MENDED)
    async with scene.serving() as served:
        scene.world.add_webhook(served.webhook, "story-webhook-secret")
        await scene.world.add_comment(scene.issue, "@agent please mind negative numbers", by="maintainer")
        await scene.settled()
    brief = scene.endpoint.requests[0]["messages"][1]["content"]
    assert "added:\n> please mind negative numbers" in brief
    assert not scene.pull.draft


@pytest.mark.slow
async def test_a_label_on_a_pull_request_without_a_review_hears_what_is_missing(scene: Scene) -> None:
    await scene.will(*MENDED)
    async with scene.serving() as served:
        scene.world.add_webhook(served.webhook, "story-webhook-secret")
        await scene.world.add_label(scene.issue, "fix-me", by="maintainer")
        await scene.settled()
        asked = len(scene.endpoint.requests)
        told = await scene.world.add_label(scene.pull, "fix-me", by="maintainer")
        assert (told.event, told.status) == ("pull_request", 202)
        await scene.settled(runs=2)
    assert len(scene.endpoint.requests) == asked
    assert "there is no open review thread here" in scene.pull.comments[-1].body


async def test_strangers_start_nothing_and_hear_why(scene: Scene) -> None:
    await scene.will(*MENDED)
    async with scene.serving() as served:
        scene.world.add_webhook(served.webhook, "story-webhook-secret")
        await scene.world.add_label(
            scene.issue, "fix-me", by="triager"
        )  # a label proves no more than triage rights
        await scene.world.add_comment(scene.issue, "@agent do it", by="stranger")
        await until(lambda: len(scene.comments) == 3)
    assert (scene.endpoint.requests, scene.runs) == ([], ())  # they do not even wait in the queue
    assert (scene.repo.branches, scene.repo.pulls) == (("main",), ())
    ours = [comment for comment in scene.comments if comment.startswith("I did not start")]
    assert {comment.split()[6] for comment in ours} == {"triager", "stranger"}
    assert {write.method for write in scene.world.writes} == {"POST"}
    assert all(write.path.endswith("/comments") for write in scene.world.writes)


@pytest.mark.slow
async def test_a_killed_server_goes_on_with_the_run_when_it_is_started_again(scene: Scene) -> None:
    first, *rest = MENDED
    hang = RunShell(command=f"[ -e {scene.data / 'again'} ] || sleep 600")
    asked = asyncio.Event()

    def note(turn: int, body: object) -> None:
        if turn == 2:
            asked.set()

    # The hanging command is the third turn: by then the first edit is saved.
    await scene.will(first, rest[0], RecordedTurn("Wait.", hang), *rest[1:], on_request=note)
    async with scene.serving() as served:
        scene.world.add_webhook(served.webhook, "story-webhook-secret")
        await scene.world.add_label(scene.issue, "fix-me", by="maintainer")
        async with asyncio.timeout(60):
            await asked.wait()
        await asyncio.sleep(0.5)
        served.process.kill()
        await served.process.wait()
    (scene.data / "again").touch()
    assert scene.repo.pulls == ()
    async with scene.serving():
        await scene.settled()
    assert scene.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    assert len(scene.runs) == len(scene.repo.pulls) == len(scene.comments) == 1


async def test_when_the_model_refuses_the_key_the_thread_is_told_and_nothing_is_proposed(
    scene: Scene,
) -> None:
    await scene.will(*MENDED)
    scene.environment["PATCHWRIGHT_MODEL_API_KEY"] = "sk-wrong-wrong-wrong"
    async with scene.serving() as served:
        scene.world.add_webhook(served.webhook, "story-webhook-secret")
        await scene.world.add_label(scene.issue, "fix-me", by="maintainer")
        async with asyncio.timeout(60):
            while not scene.comments or "had to stop" not in scene.comments[0]:
                await asyncio.sleep(0.1)
    (comment,) = scene.comments
    assert comment.startswith("I had to stop before I finished.")
    assert "`PATCHWRIGHT_MODEL_API_KEY`" in comment
    assert "sk-wrong" not in comment
    assert (scene.repo.branches, scene.repo.pulls) == (("main",), ())
