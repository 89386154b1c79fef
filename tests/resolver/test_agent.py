"""The loop: every step is read from the log, whatever was in it when the agent came."""

import asyncio
import logging
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from resolver import prose
from resolver.actions import Think
from resolver.agent import begin
from resolver.domain import Patch, RunId
from resolver.errors import ChangeTooLarge, ContextOverflow, ModelError, ModelRefused
from resolver.events import (
    Checkpointed,
    Decided,
    Ended,
    Told,
    Usage,
)
from resolver.llm.model import FromTool, FromUser, Reply, ToolCall
from resolver.log import FileLog, FileLogs
from resolver.rules import Limits
from runtime.actions import RunShell, ViewFile
from tests.resolver.agents import FINISH, Box, Deaf, agent, create, kinds, patch, work
from tests.resolver.scripted import Scripted


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[FileLog]:
    async with FileLogs(tmp_path).open(RunId("run")) as log:
        yield log


async def test_a_run_goes_from_the_brief_to_the_finish(log: FileLog) -> None:
    model = await work(log, RunShell(command="pytest"), create("a.py"), FINISH)
    assert kinds(log) == [
        "prompted",
        "told",
        *("decided", "observed"),
        *("decided", "checkpointed", "observed"),
        *("decided", "observed", "ended"),
    ]
    assert log.trajectory.ended == Ended(
        reason="finished", detail="The agent gave its account and ended the work."
    )
    assert log.trajectory.checkpoint() == patch("a.py")
    assert [len(messages) for messages in model.asked] == [2, 4, 6]
    assert log.trajectory.spent().usd == Decimal("0.03")


async def test_a_cancellation_that_was_swallowed_ends_the_run_before_its_next_step(log: FileLog) -> None:
    model = Deaf()
    worker = agent(model, Box())
    await begin(log, "You mend.", "Issue 7", worker.tools)
    task = asyncio.create_task(worker.run(log))
    await model.asked.wait()
    task.cancel()
    await asyncio.wait((task,), timeout=10)
    assert task.cancelled()
    assert kinds(log) == ["prompted", "told", "decided"]


async def test_an_ended_run_is_not_touched_until_somebody_speaks(log: FileLog) -> None:
    await work(log, FINISH)
    before = log.trajectory.entries
    model = Scripted([FINISH])
    worker = agent(model, Box())
    assert (await worker.run(log)).reason == "finished"
    assert log.trajectory.entries == before
    await log.append(Told(text="A test broke.", source="program"))
    await worker.run(log)
    assert model.asked[0][-1] == FromUser(text="A test broke.")


async def test_parallel_calls_run_in_order_and_finish_comes_last(log: FileLog) -> None:
    box = Box()
    actions = [FINISH, RunShell(command="one"), create("two"), ViewFile(path="three")]
    await work(log, actions, box=box)
    assert box.acted == actions[1:]
    assert kinds(log)[2:] == [
        "decided",
        "observed",
        "checkpointed",
        "observed",
        "observed",
        "observed",
        "ended",
    ]


async def test_only_a_changed_tree_is_written_down(log: FileLog) -> None:
    box = Box()
    await work(
        log,
        create("a"),
        RunShell(command="ls"),
        create("a"),
        ViewFile(path="a"),
        create("b"),
        FINISH,
        box=box,
    )
    saved = [event.patch for event in log.trajectory if isinstance(event, Checkpointed)]
    assert saved == [patch("a"), patch("a", "b")]


async def test_a_change_that_is_too_large_is_told_and_can_be_taken_back(log: FileLog) -> None:
    class Full(Box):
        async def patch(self) -> Patch:
            if self.acted[-1] == RunShell(command="make build"):
                raise ChangeTooLarge("The change is larger than 4 MB; among what it touches: build/.")
            return await super().patch()

    model = await work(log, RunShell(command="make build"), create("a"), FINISH, box=Full())
    told = model.asked[1][-1]
    assert isinstance(told, FromTool) and told.text.startswith("[not done: too large]\nThe change is larger")
    assert log.trajectory.checkpoint() == patch("a")


async def test_nonsense_is_answered_and_the_run_goes_on(log: FileLog) -> None:
    nonsense = Reply(
        text="",
        calls=(
            ToolCall(id="x", name="run_shell", arguments='{"comm'),
            ToolCall(id="x", name="run shell", arguments="{}"),
            ToolCall(id="", name="view_file", arguments='{"path": "a"}'),
            ToolCall(id="no/such*id" * 20, name="think", arguments='{"thought": "hm"}'),
        ),
        usage=Usage(model="m"),
    )
    model = await work(log, nonsense, nonsense, FINISH)
    calls = [c for event in log.trajectory if isinstance(event, Decided) for c in event.calls]
    ids = [c.id for c in calls]
    assert ids[:4] == ["x", "x-2", "call", ("no_such_id" * 20)[:48]]
    assert len(set(ids)) == len(ids)
    answers = [message.text for message in model.asked[1] if isinstance(message, FromTool)]
    assert "not valid JSON" in answers[0] and "no tool `run shell`" in answers[1]
    assert answers[2] == "[3 of 4: view_file a]\na"


async def test_a_cut_reply_is_told_what_to_do_and_its_half_call_is_not_run(log: FileLog) -> None:
    half = ToolCall(id="h", name="create_file", arguments='{"path": "a", "content": "x')
    cut = Reply(text="", calls=(half,), usage=Usage(model="m"), truncated=True)
    mute = Reply(text="I was about", calls=(), usage=Usage(model="m"), truncated=True)
    box = Box()
    model = await work(log, cut, mute, FINISH, box=box)
    assert box.acted == []
    first, second = model.asked[1][-1], model.asked[2][-1]
    assert isinstance(first, FromTool) and "your reply was cut off" in first.text
    assert isinstance(second, FromUser) and second.text == prose.cut_off(None)


async def test_a_reply_of_many_megabytes_or_calls_costs_its_price_and_no_more(log: FileLog) -> None:
    usage = Usage(model="m", usd=Decimal("0.5"))
    flood = tuple(ToolCall(id="x", name="view_file", arguments=f'{{"path": "{n}"}}') for n in range(5000))
    large = ToolCall(
        id="y", name="create_file", arguments='{"path": "a", "content": "' + "x" * 10_000_000 + '"}'
    )
    box = Box()
    script = [
        Reply(text="word " * 2_000_000, calls=flood, usage=usage),
        Reply(text="", calls=(large,), usage=usage),
    ]
    model = await work(log, *script, FINISH, box=box)
    assert [action.path for action in box.acted if isinstance(action, ViewFile)] == [
        str(n) for n in range(31)
    ]
    last = [message for message in model.asked[1] if isinstance(message, FromTool)][-1]
    assert "at most 32 calls, and yours made 5000" in last.text
    assert "1,000,000 are the limit" in model.asked[2][-1].text
    assert sum(len(message.text) for message in model.asked[2]) < 200_000
    assert log.trajectory.spent().usd == Decimal("1.01")


async def test_a_reply_without_a_call_is_reminded_and_three_of_them_end_the_run(log: FileLog) -> None:
    mute = Reply(text="The fix is easy.", calls=(), usage=Usage(model="m"))
    model = await work(log, mute, mute, mute)
    assert isinstance(model.asked[1][-1], FromUser) and "no tool call" in model.asked[1][-1].text
    ended = log.trajectory.ended
    assert ended and ended.reason == "stuck"


async def test_the_last_steps_are_announced_once(log: FileLog) -> None:
    script = [ViewFile(path=str(n)) for n in range(15)]
    model = await work(log, *script, limits=Limits(steps=15))
    notice = FromUser(text=prose.steps_left(5))
    assert [messages.count(notice) for messages in model.asked] == [0] * 10 + [1] * 5
    ended = log.trajectory.ended
    assert ended and ended.reason == "limit"


async def test_a_finish_with_the_last_step_is_a_finish(log: FileLog) -> None:
    await work(log, Think(thought="x"), FINISH, limits=Limits(steps=2))
    ended = log.trajectory.ended
    assert ended and ended.reason == "finished"


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ModelError("The model does not answer."), "error"), (ContextOverflow("Too long."), "limit")],
)
async def test_a_model_that_fails_ends_the_run_and_the_work_is_kept(
    log: FileLog, error: Exception, reason: str
) -> None:
    await work(log, create("a"), error)
    assert log.trajectory.ended == Ended(reason=reason, detail=str(error))  # type: ignore[arg-type]
    assert log.trajectory.checkpoint() == patch("a")


async def test_a_refused_key_reaches_the_operator_and_the_run_can_go_on_later(log: FileLog) -> None:
    with pytest.raises(ModelRefused):
        await work(log, create("a"), ModelRefused("The key is refused."))
    assert log.trajectory.ended is None
    await work(log, FINISH, box=Box(["a"]))
    assert log.trajectory.ended


async def test_an_unknown_price_is_said_once(log: FileLog, caplog: pytest.LogCaptureFixture) -> None:
    model = Scripted([ViewFile(path="a"), ViewFile(path="b"), FINISH])
    with caplog.at_level(logging.WARNING):
        await agent(model, Box()).run(log)
    assert [record.message for record in caplog.records] == ["price unknown, dollar limit not enforced"]
