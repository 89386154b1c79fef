"""What a run hands on to other agents: a share of its limits, and for each of them a log of its own."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from resolver import prose
from resolver.actions import Action, Reported
from resolver.domain import RunId
from resolver.events import Assigned, Call, Delegated, Ended, Role, Trajectory
from resolver.llm.model import Model
from resolver.log import Log, Logs
from resolver.rules import Limits, share, used
from runtime.observations import Failed

DEEPEST = 2
"""A job's own run has depth 1; what it delegates to delegates nothing."""
_NAMES: dict[Role, str] = {"browse": "browse", "investigate": "sub"}


@dataclass(frozen=True)
class Handover:
    """The giving side: one run, and what it may use."""

    run: RunId
    log: Log
    """Of that run."""
    logs: Logs
    limits: Limits
    """Of that run; what is handed on is half of what is left, so that there is always something left to end with."""

    def share(self, steps: int, among: int = 1) -> Limits | Failed:
        """What each of so many agents may use, at most so many steps; or why nothing is handed on."""
        too_deep = self._depth > DEEPEST
        limits = share(self.limits, used(self.log.trajectory), steps, among)
        if too_deep or limits is None:
            return Failed(reason="refused", message=prose.not_delegated(too_deep=too_deep, among=among))
        return limits

    @asynccontextmanager
    async def begun(
        self, action: Action, role: Role, task: str, model: Model, limits: Limits, **more: Any
    ) -> AsyncIterator[tuple[RunId, Log]]:
        """A run for this task of the call that is being answered: written down in both logs, and held.

        `more`: further fields of its assignment. One after the other, also for agents that then work side by side.
        """
        call = next(call.id for call in self.log.trajectory.unanswered() if call.action == action)
        for number in count(len(self.log.trajectory.delegations()) + 1):
            run = RunId(f"{self.run}-{_NAMES[role]}-{number}")
            async with self.logs.open(run) as log:
                if log.trajectory.entries:
                    continue  # what an earlier run of this name left, whose own log was removed
                await self.log.append(Delegated(call=call, run=run, role=role, task=task))
                await log.append(
                    Assigned(
                        parent=self.run,
                        call=call,
                        depth=self._depth,
                        role=role,
                        task=task,
                        model=model.name,
                        steps=limits.steps,
                        seconds=limits.seconds,
                        usd=limits.usd,
                        tokens=limits.tokens,
                        **more,
                    )
                )
                yield run, log
                return

    async def recover(
        self,
        call: Call,
        has_reported: Callable[[Trajectory], bool],
        report: Callable[[RunId, Trajectory], Reported],
    ) -> tuple[Reported, ...]:
        """What is known of the tasks of a call that was under way when the process was killed.

        Each one's answer, or what it cost; empty: this call was not handed on. No task is continued: whoever asked
        knows best whether it still matters.
        """
        reports = []
        for run in [each.run for each, _ in self.log.trajectory.delegations() if each.call == call.id]:
            async with self.logs.open(run) as log:
                if not log.trajectory.ended and not has_reported(log.trajectory):
                    detail = "The program was stopped while it worked, and its task was not taken up again."
                    await log.append(Ended(reason="cancelled", detail=detail))
                reports.append(report(run, log.trajectory))
        return tuple(reports)

    @property
    def _depth(self) -> int:
        """Of what is handed on."""
        assigned = self.log.trajectory.assigned
        return 1 + (assigned.depth if assigned else 1)
