"""Letting several agents find things out at once: each in a sandbox, on a log and on a share of its own."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal

from resolver.actions import Action, Delegate, Report, Reported, Result, Think
from resolver.agent import Agent, begin
from resolver.browsing import delegate_prose
from resolver.domain import RunId, Spent
from resolver.errors import WorkspaceError
from resolver.events import Call, Ended, Trajectory
from resolver.llm.model import Model, ToolSpec
from resolver.log import Log
from resolver.preparing.skills import Skill
from resolver.rules import Limits
from resolver.schemas import Form, off
from resolver.tools.handover import Handover
from resolver.tools.sandboxed import EDITS
from resolver.tools.tool import ActionTool, Tool
from runtime.errors import SandboxError
from runtime.observations import Failed, Noted
from runtime.sandbox import Sandbox, Sandboxes
from runtime.text import clip

logger = logging.getLogger(__name__)

SANDBOX_FAILED = "Its sandbox failed, which says nothing about the question."
MAX_REPORT = 8_000
"""Characters of a report that arrive."""
NO_TOOLS = frozenset(edit.model_fields["kind"].default for edit in EDITS)
"""What an investigator has no use for. Its shell could write, but nothing that it writes goes anywhere."""


@dataclass(frozen=True)
class Investigating:
    """The tool `delegate` of one run."""

    handover: Handover
    model: Model
    sandboxes: Sandboxes
    send: Callable[[Sandbox], Awaitable[None]]
    """Puts the work tree there as it is now."""
    equip: Callable[[Sandbox, Log, Limits, Sequence[Tool]], Agent]
    """An investigator that works there, on this log, within these limits, and has these tools to report with."""
    steps: int = 20
    """Replies of the model for one question, at most."""

    def tools(self) -> tuple[Tool, ...]:
        return (ActionTool(Delegate, self.delegate),)

    async def delegate(self, action: Delegate) -> Result:
        """What the investigators report, each on its question; an error only if none ever began. Raises as `ask`."""
        return await self.ask(action, action.tasks)

    async def ask(
        self, action: Action, tasks: Sequence[str], skill: Skill | None = None
    ) -> Reported | Failed:
        """What investigators report on these questions, for a call that is being answered; the seam for other tools.

        `skill`: what all of them are told beyond that, and the form of their reports.
        A sandbox that fails is the end of that investigator, not of the others. Raises what a run raises beyond that:
        ModelRefused, LogError.
        """
        limits = self.handover.share(self.steps, among=len(tasks))
        if isinstance(limits, Failed):
            return limits
        async with AsyncExitStack() as stack:
            begun = [
                await stack.enter_async_context(
                    self.handover.begun(action, "investigate", task, self.model, limits)
                )
                for task in tasks
            ]
            try:
                async with asyncio.TaskGroup() as group:
                    for run, log in begun:
                        group.create_task(self._investigate(run, log, limits, skill))
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from errors
            return together([report(run, log.trajectory) for run, log in begun])

    async def recover(self, call: Call) -> Reported | None:
        """What is known of questions that were under way when the process was killed; None: none was handed on."""
        reports = await self.handover.recover(call, has_reported, report)
        return together(reports) if reports else None

    async def _investigate(self, run: RunId, log: Log, limits: Limits, skill: Skill | None) -> None:
        assigned = log.trajectory.assigned
        assert assigned is not None
        try:
            async with self.sandboxes.open(run) as sandbox:
                await self.send(sandbox)
                agent = self.equip(sandbox, log, limits, report_tools(skill.form if skill else None))
                system = delegate_prose.investigator_system(
                    sandbox.root, sandbox.scratch, self.sandboxes.kind, limits.steps, MAX_REPORT, skill
                )
                await begin(log, system, assigned.task, agent.tools)
                await agent.run(log)
        except (SandboxError, WorkspaceError) as exc:
            logger.warning("investigator without a sandbox", extra={"run": run, "error": str(exc)[:300]})
            if log.trajectory.ended is None:
                await log.append(Ended(reason="error", detail=SANDBOX_FAILED))


def report_tools(form: Form | None = None) -> tuple[Tool, ...]:
    """What an investigator has beside its sandbox: thinking, and the tool that ends its work, in this form."""
    return (ActionTool(Think, _note), FormedReport(form) if form else ActionTool(Report, _report))


class FormedReport:
    """A report whose fields are the tool's arguments: one that is off form is a malformed call, and never arrives."""

    kind = "report"

    def __init__(self, form: Form) -> None:
        self._form = form
        self.spec = ToolSpec(
            name="report", description=delegate_prose.formed_report(MAX_REPORT), parameters=form.output
        )

    def parse(self, arguments: dict[str, Any]) -> Report:
        if problem := off(arguments, self._form.output):
            raise ValueError(problem)
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        if len(text) > MAX_REPORT:
            raise ValueError(f"the report is {len(text):,} characters long; {MAX_REPORT:,} are the limit")
        return Report(text=text)

    async def answer(self, action: Report) -> Noted:
        return await _report(action)


async def _note(action: Think) -> Noted:
    return Noted(text="Noted.")


async def _report(action: Report) -> Noted:
    return Noted(text="Reported.")


def has_reported(trajectory: Trajectory) -> bool:
    """Whether it gave its answer."""
    return _answer(trajectory) is not None


def report(run: RunId, trajectory: Trajectory) -> Reported:
    """What became of one question."""
    status: Literal["answered", "unfinished"] = "answered"
    if (text := _answer(trajectory)) is None:
        ended, replies = trajectory.ended, trajectory.decisions()
        detail = ended.detail if ended else "It never began."
        status, thought = "unfinished", replies[-1].thought if replies else ""
        text = delegate_prose.investigator_unfinished(detail, thought)
    task = trajectory.assigned.task if trajectory.assigned else ""
    return Reported(run=run, status=status, text=clip(text, MAX_REPORT), spent=trajectory.spent(), task=task)


def together(reports: Sequence[Reported]) -> Reported:
    """Several reports as the one answer of a call: what they cost is their sum, but they took their time at once."""
    spent = Spent(seconds=max(each.spent.seconds for each in reports))
    for each in reports:
        spent = spent.plus(each.spent, steps=each.spent.steps, unpriced=each.spent.unpriced)
    answered = any(each.status == "answered" for each in reports)
    said = [f"{number}. {each.status}: {each.text}" for number, each in enumerate(reports, start=1)]
    return Reported(
        run=reports[0].run,
        status="answered" if answered else "unfinished",
        text="\n\n".join(said),
        spent=spent,
        parts=tuple(reports),
    )


def _answer(trajectory: Trajectory) -> str | None:
    """The text of the report that ended the work; also when the process was killed before that was written down."""
    if trajectory.ended is not None and trajectory.ended.reason != "finished":
        return None
    calls = [call for reply in trajectory.decisions()[-1:] for call in reply.calls]
    return next((call.action.text for call in calls if isinstance(call.action, Report)), None)
