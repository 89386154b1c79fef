"""A run that was interrupted: nothing is lost but the step in flight, and nothing is done twice."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from resolver import prose
from resolver.actions import Think
from resolver.agent import begin
from resolver.domain import RunId
from resolver.events import (
    Checkpointed,
    Decided,
    Observed,
    Told,
    Usage,
)
from resolver.llm.model import FromModel, FromTool, FromUser, Reply, ToolCall
from resolver.log import FileLog, FileLogs
from runtime.actions import RunShell, SandboxAction
from runtime.errors import SandboxLost
from runtime.observations import Failed
from runtime.sandbox import call as call_of
from tests.resolver.agents import FINISH, Box, agent, create, kinds, lost_in, patch, work
from tests.resolver.scripted import Scripted, call


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[FileLog]:
    async with FileLogs(tmp_path).open(RunId("run")) as log:
        yield log


def fail(action: SandboxAction) -> None:
    raise SandboxLost("the container is gone")


async def test_a_cancelled_call_is_lost_and_not_run_twice(log: FileLog) -> None:
    first = Box()
    script = [[create("a"), RunShell(command="hang"), create("never")]]
    task = asyncio.create_task(work(log, *script, box=first))
    await first.hangs.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kinds(log)[2:] == ["decided", "checkpointed", "observed"]

    second = Box(["a"])
    model = await work(log, FINISH, box=second)
    assert second.acted == []
    created, hung, never, resumed = model.asked[0][-4:]
    assert isinstance(created, FromTool) and "[edited a]" in created.text
    for lost in (hung, never):
        assert isinstance(lost, FromTool) and lost.text.endswith(
            "[not done: lost]\n" + prose.lost(saved=False)
        )
    assert resumed == FromUser(text=prose.resumed("/tmp/scratch"))
    assert lost_in(log.trajectory) == 2


async def test_a_call_whose_effect_was_saved_is_not_to_be_repeated(log: FileLog) -> None:
    """Killed between the checkpoint and the answer, and once more in the middle of saying so."""
    await log.append(Told(text="Issue 7", source="brief"))
    reply = Scripted([[create("a"), create("b")]])
    decided = await reply.reply((), ())
    tools = agent(reply, Box()).tools
    await log.append(
        Decided(
            thought="",
            calls=tuple({"id": c.id, "action": tools.parse(c)} for c in decided.calls),  # type: ignore[misc]
            usage=decided.usage,
        )
    )
    await log.append(Checkpointed(patch=patch("a")))
    await log.append(Told(text=prose.resumed("/tmp/scratch"), source="resume"))
    await work(log, FINISH, box=Box(["a"]))
    answers = [e.observation for e in log.trajectory if isinstance(e, Observed)]
    assert answers[:2] == [
        Failed(reason="lost", message=prose.lost(saved=True)),
        Failed(reason="lost", message=prose.lost(saved=False)),
    ]


async def test_a_sandbox_that_was_adopted_answers_what_it_was_asked_for_before(log: FileLog) -> None:
    """In the name of each call: it alone knows which of them it has done. What is done elsewhere is lost as ever."""
    named = list[tuple[str, SandboxAction]]()
    first, heirs = Box(), Box()
    first.before = fail
    with pytest.raises(SandboxLost):
        await work(log, [RunShell(command="x"), Think(thought="Hm."), create("a")], box=first)

    heirs.before = lambda action: named.append((call_of.get(), action))
    heir = agent(Scripted([FINISH]), heirs)
    heir.adopted = True
    await heir.run(log)
    calls = log.trajectory.decisions()[0].calls
    assert named == [(call.id, call.action) for call in calls if not isinstance(call.action, Think)]
    assert lost_in(log.trajectory) == 1
    assert log.trajectory.checkpoint() == patch("a")


async def test_a_lost_sandbox_leaves_a_log_that_a_new_one_goes_on_with(log: FileLog) -> None:
    box = Box()
    box.before = fail
    with pytest.raises(SandboxLost):
        await work(log, create("a"), box=box)
    again = Box()
    await work(log, create("a"), FINISH, box=again)
    assert again.tree == ["a"]
    assert log.trajectory.checkpoint() == patch("a")


@pytest.mark.parametrize("at", range(12))
async def test_a_run_killed_at_any_event_ends_like_one_that_was_not(tmp_path: Path, at: int) -> None:
    """A model that repeats what was lost makes the same tree, whatever moment the process died at."""
    plan = [[create("a"), RunShell(command="x")], [create("b")], [create("c"), FINISH]]

    class Killed(BaseException):
        pass

    def die(entry: object) -> None:
        if len(log.trajectory) == at + 1:
            raise Killed

    logs = FileLogs(tmp_path)
    with pytest.raises(Killed):
        async with logs.open(RunId("run"), [die]) as log:
            await work(log, *plan)

    async with logs.open(RunId("run")) as log:
        saved = log.trajectory.checkpoint()
        box = Box(saved.diff.decode().split("\n") if saved else [])
        model = Repeating(plan)
        worker = agent(model, box)  # type: ignore[arg-type]
        await begin(log, "You mend.", "Issue 7", worker.tools)
        ended = await worker.run(log)
        assert ended.reason == "finished"
        assert box.tree == ["a", "b", "c"]
        assert log.trajectory.checkpoint() == patch("a", "b", "c")
        assert len({e.call for e in log.trajectory if isinstance(e, Observed)}) == kinds(log).count(
            "observed"
        )


class Repeating:
    """Makes the calls of its plan that were not answered yet, other than as lost with nothing saved."""

    name = "repeating"

    def __init__(self, plan: Sequence[Sequence[object]]) -> None:
        self._plan = plan

    async def reply(self, messages: Sequence[object], tools: object) -> Reply:
        lost = "[not done: lost]\n" + prose.lost(saved=False)
        done = {
            message.call
            for message in messages
            if isinstance(message, FromTool) and not message.text.endswith(lost)
        }
        made = [
            c for message in messages if isinstance(message, FromModel) for c in message.calls if c.id in done
        ]
        what = {(c.name, c.arguments) for c in made}
        for actions in self._plan:
            wanted = [call(f"t{len(messages)}-{n}", action) for n, action in enumerate(actions)]  # type: ignore[arg-type]
            todo = [w for w in wanted if (w.name, _plain(w)) not in what]
            if todo:
                return Reply(text="", calls=tuple(todo), usage=Usage(model="m"))
        raise AssertionError("nothing is left to do")


def _plain(wanted: ToolCall) -> str:
    tools = agent(Scripted([]), Box()).tools
    return tools.parse(wanted).model_dump_json(exclude={"kind"}, exclude_defaults=True)
