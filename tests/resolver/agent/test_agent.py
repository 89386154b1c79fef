"""The agent loop: each step is derived from the log."""

import asyncio
import logging
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from patchwright.resolver.agent.agent import record_prompts
from patchwright.resolver.domain import Patch, RunId
from patchwright.resolver.errors import ChangeTooLarge, ContextOverflow, ModelAccessDenied, ModelError
from patchwright.resolver.events import (
    AgentStopped,
    Checkpoint,
    Message,
    ModelReply,
    ReplyUsage,
    SystemPrompt,
)
from patchwright.resolver.llm.model import RawToolCall, Reply, SystemMessage, ToolMessage, UserMessage
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import FileLogStore, FileRunLog
from patchwright.resolver.tool_actions.control_actions import Think
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.runtime.actions import RunShell, ViewFile
from tests.resolver.agent_runs import (
    FINISH,
    FakeSandbox,
    UncancelableModel,
    create_file,
    event_kinds,
    make_agent,
    make_patch,
    run_agent,
)
from tests.resolver.scripted_model import ScriptedModel


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[FileRunLog]:
    async with FileLogStore(tmp_path).open(RunId("run")) as log:
        yield log


async def test_a_run_goes_from_the_initial_prompt_to_the_finish(log: FileRunLog) -> None:
    model = await run_agent(log, RunShell(command="pytest"), create_file("a.py"), FINISH)
    assert event_kinds(log) == [
        "system_prompt",
        "message",
        *("model_reply", "tool_result"),
        *("model_reply", "checkpoint", "tool_result"),
        *("model_reply", "tool_result", "agent_stopped"),
    ]
    assert log.trajectory.agent_stopped == AgentStopped(
        reason="finished", detail="The agent finished the work."
    )
    assert log.trajectory.last_checkpoint() == make_patch("a.py")
    assert [len(messages) for messages in model.requests] == [2, 4, 6]
    assert log.trajectory.usage().usd == Decimal("0.03")


async def test_the_log_begins_with_the_whole_system_prompt_and_the_schemas_of_all_tools(
    log: FileRunLog,
) -> None:
    model = await run_agent(log, FINISH)
    first = log.trajectory.entries[0].event
    assert isinstance(first, SystemPrompt)
    assert model.requests[0][0] == SystemMessage(text=first.text)
    assert [tool["function"] for tool in first.tools] == [
        {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        for spec in model.offered_tools[0]
    ]
    assert {"run_shell", "finish"} <= {spec.name for spec in model.offered_tools[0]}


async def test_a_swallowed_cancellation_ends_the_run_before_its_next_step(log: FileRunLog) -> None:
    model = UncancelableModel()
    worker = make_agent(model, FakeSandbox())
    await record_prompts(log, "You fix.", "Issue 7", worker.tools)
    task = asyncio.create_task(worker.run(log))
    await model.request_started.wait()
    task.cancel()
    await asyncio.wait((task,), timeout=10)
    assert task.cancelled()
    assert event_kinds(log) == ["system_prompt", "message", "model_reply"]


async def test_a_stopped_run_is_unchanged_until_a_new_message_arrives(log: FileRunLog) -> None:
    await run_agent(log, FINISH)
    before = log.trajectory.entries
    model = ScriptedModel([FINISH])
    worker = make_agent(model, FakeSandbox())
    assert (await worker.run(log)).reason == "finished"
    assert log.trajectory.entries == before
    await log.append(Message(text="A test broke.", source="program"))
    await worker.run(log)
    assert model.requests[0][-1] == UserMessage(text="A test broke.")


async def test_parallel_calls_run_in_order_and_finish_comes_last(log: FileRunLog) -> None:
    box = FakeSandbox()
    actions = [FINISH, RunShell(command="one"), create_file("two"), ViewFile(path="three")]
    await run_agent(log, actions, box=box)
    assert box.acted == actions[1:]
    assert event_kinds(log)[2:] == [
        "model_reply",
        "tool_result",
        "checkpoint",
        "tool_result",
        "tool_result",
        "tool_result",
        "agent_stopped",
    ]


async def test_only_a_changed_work_tree_is_checkpointed(log: FileRunLog) -> None:
    box = FakeSandbox()
    await run_agent(
        log,
        create_file("a"),
        RunShell(command="ls"),
        create_file("a"),
        ViewFile(path="a"),
        create_file("b"),
        FINISH,
        box=box,
    )
    saved = [event.patch for event in log.trajectory if isinstance(event, Checkpoint)]
    assert saved == [make_patch("a"), make_patch("a", "b")]


async def test_a_change_that_is_too_large_is_reported_beside_the_output_and_can_be_undone(
    log: FileRunLog,
) -> None:
    class Full(FakeSandbox):
        async def patch(self) -> Patch:
            if self.acted[-1] == RunShell(command="make build"):
                raise ChangeTooLarge("The change is larger than 4 MB. Some of its paths: build/.")
            return await super().patch()

    model = await run_agent(log, RunShell(command="make build"), create_file("a"), FINISH, box=Full())
    message = model.requests[1][-1]
    assert isinstance(message, ToolMessage)
    assert message.text == (
        "make build\n[The change is larger than 4 MB. Some of its paths: build/. Your changes are not saved while "
        "they are too large: delete the large files, or move them elsewhere]\n[exit code 0, 0.1 s, in /workspace]"
    )
    assert log.trajectory.last_checkpoint() == make_patch("a")


async def test_malformed_calls_are_answered_and_the_run_continues(log: FileRunLog) -> None:
    nonsense = Reply(
        text="",
        tool_calls=(
            RawToolCall(id="x", name="run_shell", arguments='{"comm'),
            RawToolCall(id="x", name="run shell", arguments="{}"),
            RawToolCall(id="", name="view_file", arguments='{"path": "a"}'),
            RawToolCall(id="no/such*id" * 20, name="think", arguments='{"thought": "hm"}'),
        ),
        usage=ReplyUsage(model="m"),
    )
    model = await run_agent(log, nonsense, nonsense, FINISH)
    calls = [c for event in log.trajectory if isinstance(event, ModelReply) for c in event.calls]
    ids = [c.id for c in calls]
    assert ids[:4] == ["x", "x-2", "call", ("no_such_id" * 20)[:48]]
    assert len(set(ids)) == len(ids)
    answers = [message.text for message in model.requests[1] if isinstance(message, ToolMessage)]
    assert "not valid JSON" in answers[0] and "no tool `run shell`" in answers[1]
    assert answers[2] == "[3 of 4: view_file a]\na"


async def test_a_truncated_reply_is_answered_and_its_incomplete_call_is_not_run(log: FileRunLog) -> None:
    half = RawToolCall(id="h", name="create_file", arguments='{"path": "a", "content": "x')
    cut = Reply(text="", tool_calls=(half,), usage=ReplyUsage(model="m"), truncated=True)
    mute = Reply(text="I was about", tool_calls=(), usage=ReplyUsage(model="m"), truncated=True)
    box = FakeSandbox()
    model = await run_agent(log, cut, mute, FINISH, box=box)
    assert box.acted == []
    first, second = model.requests[1][-1], model.requests[2][-1]
    assert isinstance(first, ToolMessage) and "your reply was cut off" in first.text
    assert isinstance(second, UserMessage) and second.text == render_prompt("truncated.md.j2", tool=None)


async def test_a_reply_with_megabytes_of_text_or_thousands_of_calls_is_limited(log: FileRunLog) -> None:
    usage = ReplyUsage(model="m", usd=Decimal("0.5"))
    flood = tuple(RawToolCall(id="x", name="view_file", arguments=f'{{"path": "{n}"}}') for n in range(5000))
    large = RawToolCall(
        id="y", name="create_file", arguments='{"path": "a", "content": "' + "x" * 10_000_000 + '"}'
    )
    box = FakeSandbox()
    script = [
        Reply(text="word " * 2_000_000, tool_calls=flood, usage=usage),
        Reply(text="", tool_calls=(large,), usage=usage),
    ]
    model = await run_agent(log, *script, FINISH, box=box)
    assert [action.path for action in box.acted if isinstance(action, ViewFile)] == [
        str(n) for n in range(31)
    ]
    last = [message for message in model.requests[1] if isinstance(message, ToolMessage)][-1]
    assert "at most 32 calls, and yours made 5000" in last.text
    assert "the limit is 1,000,000" in model.requests[2][-1].text
    assert sum(len(message.text) for message in model.requests[2]) < 200_000
    assert log.trajectory.usage().usd == Decimal("1.01")


async def test_a_reply_without_a_call_gets_a_reminder_and_three_of_them_end_the_run(log: FileRunLog) -> None:
    mute = Reply(text="The fix is easy.", tool_calls=(), usage=ReplyUsage(model="m"))
    model = await run_agent(log, mute, mute, mute)
    assert isinstance(model.requests[1][-1], UserMessage) and "no tool call" in model.requests[1][-1].text
    ended = log.trajectory.agent_stopped
    assert ended and ended.reason == "stuck"


@pytest.mark.parametrize(
    ("may_ask", "text", "truncated", "stop"),
    [
        (True, " Should it take floats? ", False, ("input_required", "Should it take floats?")),
        (True, "x" * 5_000, False, ("input_required", "x" * 4_000)),
        (
            False,
            "Should it take floats?",
            False,
            ("stuck", "The model gave 3 replies in a row without calling a tool."),
        ),
        (True, " ", False, ("stuck", "The model gave 3 replies in a row without calling a tool.")),
        (True, "Should it", True, ("stuck", "The model gave 3 replies in a row without calling a tool.")),
    ],
)
async def test_the_text_that_would_end_a_run_is_a_question_where_the_agent_may_ask(
    log: FileRunLog, may_ask: bool, text: str, truncated: bool, stop: tuple[str, str]
) -> None:
    mute = Reply(text=text, tool_calls=(), truncated=truncated, usage=ReplyUsage(model="m"))
    worker = make_agent(ScriptedModel([ViewFile(path="a"), mute, mute, mute]), FakeSandbox())
    if not may_ask:
        worker.tools = ToolRegistry(build_sandbox_tools(FakeSandbox()))
    await record_prompts(log, "You fix.", "Issue 7", worker.tools)
    ended = await worker.run(log)
    assert (ended.reason, ended.detail.partition(" `patchwright")[0]) == stop


async def test_the_last_steps_are_announced_once(log: FileRunLog) -> None:
    script = [ViewFile(path=str(n)) for n in range(15)]
    model = await run_agent(log, *script, limits=Limits(steps=15))
    notice = UserMessage(text=render_prompt("steps_left.md.j2", steps=5, final_tool="finish"))
    assert [messages.count(notice) for messages in model.requests] == [0] * 10 + [1] * 5
    ended = log.trajectory.agent_stopped
    assert ended and ended.reason == "limit"


async def test_a_finish_with_the_last_step_is_a_finish(log: FileRunLog) -> None:
    await run_agent(log, Think(thought="x"), FINISH, limits=Limits(steps=2))
    ended = log.trajectory.agent_stopped
    assert ended and ended.reason == "finished"


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ModelError("The model does not answer."), "error"), (ContextOverflow("Too long."), "limit")],
)
async def test_a_model_that_fails_ends_the_run_and_the_work_is_kept(
    log: FileRunLog, error: Exception, reason: str
) -> None:
    await run_agent(log, create_file("a"), error)
    assert log.trajectory.agent_stopped == AgentStopped(reason=reason, detail=str(error))  # type: ignore[arg-type]
    assert log.trajectory.last_checkpoint() == make_patch("a")


async def test_a_rejected_key_reaches_the_operator_and_the_run_can_be_resumed(log: FileRunLog) -> None:
    with pytest.raises(ModelAccessDenied):
        await run_agent(log, create_file("a"), ModelAccessDenied("The key is refused."))
    assert log.trajectory.agent_stopped is None
    await run_agent(log, FINISH, box=FakeSandbox(["a"]))
    assert log.trajectory.agent_stopped


async def test_an_unknown_price_is_logged_once(log: FileRunLog, caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel([ViewFile(path="a"), ViewFile(path="b"), FINISH])
    with caplog.at_level(logging.WARNING):
        await make_agent(model, FakeSandbox()).run(log)
    assert [record.message for record in caplog.records] == ["price unknown, dollar limit not enforced"]
