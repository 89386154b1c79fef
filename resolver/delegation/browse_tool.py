"""The `browse` tool: gives a task to a browsing agent, which has its own log and a share of the run's
limits.
"""

from dataclasses import dataclass

from patchwright.resolver.actions import AnyObservation, SubagentResult
from patchwright.resolver.browsing import browsing_agent
from patchwright.resolver.browsing.browser_options import DEFAULT_OPTIONS, limit_to_model
from patchwright.resolver.browsing.guessed_urls import collect_known_urls
from patchwright.resolver.browsing.linked_hosts import LinkBrowsingSandbox, find_linked_hosts
from patchwright.resolver.delegation.subagents import SubagentLauncher
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import ToolCall
from patchwright.resolver.llm.model import Model
from patchwright.resolver.run_events import BrowserOptions
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import LogStore, RunLog
from patchwright.resolver.tool_actions.subagent_actions import Browse
from patchwright.resolver.tools.tool import ActionTool, Tool
from patchwright.runtime.observations import ActionFailure
from patchwright.runtime.sandbox import Sandbox


@dataclass(frozen=True)
class BrowseTool:
    """The `browse` tool of one run in one sandbox."""

    run: RunId
    log: RunLog
    """Log of the calling run."""
    logs: LogStore
    model: Model
    sandbox: Sandbox
    limits: Limits
    """Limits of the calling run."""
    max_steps: int = 30
    """Maximum number of model replies for one task."""
    can_search: bool = False
    """True if the calling run can search the web."""
    options: BrowserOptions = DEFAULT_OPTIONS

    def tools(self) -> tuple[Tool, ...]:
        return (ActionTool(Browse, self.browse),)

    async def browse(self, action: Browse) -> AnyObservation:
        """Returns the browsing agent's report. Returns a failure if the agent could not be started.

        Raises ModelAccessDenied, SandboxError and LogError.
        """
        limits = self._launcher.allocate_limits(self.max_steps)
        if isinstance(limits, ActionFailure):
            return limits
        subagent = self._launcher.start(
            action,
            "browse",
            action.task,
            self.model,
            limits,
            concise=len(action.fields) == 1,
            fields=action.fields,
            known_urls=collect_known_urls(self.log.trajectory),
            can_search=self.can_search,
            browser=limit_to_model(self.options, self.model.supports_vision),
        )
        async with subagent as (run, log):
            hosts = find_linked_hosts(self.log.trajectory) if self.options.reads_links else ()
            sandbox = LinkBrowsingSandbox(self.sandbox, hosts)
            await browsing_agent.run_browsing_agent(log, self.model, sandbox, limits)
            return browsing_agent.build_result(run, log.trajectory)

    async def recover(self, call: ToolCall) -> SubagentResult | None:
        """Returns the result of a task that was interrupted when the process was killed. Returns None if the
        task was never started.
        """
        reports = await self._launcher.recover(call, browsing_agent.has_reported, browsing_agent.build_result)
        return reports[0] if reports else None

    @property
    def _launcher(self) -> SubagentLauncher:
        return SubagentLauncher(run=self.run, log=self.log, logs=self.logs, limits=self.limits)
