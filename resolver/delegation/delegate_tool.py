"""The `delegate` tool: several investigators answer questions in parallel, each with its own sandbox, log and
share of the limits.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from patchwright.resolver.actions import Action, AnyObservation, SubagentResult
from patchwright.resolver.agent.agent import Agent, record_prompts
from patchwright.resolver.delegation.subagents import SubagentLauncher
from patchwright.resolver.domain import RunId, Usage
from patchwright.resolver.errors import WorkspaceError
from patchwright.resolver.events import AgentStopped, ToolCall, Trajectory
from patchwright.resolver.json_schemas import AgentSchema, validation_error
from patchwright.resolver.llm.model import Model, ToolSpec
from patchwright.resolver.rendering.template_renderer import render, render_prompt
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.skills.skills import RepoSkill
from patchwright.resolver.text.untrusted import strip_hidden
from patchwright.resolver.tool_actions.control_actions import Report, Think
from patchwright.resolver.tool_actions.subagent_actions import Delegate
from patchwright.resolver.tools.tool import ActionTool, Tool
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.observations import Acknowledgment, ActionFailure
from patchwright.runtime.output_text import clip
from patchwright.runtime.sandbox import Sandbox, Sandboxes

logger = logging.getLogger(__name__)

SANDBOX_FAILED = "The investigator's sandbox failed before the question was answered."
EDIT_INTERRUPTED = "The process was stopped before the changes of this agent were checked."
MAX_REPORT = 8_000
"""Maximum length of a report, in characters."""


@dataclass(frozen=True)
class SharedWorktree:
    """The work tree of the calling agent, in which micro agents with `edits: true` work."""

    sandbox: Sandbox
    build_editor: Callable[[Sandbox, RunLog, Limits, Sequence[Tool]], Agent]
    """Builds a subagent that may edit, with the same arguments as `build_investigator`."""
    find_problem: Callable[[], Awaitable[str]]
    """Returns why the changes cannot be kept; empty if they can."""
    undo: Callable[[], Awaitable[bool]]
    """Restores the work tree as it was before the call. Returns False if this failed."""

    async def keep_or_undo(self, report: SubagentResult, problem: str = "") -> SubagentResult:
        """Returns the report. If there is a problem, or the work is unfinished, undoes the changes and says so."""
        if report.status != "answered":
            problem = report.text
        if not (problem := problem or await self.find_problem()):
            return report
        text = render_prompt("edits_undone.md.j2", problem=problem, is_undone=await self.undo())
        return report.model_copy(update={"status": "unfinished", "text": text})


@dataclass(frozen=True)
class DelegateTool:
    """The `delegate` tool of one run."""

    launcher: SubagentLauncher
    model: Model
    sandboxes: Sandboxes
    copy_worktree: Callable[[Sandbox], Awaitable[None]]
    """Copies the current work tree into the sandbox."""
    build_investigator: Callable[[Sandbox, RunLog, Limits, Sequence[Tool]], Agent]
    """Builds an investigator that uses the given sandbox, log and limits, and submits its report with the
    given tools.
    """
    max_steps: int = 20
    """Maximum number of model replies for one question."""
    worktree: SharedWorktree | None = None
    """The work tree of the calling agent, for micro agents that may edit. None if it must not change."""

    def tools(self) -> tuple[Tool, ...]:
        return (ActionTool(Delegate, self.delegate),)

    async def delegate(self, action: Delegate) -> AnyObservation:
        """Returns the investigators' reports. Returns a failure if no investigator could be started. Raises
        the same errors as `investigate`.
        """
        return await self.investigate(action, action.tasks)

    async def investigate(
        self, action: Action, tasks: Sequence[str], skill: RepoSkill | None = None
    ) -> SubagentResult | ActionFailure:
        """Runs one investigator for each question in `tasks`, and returns their merged reports.

        `skill` contains instructions for all investigators, and the schema of their reports. If a sandbox
        fails, only the investigator in this sandbox ends. Raises ModelAccessDenied or LogError.
        """
        shared = self.worktree if skill and skill.edits else None
        limits = self.launcher.allocate_limits(self.max_steps, subagents=len(tasks))
        if isinstance(limits, ActionFailure):
            return limits
        async with AsyncExitStack() as stack:
            started = [
                await stack.enter_async_context(
                    self.launcher.start(action, "edit" if shared else "investigate", task, self.model, limits)
                )
                for task in tasks
            ]
            try:
                async with asyncio.TaskGroup() as group:
                    for run, log in started:
                        group.create_task(self._run_investigator(run, log, limits, skill))
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from errors
            reports = [build_result(run, log.trajectory) for run, log in started]
            if shared:
                reports = [await shared.keep_or_undo(report) for report in reports]
            return merge_results(reports)

    async def recover(self, call: ToolCall) -> SubagentResult | None:
        """Returns the results of questions that were interrupted when the process was killed. Returns None if
        no investigator was started. What an interrupted call has edited is undone.
        """
        reports = await self.launcher.recover(call, has_reported, build_result)
        spawned = (started for started, _ in self.launcher.log.trajectory.subagents())
        if self.worktree and any(one.call_id == call.id and one.role == "edit" for one in spawned):
            reports = tuple(
                [await self.worktree.keep_or_undo(report, EDIT_INTERRUPTED) for report in reports]
            )
        return merge_results(reports) if reports else None

    @asynccontextmanager
    async def _open_copy(self, run: RunId) -> AsyncIterator[Sandbox]:
        """Opens a disposable sandbox with a copy of the work tree."""
        async with self.sandboxes.open(run) as sandbox:
            await self.copy_worktree(sandbox)
            yield sandbox

    async def _run_investigator(
        self, run: RunId, log: RunLog, limits: Limits, skill: RepoSkill | None
    ) -> None:
        subagent_started = log.trajectory.subagent_started
        assert subagent_started is not None
        shared = self.worktree if skill and skill.edits else None
        try:
            async with nullcontext(shared.sandbox) if shared else self._open_copy(run) as sandbox:
                build = shared.build_editor if shared else self.build_investigator
                agent = build(sandbox, log, limits, build_report_tools(skill.form if skill else None))
                system = render(
                    "prompts/investigator_system.md.j2",
                    root=sandbox.root,
                    scratch=sandbox.scratch,
                    kind=self.sandboxes.kind,
                    steps=limits.steps,
                    max_report_length=MAX_REPORT,
                    skill=skill,
                    text=strip_hidden(skill.text)[0] if skill else "",
                )
                await record_prompts(log, system, subagent_started.task, agent.tools)
                await agent.run(log)
        except (SandboxError, WorkspaceError) as exc:
            if shared:
                raise  # The sandbox of the calling agent failed, too.
            logger.warning("investigator lost its sandbox", extra={"run": run, "error": str(exc)[:300]})
            if log.trajectory.agent_stopped is None:
                await log.append(AgentStopped(reason="error", detail=SANDBOX_FAILED))


def build_report_tools(form: AgentSchema | None = None) -> tuple[Tool, ...]:
    """Returns the think tool and the report tool of an investigator. They need no sandbox. `form` contains
    the schema of the report.
    """
    return (
        ActionTool(Think, _handle_think),
        StructuredReportTool(form) if form else ActionTool(Report, _handle_report),
    )


class StructuredReportTool:
    """A report tool whose arguments are the fields of a schema. A report that violates the schema counts as a
    malformed call.
    """

    kind = "report"

    def __init__(self, form: AgentSchema) -> None:
        self._form = form
        self.spec = ToolSpec(
            name="report",
            description=render_prompt("formed_report.md.j2", max_report_length=MAX_REPORT),
            parameters=form.output,
        )

    def parse(self, arguments: dict[str, Any]) -> Report:
        if problem := validation_error(arguments, self._form.output):
            raise ValueError(problem)
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        if len(text) > MAX_REPORT:
            raise ValueError(f"the report is {len(text):,} characters long; the limit is {MAX_REPORT:,}")
        return Report(text=text)

    async def execute(self, action: Report) -> Acknowledgment:
        return await _handle_report(action)


async def _handle_think(action: Think) -> Acknowledgment:
    return Acknowledgment(text="Noted.")


async def _handle_report(action: Report) -> Acknowledgment:
    return Acknowledgment(text="Reported.")


def has_reported(trajectory: Trajectory) -> bool:
    """Returns True if the agent called the report tool."""
    return _find_report(trajectory) is not None


def build_result(run: RunId, trajectory: Trajectory) -> SubagentResult:
    """Returns the result of one investigator's run."""
    status: Literal["answered", "unfinished"] = "answered"
    if (text := _find_report(trajectory)) is None:
        agent_stopped, replies = trajectory.agent_stopped, trajectory.replies()
        detail = agent_stopped.detail if agent_stopped else "The agent never started."
        status, thought = "unfinished", replies[-1].thought if replies else ""
        text = render_prompt("investigator_unfinished.md.j2", detail=detail, thought=thought)
    task = trajectory.subagent_started.task if trajectory.subagent_started else ""
    return SubagentResult(
        run=run, status=status, text=clip(text, MAX_REPORT), usage=trajectory.usage(), task=task
    )


def merge_results(results: Sequence[SubagentResult]) -> SubagentResult:
    """Merges the results of several subagents into one. Costs are added. The duration is the longest one,
    because the subagents ran in parallel.
    """
    total_usage = Usage(seconds=max(result.usage.seconds for result in results))
    for result in results:
        total_usage = total_usage.add(result.usage, steps=result.usage.steps, unpriced=result.usage.unpriced)
    answered = any(result.status == "answered" for result in results)
    texts = [f"{number}. {result.status}: {result.text}" for number, result in enumerate(results, start=1)]
    return SubagentResult(
        run=results[0].run,
        status="answered" if answered else "unfinished",
        text="\n\n".join(texts),
        usage=total_usage,
        results=tuple(results),
    )


def _find_report(trajectory: Trajectory) -> str | None:
    """Returns the report that ended the run, or None if there is none. The report also counts if the process
    was killed before the end of the run was logged.
    """
    if trajectory.agent_stopped is not None and trajectory.agent_stopped.reason != "finished":
        return None
    calls = [call for reply in trajectory.replies()[-1:] for call in reply.calls]
    return next((call.action.text for call in calls if isinstance(call.action, Report)), None)
