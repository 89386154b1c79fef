"""A resumed run loses only the interrupted step, and repeats nothing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from patchwright.resolver.agent.agent import record_prompts
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import (
    Checkpoint,
    Message,
    ModelReply,
    ReplyUsage,
    ToolResult,
)
from patchwright.resolver.llm.model import AssistantMessage, RawToolCall, Reply, ToolMessage, UserMessage
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.run_log import FileLogStore, FileRunLog
from patchwright.resolver.tool_actions.control_actions import Think
from patchwright.runtime.actions import RunShell, SandboxAction
from patchwright.runtime.errors import SandboxLost
from patchwright.runtime.observations import ActionFailure
from patchwright.runtime.sandbox import current_call_id as call_of
from tests.resolver.agent_runs import (
    FINISH,
    FakeSandbox,
    count_lost_calls,
    create_file,
    event_kinds,
    make_agent,
    make_patch,
    run_agent,
)
from tests.resolver.scripted_model import ScriptedModel, tool_call


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[FileRunLog]:
    async with FileLogStore(tmp_path).open(RunId("run")) as log:
        yield log


def fail(action: SandboxAction) -> None:
    raise SandboxLost("the container is gone")


async def test_a_canceled_call_is_lost_and_not_run_twice(log: FileRunLog) -> None:
    first = FakeSandbox()
    script = [[create_file("a"), RunShell(command="hang"), create_file("never")]]
    task = asyncio.create_task(run_agent(log, *script, box=first))
    await first.hangs.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert event_kinds(log)[2:] == ["model_reply", "checkpoint", "tool_result"]

    second = FakeSandbox(["a"])
    model = await run_agent(log, FINISH, box=second)
    assert second.acted == []
    created, hung, never, resumed = model.requests[0][-4:]
    assert isinstance(created, ToolMessage) and "[edited]" in created.text
    for lost in (hung, never):
        assert isinstance(lost, ToolMessage) and lost.text.endswith(
            "[not done: lost]\n" + render_prompt("lost_call.md.j2", is_saved=False, is_same_sandbox=False)
        )
    assert resumed == UserMessage(
        text=render_prompt("new_sandbox.md.j2", scratch="/tmp/scratch", reason=None)
    )
    assert [event.new_sandbox for event in log.trajectory if isinstance(event, Message)][-1]
    assert count_lost_calls(log.trajectory) == 2


async def test_the_model_is_told_that_a_checkpointed_call_needs_no_repetition(log: FileRunLog) -> None:
    """Killed between the checkpoint and the result, and again while it resumed."""
    await log.append(Message(text="Issue 7", source="initial_prompt"))
    reply = ScriptedModel([[create_file("a"), create_file("b")]])
    decided = await reply.reply((), ())
    tools = make_agent(reply, FakeSandbox()).tools
    await log.append(
        ModelReply(
            thought="",
            calls=tuple({"id": c.id, "action": tools.parse(c)} for c in decided.tool_calls),  # type: ignore[misc]
            usage=decided.usage,
        )
    )
    await log.append(Checkpoint(patch=make_patch("a")))
    await log.append(
        Message(text=render_prompt("new_sandbox.md.j2", scratch="/tmp/scratch", reason=None), source="resume")
    )
    await run_agent(log, FINISH, box=FakeSandbox(["a"]))
    answers = [e.observation for e in log.trajectory if isinstance(e, ToolResult)]
    assert answers[:2] == [
        ActionFailure(
            reason="lost", message=render_prompt("lost_call.md.j2", is_saved=True, is_same_sandbox=False)
        ),
        ActionFailure(
            reason="lost", message=render_prompt("lost_call.md.j2", is_saved=False, is_same_sandbox=False)
        ),
    ]


async def test_an_adopted_sandbox_answers_the_interrupted_calls(log: FileRunLog) -> None:
    """Only the sandbox knows which calls it has executed. Other interrupted calls are lost."""
    named = list[tuple[str, SandboxAction]]()
    first, heirs = FakeSandbox(), FakeSandbox()
    first.before = fail
    with pytest.raises(SandboxLost):
        await run_agent(log, [RunShell(command="x"), Think(thought="Hm."), create_file("a")], box=first)

    heirs.before = lambda action: named.append((call_of.get(), action))
    heir = make_agent(ScriptedModel([FINISH]), heirs)
    heir.is_same_sandbox = True
    await heir.run(log)
    assert not any(event.new_sandbox for event in log.trajectory if isinstance(event, Message))
    calls = log.trajectory.replies()[0].calls
    assert named == [
        (tool_call.id, tool_call.action) for tool_call in calls if not isinstance(tool_call.action, Think)
    ]
    assert count_lost_calls(log.trajectory) == 1
    assert log.trajectory.last_checkpoint() == make_patch("a")


async def test_a_run_with_a_lost_sandbox_continues_in_a_new_one(log: FileRunLog) -> None:
    box = FakeSandbox()
    box.before = fail
    with pytest.raises(SandboxLost):
        await run_agent(log, create_file("a"), box=box)
    again = FakeSandbox()
    await run_agent(log, create_file("a"), FINISH, box=again)
    assert (again.tree, count_lost_calls(log.trajectory)) == (["a"], 1)
    assert log.trajectory.last_checkpoint() == make_patch("a")


@pytest.mark.parametrize("at", range(12))
async def test_a_run_killed_at_any_event_ends_like_one_that_was_not(tmp_path: Path, at: int) -> None:
    """A model that repeats lost calls makes the same tree, whenever the process was killed."""
    plan = [[create_file("a"), RunShell(command="x")], [create_file("b")], [create_file("c"), FINISH]]

    class Killed(BaseException):
        pass

    def die(entry: object) -> None:
        if len(log.trajectory) == at + 1:
            raise Killed

    logs = FileLogStore(tmp_path)
    with pytest.raises(Killed):
        async with logs.open(RunId("run"), [die]) as log:
            await run_agent(log, *plan)

    async with logs.open(RunId("run")) as log:
        saved = log.trajectory.last_checkpoint()
        box = FakeSandbox(saved.diff.decode().split("\n") if saved else [])
        model = RepeatingSandbox(plan)
        worker = make_agent(model, box)  # type: ignore[arg-type]
        await record_prompts(log, "You fix.", "Issue 7", worker.tools)
        ended = await worker.run(log)
        assert ended.reason == "finished"
        assert box.tree == ["a", "b", "c"]
        assert log.trajectory.last_checkpoint() == make_patch("a", "b", "c")
        assert len({e.call_id for e in log.trajectory if isinstance(e, ToolResult)}) == event_kinds(
            log
        ).count("tool_result")


class RepeatingSandbox:
    """Makes the calls of its plan that have no result yet, except a lost one."""

    name = "repeating"

    def __init__(self, plan: Sequence[Sequence[object]]) -> None:
        self._plan = plan

    async def reply(self, messages: Sequence[object], tools: object) -> Reply:
        lost = "[not done: lost]\n" + render_prompt("lost_call.md.j2", is_saved=False, is_same_sandbox=False)
        done = {
            message.tool_call_id
            for message in messages
            if isinstance(message, ToolMessage) and not message.text.endswith(lost)
        }
        made = [
            c
            for message in messages
            if isinstance(message, AssistantMessage)
            for c in message.tool_calls
            if c.id in done
        ]
        what = {(c.name, c.arguments) for c in made}
        for actions in self._plan:
            wanted = [tool_call(f"t{len(messages)}-{n}", action) for n, action in enumerate(actions)]  # type: ignore[arg-type]
            todo = [w for w in wanted if (w.name, _plain(w)) not in what]
            if todo:
                return Reply(text="", tool_calls=tuple(todo), usage=ReplyUsage(model="m"))
        raise AssertionError("nothing is left to do")


def _plain(wanted: RawToolCall) -> str:
    tools = make_agent(ScriptedModel([]), FakeSandbox()).tools
    return tools.parse(wanted).model_dump_json(exclude={"kind"}, exclude_defaults=True)
