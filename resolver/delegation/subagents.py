"""Starts and recovers subagents, each with its own log and a share of the run's limits."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from patchwright.resolver.actions import Action, SubagentResult
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import AgentStopped, ToolCall, Trajectory
from patchwright.resolver.llm.model import Model
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.run_events import SubagentRole, SubagentSpawned, SubagentStarted
from patchwright.resolver.run_limits import Limits, subagent_limits
from patchwright.resolver.run_log import LogStore, RunLog
from patchwright.runtime.observations import ActionFailure

MAX_DEPTH = 2
"""Maximum nesting depth. The run of a job has depth 1 and its subagents have depth 2, so subagents cannot
start other subagents.
"""
_RUN_ID_PARTS: dict[SubagentRole, str] = {"browse": "browse", "investigate": "sub", "edit": "edit"}


@dataclass(frozen=True)
class SubagentLauncher:
    """Starts the subagents of one run."""

    run: RunId
    log: RunLog
    """Log of the parent run."""
    logs: LogStore
    limits: Limits
    """Limits of the parent run. Its subagents share half of the remaining budget, so that the parent can
    always finish.
    """

    def allocate_limits(self, max_steps: int, subagents: int = 1) -> Limits | ActionFailure:
        """Returns the limits for each new subagent. `subagents` is the number of new subagents. Each of them
        gets at most `max_steps` steps.

        Returns a failure if the parent has used up its limits or is itself a subagent.
        """
        is_too_deep = self._subagent_depth > MAX_DEPTH
        limits = subagent_limits(self.limits, self.log.trajectory.usage_since_resume(), max_steps, subagents)
        if is_too_deep or limits is None:
            return ActionFailure(
                reason="refused",
                message=render_prompt("not_delegated.md.j2", is_too_deep=is_too_deep, count=subagents),
            )
        return limits

    @asynccontextmanager
    async def start(
        self, action: Action, role: SubagentRole, task: str, model: Model, limits: Limits, **extra_fields: Any
    ) -> AsyncIterator[tuple[RunId, RunLog]]:
        """Starts a subagent for one task of the pending call, and yields its run ID and its log. The start is
        recorded in the subagent's log and in the log of the parent run.

        `extra_fields` are additional fields of SubagentStarted. Subagents that run in parallel must still be
        started one after the other.
        """
        call = next(call.id for call in self.log.trajectory.pending_calls() if call.action == action)
        for number in count(len(self.log.trajectory.subagents()) + 1):
            run = RunId(f"{self.run}-{_RUN_ID_PARTS[role]}-{number}")
            async with self.logs.open(run) as log:
                if log.trajectory.entries:
                    continue  # the log is from an earlier parent run, whose own log was deleted
                await self.log.append(SubagentSpawned(call_id=call, run=run, role=role, task=task))
                await log.append(
                    SubagentStarted(
                        parent=self.run,
                        call_id=call,
                        depth=self._subagent_depth,
                        role=role,
                        task=task,
                        model=model.name,
                        steps=limits.steps,
                        seconds=limits.seconds,
                        usd=limits.usd,
                        tokens=limits.tokens,
                        **extra_fields,
                    )
                )
                yield run, log
                return

    async def recover(
        self,
        call: ToolCall,
        has_reported: Callable[[Trajectory], bool],
        build_result: Callable[[RunId, Trajectory], SubagentResult],
    ) -> tuple[SubagentResult, ...]:
        """Returns the results of a call's subagents after the process was killed.

        The result of a finished subagent is its report. For an interrupted subagent, only the cost is known.
        Returns no results if the call started no subagents. Interrupted tasks are not continued, because the
        parent agent decides whether they are still needed.
        """
        results = []
        for run in [
            spawned.run for spawned, _ in self.log.trajectory.subagents() if spawned.call_id == call.id
        ]:
            async with self.logs.open(run) as log:
                if not log.trajectory.agent_stopped and not has_reported(log.trajectory):
                    detail = "The process was stopped during this task; the task was not resumed."
                    await log.append(AgentStopped(reason="interrupted", detail=detail))
                results.append(build_result(run, log.trajectory))
        return tuple(results)

    @property
    def _subagent_depth(self) -> int:
        """The nesting depth of the subagents that this run starts."""
        started = self.log.trajectory.subagent_started
        return 1 + (started.depth if started else 1)
