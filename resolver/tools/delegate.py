"""Handing a task to a browsing agent, which works on a log of its own and on a share of what the run may use."""

from dataclasses import dataclass

from resolver.actions import Browse, Reported, Result
from resolver.browsing import browsing
from resolver.browsing.addresses import brought_along
from resolver.domain import RunId
from resolver.events import Call
from resolver.llm.model import Model
from resolver.log import Log, Logs
from resolver.rules import Limits
from resolver.tools.handover import Handover
from resolver.tools.tool import ActionTool, Tool
from runtime.observations import Failed
from runtime.sandbox import Sandbox


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
    """Of that run."""
    steps: int = 30
    """Replies of the model for one task, at most."""
    searchable: bool = False
    """That run can search the web."""

    def tools(self) -> tuple[Tool, ...]:
        return (ActionTool(Browse, self.browse),)

    async def browse(self, action: Browse) -> Result:
        """What a browsing agent reports on the task; an error only if it never began.

        Raises what a run raises: ModelRefused, SandboxError, LogError.
        """
        limits = self._handover.share(self.steps)
        if isinstance(limits, Failed):
            return limits
        begun = self._handover.begun(
            action,
            "browse",
            action.task,
            self.model,
            limits,
            concise=len(action.fields) == 1,
            fields=action.fields,
            known=brought_along(self.log.trajectory),
            searchable=self.searchable,
        )
        async with begun as (run, log):
            await browsing.work(log, self.model, self.sandbox, limits)
            return browsing.report(run, log.trajectory)

    async def recover(self, call: Call) -> Reported | None:
        """What is known of a task that was under way when the process was killed; None: it was not handed on."""
        reports = await self._handover.recover(call, browsing.has_reported, browsing.report)
        return reports[0] if reports else None

    @property
    def _handover(self) -> Handover:
        return Handover(run=self.run, log=self.log, logs=self.logs, limits=self.limits)
