"""In a workflow, an answer continues the run that asked, on another machine."""

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from patchwright.bot.github_action.question_log import DIRECTORY
from patchwright.resolver.events import Message, ModelReply
from tests.end_to_end.conftest import CODE, KEY, Scenario
from tests.end_to_end.scripted_models import use_ordered_model
from tests.end_to_end.test_agent_questions import ASKING, GOING_ON, QUESTION, hooked_scenario
from tests.end_to_end.workflow_jobs import Workflow

__all__ = ["hooked_scenario"]
pytestmark = pytest.mark.slow
ARTIFACTS = "/api/v3/repos/acme/calc/actions/artifacts"


def upload(
    scenario: Scenario, content: bytes | None = None, machine: Path | None = None, **source: Any
) -> None:
    """Uploads the log as the Action does, and gives the next workflow run another machine."""
    machine = machine or scenario.data
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in (machine / DIRECTORY).iterdir():
            archive.write(file, file.name)
    run = {"repository_id": scenario.repo.id, "head_repository_id": scenario.repo.id, "head_branch": "main"}
    artifact = {
        "id": 11,
        "name": f"patchwright-log-{scenario.issue.number}",
        "expired": False,
        "created_at": "2026-01-02T03:04:05Z",
        "workflow_run": {**run, **source},
    }
    listed = {"total_count": 1, "artifacts": [artifact]}
    scenario.fake_github.add_attachment(ARTIFACTS, json.dumps(listed).encode())
    blob = scenario.fake_github.add_attachment("blob", packed.getvalue() if content is None else content)
    scenario.fake_github.add_attachment(f"{ARTIFACTS}/11/zip", status=302, headers={"location": blob})
    for directory in ("runs", DIRECTORY):
        shutil.rmtree(machine / directory)


async def ask(scenario: Scenario) -> None:
    await use_ordered_model(scenario, *ASKING, *GOING_ON)
    scenario.environment["PATCHWRIGHT_WORKFLOW_URL"] = "https://forge.test/acme/calc/actions/runs/1"
    delivery = await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
    code, out, error = await scenario.command("action", environment=scenario.event(delivery))
    assert code == 6, out + error


async def answer(scenario: Scenario, by: str = "maintainer") -> tuple[int, str, str]:
    delivery = await scenario.fake_github.add_comment(scenario.issue, "@agent Integers only.", by=by)
    return await scenario.command("action", environment=scenario.event(delivery))


async def test_an_answer_in_a_later_workflow_run_continues_the_run_that_asked(
    hooked_scenario: Scenario,
) -> None:
    scenario = hooked_scenario
    await ask(scenario)
    (run_id,) = scenario.runs
    assert [file.name for file in (scenario.data / DIRECTORY).iterdir()] == [f"{run_id}.jsonl"]
    assert KEY not in (scenario.data / DIRECTORY / f"{run_id}.jsonl").read_text()
    upload(scenario)
    code, out, error = await answer(scenario)
    assert code == 0, out + error
    trajectory = scenario.trajectory(run_id)
    assert len([event for event in trajectory if isinstance(event, ModelReply)]) == len(ASKING) + len(
        GOING_ON
    )
    (message,) = [e for e in trajectory if isinstance(e, Message) and e.trigger_id]
    assert "> Integers only." in message.text
    # The conversation goes on: the request after the answer contains the steps before the question.
    sent = str(scenario.endpoint.requests[len(ASKING)]["messages"])
    assert QUESTION.question.split(",")[0] in sent and "a + b" in sent and "Integers only." in sent


async def test_with_two_jobs_an_answer_continues_the_run_that_asked(scenario: Scenario) -> None:
    workflow = Workflow(scenario)
    endpoint = await use_ordered_model(scenario, *ASKING, *GOING_ON)
    await workflow.label()
    await workflow.resolve()
    step = await workflow.publish()
    assert (step.code, step.outputs["outcome"]) == (6, "input_required"), step.output
    question = scenario.comments[0]
    upload(scenario, machine=scenario.data / "publish")
    shutil.rmtree(scenario.data / "resolve")
    await workflow.comment("@agent Integers only.")
    step = await workflow.resolve()
    assert step.code == 0 and "NOTICE" not in step.output, step.output
    step = await workflow.publish()
    assert (step.code, step.outputs["verdict"]) == (0, "fixed"), step.output
    assert len(endpoint.requests) == len(ASKING) + len(GOING_ON)
    sent = str(endpoint.requests[len(ASKING)]["messages"])
    assert QUESTION.question.split(",")[0] in sent and "a + b" in sent and "Integers only." in sent
    assert scenario.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    assert scenario.comments[0] == question and len(scenario.repo.pulls) == 1


@pytest.mark.parametrize(
    "source",
    [{"head_repository_id": 999_999}, {"head_branch": "patchwright/other"}, {"repository_id": 999_999}],
)
async def test_an_artifact_that_another_workflow_uploaded_is_not_read(
    hooked_scenario: Scenario, source: dict[str, Any]
) -> None:
    scenario = hooked_scenario
    await ask(scenario)
    (run_id,) = scenario.runs
    upload(scenario, **source)
    await answer(scenario)
    assert run_id not in scenario.runs
    requested = [path for path, _ in scenario.fake_github.attachment_requests]
    assert ARTIFACTS in requested and f"{ARTIFACTS}/11/zip" not in requested


async def test_a_damaged_artifact_starts_the_run_again_and_says_so(hooked_scenario: Scenario) -> None:
    scenario = hooked_scenario
    await ask(scenario)
    (run_id,) = scenario.runs
    upload(scenario, content=b"PK no zip")
    _, out, error = await answer(scenario)
    assert run_id not in scenario.runs
    assert "NOTICE: The run that asked a question cannot be continued, so I start again:" in out + error


async def test_the_answer_of_a_stranger_reads_no_artifact(hooked_scenario: Scenario) -> None:
    scenario = hooked_scenario
    await ask(scenario)
    upload(scenario)
    code, out, error = await answer(scenario, by="stranger")
    assert code == 4, out + error
    assert ARTIFACTS not in [path for path, _ in scenario.fake_github.attachment_requests]
