"""Messages to the model beside tool results: finish checks, nudges, planning and questions."""

from pathlib import Path

import pytest

from patchwright.resolver.activity.finish_checks import find_missing_steps
from patchwright.resolver.agent.agent import record_prompts
from patchwright.resolver.events import AgentStopped, Message, ToolResult
from patchwright.resolver.run_log import FileRunLog
from patchwright.resolver.tool_actions.control_actions import Ask, Finish, Plan
from patchwright.runtime.actions import RunShell, ViewFile
from patchwright.runtime.observations import Acknowledgment, ActionFailure
from patchwright.runtime.tool_action import PlanItem
from tests.resolver.agent_runs import FINISH, FakeSandbox, create_file, make_agent
from tests.resolver.scripted_model import ScriptedModel, ScriptLine

ASK = Ask(question="Which of the two?")


async def work(
    path: Path, *script: ScriptLine, planning_interval: int = 0
) -> tuple[FileRunLog, ScriptedModel]:
    log = FileRunLog(path / "events.jsonl")
    model = ScriptedModel(script)
    worker = make_agent(model, FakeSandbox())
    worker.finish_checks = lambda trajectory: find_missing_steps(trajectory, None)
    worker.planning_interval = planning_interval
    await record_prompts(log, "You fix.", "Issue 7", worker.tools)
    await worker.run(log)
    log.close()
    return log, model


def words(log: FileRunLog, source: str) -> list[str]:
    return [event.text for event in log.trajectory if isinstance(event, Message) and event.source == source]


def refusals(log: FileRunLog) -> list[str]:
    results = [event.observation for event in log.trajectory if isinstance(event, ToolResult)]
    return [each.message for each in results if isinstance(each, ActionFailure) and each.reason == "refused"]


async def test_a_finish_call_is_rejected_once_with_what_is_missing_and_then_accepted(tmp_path: Path) -> None:
    log, _ = await work(tmp_path, create_file("a.py"), FINISH, FINISH)
    (refusal,) = refusals(log)
    assert "no command failed before the last edit" in refusal
    assert "The repository's tests were not run after the last edit (`create_file a.py`)." in refusal
    assert log.trajectory.agent_stopped == AgentStopped(
        reason="finished", detail="The agent finished the work."
    )
    assert len(find_missing_steps(log.trajectory, None)) == 2  # The summary can list them.


async def test_after_a_rejected_finish_call_the_missing_steps_can_be_done(tmp_path: Path) -> None:
    log, _ = await work(
        tmp_path, create_file("a.py"), FINISH, RunShell(command="pytest"), ViewFile(path="a.py"), FINISH
    )
    assert len(refusals(log)) == 1
    assert find_missing_steps(log.trajectory, None) == (
        "Nothing shows the failure: no command failed before the last edit, "
        "and no command had different output before and after the edits.",
    )


async def test_a_finish_call_without_a_change_is_accepted(tmp_path: Path) -> None:
    log, _ = await work(tmp_path, FINISH)
    assert refusals(log) == []
    assert log.trajectory.agent_stopped and log.trajectory.agent_stopped.reason == "finished"


async def test_calls_beside_a_rejected_finish_call_are_run_first(tmp_path: Path) -> None:
    log, _ = await work(tmp_path, [FINISH, create_file("a.py")], FINISH)
    kinds = [event.observation.kind for event in log.trajectory if isinstance(event, ToolResult)]
    assert kinds == ["edit_result", "action_failure", "acknowledgment"]


async def test_a_stuck_run_is_nudged_and_then_ended(tmp_path: Path) -> None:
    log, _ = await work(tmp_path, *[RunShell(command="ls")] * 6)
    (message,) = words(log, "nudge")
    assert message.startswith(
        "You have made the same call 3 times in a row, with the same result each time:\n  $ ls"
    )
    assert log.trajectory.agent_stopped and log.trajectory.agent_stopped.reason == "stuck"
    assert len(log.trajectory.replies()) == 6


async def test_a_run_that_leaves_the_loop_continues(tmp_path: Path) -> None:
    log, _ = await work(tmp_path, *[RunShell(command="ls")] * 3, RunShell(command="pwd"), FINISH)
    assert len(words(log, "nudge")) == 1
    assert log.trajectory.agent_stopped and log.trajectory.agent_stopped.reason == "finished"


async def test_the_model_reviews_and_plans_at_the_planning_interval(tmp_path: Path) -> None:
    steps = [ViewFile(path=str(number)) for number in range(7)]
    log, _ = await work(tmp_path, *steps, FINISH, planning_interval=3)
    assert len(words(log, "planning")) == 2
    positions = [
        len([e for e in list(log.trajectory)[:at] if e.kind == "model_reply"])
        for at, event in enumerate(log.trajectory)
        if isinstance(event, Message) and event.source == "planning"
    ]
    assert positions == [3, 6]
    assert "Update your list with `plan`" in words(log, "planning")[0]


async def test_a_new_message_is_delivered_once_before_the_next_model_call(tmp_path: Path) -> None:
    log = FileRunLog(tmp_path / "events.jsonl")
    model = ScriptedModel([ViewFile(path="a"), ViewFile(path="b"), ViewFile(path="c"), FINISH])
    worker = make_agent(model, FakeSandbox())
    news = Message(text="3 passed", source="baseline")

    async def learnt() -> tuple[Message, ...]:
        return (news,) if len(log.trajectory.replies()) > 1 else ()

    worker.get_new_messages = learnt
    await record_prompts(log, "You fix.", "Issue 7", worker.tools)
    await worker.run(log)
    log.close()
    assert words(log, "baseline") == ["3 passed"]
    assert [sum("3 passed" in str(message) for message in request) for request in model.requests] == [
        0,
        0,
        1,
        1,
    ]
    assert log.trajectory.agent_stopped and log.trajectory.agent_stopped.reason == "finished"


async def test_a_question_ends_the_run_with_its_text(tmp_path: Path) -> None:
    log, _ = await work(tmp_path, ASK)
    assert log.trajectory.agent_stopped == AgentStopped(reason="input_required", detail="Which of the two?")


async def test_a_plan_is_acknowledged_with_the_number_of_open_items(tmp_path: Path) -> None:
    items = tuple(PlanItem(text=text, status=state) for text, state in (("a", "done"), ("b", "open")))
    log, _ = await work(tmp_path, Plan(items=items), FINISH)
    result = next(event.observation for event in log.trajectory if isinstance(event, ToolResult))
    assert result == Acknowledgment(text="Noted: 1 of 2 left.")


@pytest.mark.parametrize("last", [FINISH, ASK])
async def test_a_stopped_run_is_not_continued(tmp_path: Path, last: Finish | Ask) -> None:
    log, _ = await work(tmp_path, last)
    before = len(log.trajectory)
    again = FileRunLog(tmp_path / "events.jsonl")
    ended = await make_agent(ScriptedModel(()), FakeSandbox()).run(again)
    assert ended == log.trajectory.agent_stopped and len(again.trajectory) == before
    again.close()
