"""What the program says to the model beside the answers of its calls: the gate, circles, looking back, questions."""

from pathlib import Path

import pytest

from resolver.actions import Ask, Finish, Plan, PlanItem
from resolver.agent import begin
from resolver.events import Ended, Observed, Told
from resolver.gate import missing
from resolver.log import FileLog
from runtime.actions import RunShell, ViewFile
from runtime.observations import Failed, Noted
from tests.resolver.agents import FINISH, Box, agent, create
from tests.resolver.scripted import Line, Scripted

ASK = Ask(question="Which of the two?")


async def work(path: Path, *script: Line, plan_every: int = 0) -> tuple[FileLog, Scripted]:
    log = FileLog(path / "events.jsonl")
    model = Scripted(script)
    worker = agent(model, Box())
    worker.gate = lambda trajectory: missing(trajectory, None)
    worker.plan_every = plan_every
    await begin(log, "You mend.", "Issue 7", worker.tools)
    await worker.run(log)
    log.close()
    return log, model


def words(log: FileLog, source: str) -> list[str]:
    return [event.text for event in log.trajectory if isinstance(event, Told) and event.source == source]


def refusals(log: FileLog) -> list[str]:
    results = [event.observation for event in log.trajectory if isinstance(event, Observed)]
    return [each.message for each in results if isinstance(each, Failed) and each.reason == "refused"]


async def test_a_finish_is_sent_back_once_with_what_is_missing_and_then_taken(tmp_path: Path) -> None:
    log, _ = await work(tmp_path, create("a.py"), FINISH, FINISH)
    (refusal,) = refusals(log)
    assert "Nothing that was run failed before the last edit" in refusal
    assert "The repository's tests were not run after the last edit." in refusal
    assert log.trajectory.ended == Ended(
        reason="finished", detail="The agent gave its account and ended the work."
    )
    assert len(missing(log.trajectory, None)) == 2  # the account can say so


async def test_after_it_was_sent_back_the_work_can_be_mended(tmp_path: Path) -> None:
    log, _ = await work(
        tmp_path, create("a.py"), FINISH, RunShell(command="pytest"), ViewFile(path="a.py"), FINISH
    )
    assert len(refusals(log)) == 1
    assert missing(log.trajectory, None) == (
        "Nothing that was run failed before the last edit, so nothing shows that the failure was reproduced.",
    )


async def test_a_finish_without_a_change_is_not_held_up(tmp_path: Path) -> None:
    log, _ = await work(tmp_path, FINISH)
    assert refusals(log) == []
    assert log.trajectory.ended and log.trajectory.ended.reason == "finished"


async def test_what_comes_with_a_refused_finish_is_done_first(tmp_path: Path) -> None:
    log, _ = await work(tmp_path, [FINISH, create("a.py")], FINISH)
    kinds = [event.observation.kind for event in log.trajectory if isinstance(event, Observed)]
    assert kinds == ["edited", "failed", "noted"]


async def test_a_circle_is_told_and_then_ended(tmp_path: Path) -> None:
    log, _ = await work(tmp_path, *[RunShell(command="ls")] * 6)
    (told,) = words(log, "nudge")
    assert told.startswith(
        "You have made the same call 3 times in a row, and its answer was the same each time:\n  $ ls"
    )
    assert log.trajectory.ended and log.trajectory.ended.reason == "stuck"
    assert len(log.trajectory.decisions()) == 6


async def test_who_leaves_the_circle_goes_on(tmp_path: Path) -> None:
    log, _ = await work(tmp_path, *[RunShell(command="ls")] * 3, RunShell(command="pwd"), FINISH)
    assert len(words(log, "nudge")) == 1
    assert log.trajectory.ended and log.trajectory.ended.reason == "finished"


async def test_after_every_tau_replies_the_model_looks_back_and_ahead(tmp_path: Path) -> None:
    steps = [ViewFile(path=str(number)) for number in range(7)]
    log, _ = await work(tmp_path, *steps, FINISH, plan_every=3)
    assert len(words(log, "planning")) == 2
    positions = [
        len([e for e in list(log.trajectory)[:at] if e.kind == "decided"])
        for at, event in enumerate(log.trajectory)
        if isinstance(event, Told) and event.source == "planning"
    ]
    assert positions == [3, 6]
    assert "Bring your list up to date with `plan`" in words(log, "planning")[0]


async def test_what_was_learnt_meanwhile_is_told_once_when_the_model_is_asked_next(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "events.jsonl")
    model = Scripted([ViewFile(path="a"), ViewFile(path="b"), ViewFile(path="c"), FINISH])
    worker = agent(model, Box())
    news = Told(text="3 passed", source="baseline")

    async def learnt() -> tuple[Told, ...]:
        return (news,) if len(log.trajectory.decisions()) > 1 else ()

    worker.news = learnt
    await begin(log, "You mend.", "Issue 7", worker.tools)
    await worker.run(log)
    log.close()
    assert words(log, "baseline") == ["3 passed"]
    assert [sum("3 passed" in str(message) for message in asked) for asked in model.asked] == [0, 0, 1, 1]
    assert log.trajectory.ended and log.trajectory.ended.reason == "finished"


async def test_a_question_ends_the_run_with_its_words(tmp_path: Path) -> None:
    log, _ = await work(tmp_path, ASK)
    assert log.trajectory.ended == Ended(reason="asked", detail="Which of the two?")


async def test_a_plan_is_noted_with_what_is_left(tmp_path: Path) -> None:
    items = tuple(PlanItem(text=text, state=state) for text, state in (("a", "done"), ("b", "open")))
    log, _ = await work(tmp_path, Plan(items=items), FINISH)
    seen = next(event.observation for event in log.trajectory if isinstance(event, Observed))
    assert seen == Noted(text="Noted: 1 of 2 left.")


@pytest.mark.parametrize("last", [FINISH, ASK])
async def test_a_run_that_ended_is_not_taken_up_again(tmp_path: Path, last: Finish | Ask) -> None:
    log, _ = await work(tmp_path, last)
    before = len(log.trajectory)
    again = FileLog(tmp_path / "events.jsonl")
    ended = await agent(Scripted(()), Box()).run(again)
    assert ended == log.trajectory.ended and len(again.trajectory) == before
    again.close()
