"""A workflow in two jobs: one has the model's key and may only read, the other may write and has no model."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.actions import Ask
from tests.end_to_end.conftest import CODE, KEY, MENDED, Scene
from tests.end_to_end.workflow_jobs import Workflow


@pytest.fixture
def workflow(scene: Scene) -> Workflow:
    return Workflow(scene)


async def test_the_second_job_opens_the_pull_request_that_the_first_one_proved(workflow: Workflow) -> None:
    scene = workflow.scene
    await scene.will(*MENDED)
    await workflow.labeled()

    first = await workflow.resolve()
    assert first.code == 0, first.said
    assert first.outputs["outcome"] == "prepared"
    assert first.outputs["verdict"] == "fixed"
    assert int(first.outputs["tokens"]) > 0
    assert Path(first.outputs["run-page"]).read_text().startswith("<!doctype html>")
    assert "| passed | 1 | 2 |" in first.summary
    assert (scene.comments, scene.repo.pulls) == ([], ())

    assert KEY not in "".join(path.read_text() for path in workflow.artifact.iterdir())
    second = await workflow.publish()
    assert second.code == 0, second.said
    assert scene.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    assert not scene.pull.draft
    assert second.outputs["outcome"] == "published"
    assert second.outputs["verdict"] == "fixed"
    assert second.outputs["pull-request"].endswith("/acme/calc/pull/2")
    assert second.outputs["branch"] == "patchwright/issue-1"
    assert second.outputs["tokens"] == first.outputs["tokens"]
    assert len(scene.comments) == 1


@pytest.mark.slow
async def test_publishing_twice_is_publishing_once(workflow: Workflow) -> None:
    scene = workflow.scene
    await scene.will(*MENDED)
    await workflow.labeled()
    await workflow.resolve()
    first, again = (
        await workflow.publish(),
        await workflow.publish(PATCHWRIGHT_DATA=str(scene.data / "other")),
    )
    assert first.outputs == again.outputs
    assert (len(scene.repo.pulls), len(scene.comments)) == (1, 1)


@pytest.mark.slow
async def test_a_question_reaches_the_issue(workflow: Workflow) -> None:
    await workflow.scene.will(RecordedTurn("I wonder.", Ask(question="Which of the two?")))
    await workflow.labeled()
    first = await workflow.resolve()
    assert first.outputs["outcome"] == "prepared", first.said
    second = await workflow.publish()
    assert (second.code, second.outputs["outcome"]) == (6, "input_required"), second.said
    assert "Which of the two?" in workflow.scene.comments[0]


async def test_who_may_not_ask_is_told_so_by_the_second_job(workflow: Workflow) -> None:
    await workflow.scene.will(*MENDED)
    await workflow.commented("@agent mend this", by="stranger")
    first = await workflow.resolve()
    assert (first.code, first.outputs["outcome"]) == (0, "prepared"), first.said
    assert not workflow.scene.endpoint.requests
    second = await workflow.publish()
    assert (second.code, second.outputs["outcome"]) == (4, "rejected"), second.said
    assert "stranger does not have write access to this repository" in workflow.scene.comments[-1]


@pytest.mark.slow
async def test_help_is_answered_by_the_second_job(workflow: Workflow) -> None:
    await workflow.commented("@agent help")
    first = await workflow.resolve(PATCHWRIGHT_MODEL="")
    assert (first.code, first.outputs["outcome"]) == (0, "prepared"), first.said
    second = await workflow.publish()
    assert (second.code, second.outputs["outcome"]) == (0, "answered"), second.said
    assert workflow.scene.comments[-1].startswith("I understand these commands")


@pytest.mark.slow
async def test_why_the_first_job_broke_off_is_told_by_the_second(workflow: Workflow) -> None:
    await workflow.scene.will(*MENDED, key="another key")
    await workflow.labeled()
    first = await workflow.resolve()
    assert (first.code, first.outputs["outcome"]) == (2, "error"), first.said
    second = await workflow.publish()
    assert second.outputs["outcome"] == "error"
    assert "The model provider rejected the request." in workflow.scene.comments[0]


@pytest.mark.slow
async def test_a_cancelled_first_job_leaves_its_work_for_a_branch(workflow: Workflow) -> None:
    scene = workflow.scene

    async def cancel(turn: int, body: dict[str, Any]) -> None:
        if turn == 2:
            workflow.running.send_signal(signal.SIGINT)  # as the runner does
            await asyncio.sleep(60)

    await scene.will(*MENDED, on_request=cancel)
    await workflow.labeled()
    first = await workflow.resolve()
    assert first.outputs["outcome"] == "canceled", first.said
    second = await workflow.publish()
    assert second.outputs["outcome"] == "error", second.said
    (branch,) = (name for name in scene.repo.branches if name.startswith("patchwright/"))
    assert scene.repo.read(branch, "calc.py") == CODE.replace("a - b", "a + b")
    assert "The workflow was canceled." in scene.comments[0]
    assert branch in scene.comments[0]


async def test_a_first_job_that_left_nothing_is_told(workflow: Workflow) -> None:
    await workflow.labeled()
    second = await workflow.publish()
    assert (second.code, second.outputs["outcome"]) == (1, "error")
    assert "the previous job failed, or its artifact has expired" in workflow.scene.comments[0]


@pytest.mark.slow
async def test_a_permission_that_was_taken_away_meanwhile_publishes_nothing(workflow: Workflow) -> None:
    scene = workflow.scene
    await scene.will(*MENDED)
    await workflow.labeled()
    await workflow.resolve()
    scene.world.set_role(scene.repo, "maintainer", "read")
    second = await workflow.publish()
    assert (second.code, second.outputs["outcome"]) == (4, "rejected"), second.said
    assert scene.repo.pulls == ()
