"""Handing a task to a browsing agent, which works on a log of its own and on a share of what the run may use."""

from dataclasses import dataclass
from itertools import count

from resolver import browsing, prose
from resolver.actions import Browse, Reported, Result
from resolver.addresses import brought_along
from resolver.domain import RunId
from resolver.events import Assigned, Call, Delegated, Ended
from resolver.llm.model import Model
from resolver.log import Log, Logs
from resolver.rules import Limits, share
from resolver.tools.tool import ActionTool, Tool
from runtime.observations import Failed
from runtime.sandbox import Sandbox

DEEPEST = 2
"""A job's own run has depth 1; what it delegates to delegates nothing."""


@dataclass(frozen=True)
class Browsing:
    """The tool `browse` of one run in one sandbox."""

    run: RunId
    log: Log
    """Of that run."""
    logs: Logs
    model: Model
    sandbox: Sandbox
    limits: Limits
    """Of that run; each task gets half of what is left, so that there is always something left to end with."""
    steps: int = 30
    """Replies of the model for one task, at most."""

    def tools(self) -> tuple[Tool, ...]:
        return (ActionTool(Browse, self.browse),)

    async def browse(self, action: Browse) -> Result:
        """What a browsing agent reports on the task; an error only if it never began.

        Raises what a run raises: ModelRefused, SandboxError, LogError.
        """
        trajectory = self.log.trajectory
        depth = 1 + (trajectory.assigned.depth if trajectory.assigned else 1)
        limits = share(self.limits, trajectory.spent(), steps=self.steps)
        if depth > DEEPEST or limits is None:
            return Failed(reason="refused", message=prose.not_delegated(too_deep=depth > DEEPEST))
        call = next(call for call in trajectory.unanswered() if call.action == action)
        for number in count(len(trajectory.delegations()) + 1):
            run = RunId(f"{self.run}-browse-{number}")
            async with self.logs.open(run) as log:
                if log.trajectory.entries:
                    continue  # what an earlier run of this name left, whose own log was removed
                await self.log.append(Delegated(call=call.id, run=run, task=action.task))
                await log.append(
                    Assigned(
                        parent=self.run,
                        call=call.id,
                        depth=depth,
                        task=action.task,
                        model=self.model.name,
                        concise=len(action.fields) == 1,
                        fields=action.fields,
                        known=brought_along(trajectory),
                        steps=limits.steps,
                        seconds=limits.seconds,
                        usd=limits.usd,
                    )
                )
                await browsing.work(log, self.model, self.sandbox, limits)
                return browsing.report(run, log.trajectory)
        raise AssertionError("numbers do not end")

    async def recover(self, call: Call) -> Reported | None:
        """What is known of a task that was under way when the process was killed: its answer, or what it cost.

        None: this call was not handed on. The task is not continued: whoever asked knows best whether it still
        matters, and the page may be another by now.
        """
        run = next((each.run for each, _ in self.log.trajectory.delegations() if each.call == call.id), None)
        if run is None:
            return None
        async with self.logs.open(run) as log:
            if not log.trajectory.ended and not browsing.has_reported(log.trajectory):
                detail = "The program was stopped while it browsed, and its task was not taken up again."
                await log.append(Ended(reason="cancelled", detail=detail))
            return browsing.report(run, log.trajectory)
