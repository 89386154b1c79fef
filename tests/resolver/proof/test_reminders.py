"""The agent is told once that its fix is not proven, or that a person has to agree to conditions."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from patchwright.resolver.activity.finish_checks import last_finish
from patchwright.resolver.conditions import Condition
from patchwright.resolver.domain import ModelReview, Patch, RunId, TestRun, Verdict
from patchwright.resolver.events import (
    AgentStopped,
    Checkpoint,
    Message,
    ModelReply,
    ReplyUsage,
    ToolCall,
    VerificationCompleted,
)
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.proof.repair_loop import verify_or_continue
from patchwright.resolver.proof.verification import VerdictCallback
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run_log import FileLogStore, RunLog
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.observations import Acknowledgment
from tests.resolver.activity.test_finish_checks import run as run_of
from tests.resolver.pull_requests import pull
from tests.resolver.sample_runs import started
from tests.resolver.scripted_model import ScriptedModel

RUN = TestRun(command="c", results={"t.py::a": "passed"}, exit_code=0, seconds=1.0, output="")
NO_RUN = RUN.model_copy(update={"problem": "pytest is not installed", "results": {}})
UNPROVEN = Verdict(kind="unproven", reason="No test shows it.", before=RUN, after=RUN)
CONDITION = Condition(
    kind="changed_expectations", sentence="`a` expects something else.", tests=("t.py::a",), path="t.py"
)
CONDITIONAL = UNPROVEN.model_copy(update={"kind": "conditional", "conditions": (CONDITION,)})


def patch_of(*paths: str) -> Patch:
    diff = "".join(f"diff --git a/{path} b/{path}\n@@ -1 +1 @@\n-a\n+b\n" for path in paths)
    return Patch(base_sha="0" * 40, diff=diff.encode())


class Work:
    """A run whose agent finishes again and again, each time with a patch and the verdict on it."""

    def __init__(self, log: RunLog, deps: RunDependencies) -> None:
        self.log, self.deps, self.verified, self.restarts = log, deps, 0, 0

    async def finish(self, verdict: Verdict, patch: Patch) -> Verdict | None:
        async def verify(callback: VerdictCallback) -> Verdict:
            self.verified += 1
            return verdict

        async def start_over() -> bool:
            self.restarts += 1
            await self.log.append(Checkpoint(patch=patch_of()))
            return True

        await self.log.append(Checkpoint(patch=patch))
        stopped = AgentStopped(reason="finished", detail="Done.")
        return await verify_or_continue(self.log, self.deps, stopped, patch, verify, start_over)

    @property
    def messages(self) -> list[str]:
        return [e.text for e in self.log.trajectory if isinstance(e, Message) and e.source == "verification"]


@pytest.fixture
async def open_work(tmp_path: Path) -> AsyncIterator[Any]:
    logs = FileLogStore(tmp_path)

    async def open_work(log: RunLog, on_pull_request: bool = False, **settings: Any) -> Work:
        deps = RunDependencies(
            Settings(data=tmp_path, **settings), ScriptedModel([]), LocalSandboxes(tmp_path, {}),
            WorkspaceFactory(tmp_path), logs, Secrets(),
        )  # fmt: skip
        event = started()
        await log.append(event.model_copy(update={"thread": pull()}) if on_pull_request else event)
        await log.append(Message(text="Fix it.", source="initial_prompt"))
        return Work(log, deps)

    async with logs.open(RunId("run")) as log:
        yield lambda **options: open_work(log, **options)


async def test_an_unproven_patch_comes_back_once(open_work) -> None:
    work = await open_work()
    assert await work.finish(UNPROVEN, patch_of("calc.py")) is None
    (text,) = work.messages
    assert "the fix is not proven. No test shows it.\n" in text
    assert "Add a test that fails without your change and passes with it." in text
    assert text.rstrip().endswith("You are told this only once.")
    changed = patch_of("calc.py", "tests/test_new.py")
    assert await work.finish(UNPROVEN, changed) == UNPROVEN
    assert (len(work.messages), work.verified) == (1, 2)


async def test_a_patch_that_stays_as_it_is_is_not_verified_again(open_work) -> None:
    work = await open_work()
    patch = patch_of("calc.py")
    assert await work.finish(CONDITIONAL, patch) is None
    assert await work.finish(CONDITIONAL, patch) == CONDITIONAL
    assert (len(work.messages), work.verified, work.log.trajectory.verdict) == (1, 1, CONDITIONAL)


async def test_the_conditions_of_a_fix_are_named(open_work) -> None:
    work = await open_work(max_attempts=2)
    assert await work.finish(CONDITIONAL, patch_of("calc.py", "t.py")) is None
    (text,) = work.messages
    assert "the change also changes what 1 existing test expects" in text
    assert "\n- `a` expects something else.\n" in text and "say why in `to_check`" in text
    assert await work.finish(CONDITIONAL, patch_of("calc.py")) == CONDITIONAL
    assert work.restarts == 0  # tests show the fix, so no further attempt starts


@pytest.mark.parametrize(
    ("point", "kind", "comes_back"),
    [
        ("test_a expected the wrong sign.", "changed_expectations", False),
        ("Tests of the sign changed.", "changed_expectations", False),
        ("Look at the docs.", "changed_expectations", True),
        ("test_a expected the wrong sign.", "weakened_tests", True),
    ],
)
async def test_a_changed_expectation_that_people_are_told_about_does_not_come_back(
    open_work, point: str, kind: str, comes_back: bool
) -> None:
    work = await open_work()
    action = Finish(cause="c", change="c", testing="c", to_check=(point,))
    reply = ModelReply(thought="", calls=(ToolCall(id="a", action=action),), usage=ReplyUsage(model="m"))
    await work.log.append(reply)
    condition = CONDITION.model_copy(update={"kind": kind})
    verdict = CONDITIONAL.model_copy(update={"conditions": (condition,)})
    assert await work.finish(verdict, patch_of("calc.py", "t.py")) == (None if comes_back else verdict)


async def test_the_objection_of_a_reviewer_is_part_of_the_same_message(open_work) -> None:
    work = await open_work()
    review = ModelReview(model="m", approved=False, reasons="calc.py:2 has no test.")
    assert await work.finish(UNPROVEN.model_copy(update={"review": review}), patch_of("calc.py")) is None
    (text,) = work.messages
    assert "No test shows it." in text and "calc.py:2 has no test." in text


async def test_before_another_attempt_nothing_else_is_told(open_work) -> None:
    work = await open_work(max_attempts=2)
    assert await work.finish(UNPROVEN, patch_of("calc.py")) is None
    assert await work.finish(UNPROVEN, patch_of("calc.py")) is None
    first, second = work.messages
    assert first.startswith("This was attempt 1 of 2") and "You are told this only once." in second
    assert work.restarts == 1


@pytest.mark.parametrize(
    ("options", "update", "paths"),
    [
        ({"max_repairs": 0}, {}, ("calc.py",)),
        ({"max_steps": 4}, {}, ("calc.py",)),
        ({"on_pull_request": True}, {}, ("calc.py",)),
        ({}, {"kind": "untested"}, ("calc.py",)),
        ({}, {"before": NO_RUN}, ("calc.py",)),
        ({}, {"after": NO_RUN}, ("calc.py",)),
        ({}, {"after": RUN.model_copy(update={"results": {"t.py::a": "failed"}})}, ("calc.py",)),
        ({}, {}, ("README.md", "docs/use.txt")),
        ({}, {}, ("tests/test_calc.py",)),
    ],
)
async def test_the_agent_is_not_told_what_it_cannot_change(
    open_work, options: dict[str, Any], update: dict[str, Any], paths: tuple[str, ...]
) -> None:
    work = await open_work(**options)
    verdict = UNPROVEN.model_copy(update=update)
    assert await work.finish(verdict, patch_of(*paths)) == verdict
    assert work.messages == []


async def test_used_up_repairs_are_not_followed_by_a_reminder(open_work) -> None:
    work = await open_work(max_repairs=1)
    failing = UNPROVEN.model_copy(update={"patch_tests_failing": ("t.py::b",)})
    assert await work.finish(failing, patch_of("calc.py", "t.py")) is None
    assert await work.finish(failing, patch_of("calc.py", "t.py")) == failing
    events = list(work.log.trajectory)
    assert (len(work.messages), sum(isinstance(each, VerificationCompleted) for each in events)) == (1, 2)


def test_a_run_that_finishes_again_without_a_change_is_summarized_by_its_latest_finish_call() -> None:
    def finish(text: str) -> tuple[Finish, Acknowledgment]:
        return Finish(cause=text, change="b", testing="c"), Acknowledgment(text="Accepted.")

    unproven = VerificationCompleted(verdict=Verdict(kind="unproven"))
    regressed = VerificationCompleted(verdict=Verdict(kind="regressed"))
    reminder = Message(text="You are told this only once.", source="verification")
    again = run_of(finish("first"), unproven, reminder, finish("second"), unproven)
    # A verdict that is logged again without a finish call belongs to an earlier, better attempt.
    restored = run_of(finish("first"), unproven, reminder, finish("second"), regressed, unproven)
    assert [getattr(last_finish(each), "cause", None) for each in (again, restored)] == ["second", "first"]
