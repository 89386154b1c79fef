"""Summarizes a run for a reviewer, from its log."""

from collections import Counter
from decimal import Decimal
from typing import Literal

from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.activity.finish_checks import has_reproduced, last_finish
from patchwright.resolver.descriptions import describe_action, describe_observation
from patchwright.resolver.domain import JobId, Usage
from patchwright.resolver.events import Trajectory
from patchwright.resolver.run_calls import iter_calls, latest_plan
from patchwright.resolver.run_events import EnvironmentPrepared, RunConfigured, SubagentSpawned
from patchwright.resolver.run_task import get_options, get_task
from patchwright.resolver.settings.server_settings import ServerSettings, name_inputs
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.egress_policy import ConnectionSummary, NetworkMode
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.tool_action import PlanItem


class StepSummary(FrozenModel):
    """A tool call and its result, each described in one line."""

    number: int
    """Number of the reply that contains the call. The first reply is 1."""
    action: str
    result: str
    is_first_in_new_sandbox: bool = False
    """True if the run continued in a new sandbox before this call."""


class BrowsingTask(FrozenModel):
    """One task of a browsing agent."""

    task: str
    status: Literal["answered", "infeasible", "unfinished"]
    steps: int


class Summary(FrozenModel):
    """The summary of a run."""

    finish: Finish | None
    """The agent's own summary; None if it did not finish."""
    stop_detail: str
    """How the agent stopped, in a sentence. In a workflow, it names the action's inputs."""
    reached_setting: str | None = None
    """The setting whose limit ended the run; None if the run ended for another reason."""
    stopped_early: bool = False
    """True if a limit, a loop or an error ended the work."""
    steps: tuple[StepSummary, ...]
    usage: Usage
    model: str
    """The model that the run started with."""
    other_models: tuple[str, ...] = ()
    """Models that replaced `model` during the run, in the order of their first replies."""
    sandbox: str
    network: NetworkMode = "none"
    """Network access of the agent's sandbox."""
    visits: tuple[ConnectionSummary, ...] = ()
    """Connections that the agent's sandbox made."""
    environment: EnvironmentPrepared | None = None
    """Result of the environment setup; None if no setup was needed."""
    browsing_tasks: tuple[BrowsingTask, ...] = ()
    """Tasks of browsing agents. The steps of these agents are included in `usage`."""
    tool_calls: tuple[tuple[str, int, int], ...] = ()
    """See `count_tool_calls`."""
    plan: tuple[PlanItem, ...] = ()
    """The agent's latest plan."""
    configuration: RunConfigured | None = None
    """The run's latest settings; None if an older version of Patchwright ran it."""
    is_plan: bool = False
    """True if the run was to make a plan, and nobody has approved one."""
    has_reproduced: bool = False
    """True if the failure was reproduced before the last edit."""
    requested_usd: Decimal | None = None
    """The cost limit in dollars that the requester asked for, if it exceeds the operator's limit; otherwise
    None.
    """
    dashboard_url: str | None = None
    """URL of the run in the dashboard; None if there is no dashboard."""

    @property
    def in_workflow(self) -> bool:
        """True if the log is deleted with the runner of a workflow, so that no later run can continue this one."""
        return _is_in_workflow(self.configuration)


def _is_in_workflow(configuration: RunConfigured | None) -> bool:
    return bool(configuration and configuration.settings.get("workflow_url"))


def summarize_run(trajectory: Trajectory) -> Summary:
    """Builds the summary of a started run from its log."""
    started = trajectory.run_started
    assert started is not None, "cannot summarize a run that has not started"
    stopped = trajectory.agent_stopped
    models = (reply.usage.model for reply in trajectory.replies())
    detail = stopped.detail if stopped else "The run has not ended."
    configuration = trajectory.run_configured
    return Summary(
        finish=last_finish(trajectory),
        stop_detail=name_inputs(detail) if _is_in_workflow(configuration) else detail,
        reached_setting=find_reached_setting(trajectory),
        stopped_early=stopped is not None and stopped.reason not in ("finished", "input_required"),
        steps=tuple(list_steps(trajectory)),
        usage=trajectory.usage(),
        model=started.model,
        other_models=tuple(name for name in dict.fromkeys(models) if name != started.model),
        sandbox=started.sandbox,
        network=started.network,
        visits=trajectory.network_visits(),
        environment=trajectory.environment_prepared,
        browsing_tasks=tuple(
            _browsing_task(*subagent) for subagent in trajectory.subagents() if subagent[0].role == "browse"
        ),
        tool_calls=count_tool_calls(trajectory),
        plan=latest_plan(trajectory),
        configuration=configuration,
        is_plan=get_task(trajectory) == "plan",
        has_reproduced=has_reproduced(trajectory),
        requested_usd=_requested_usd(trajectory),
        dashboard_url=_dashboard_url(started.job.id, trajectory.run_configured),
    )


def count_tool_calls(trajectory: Trajectory) -> tuple[tuple[str, int, int], ...]:
    """Returns the name of each tool, the number of its calls, and their percentage of all calls. The most
    used tool comes first.
    """
    calls = Counter(call.action.kind for call in iter_calls(trajectory))
    return tuple(
        (name.replace("_", " "), count, round(100 * count / calls.total()))
        for name, count in calls.most_common()
    )


def find_reached_setting(trajectory: Trajectory) -> str | None:
    """Returns the name of the setting whose limit ended a run, such as `max_usd`. Returns None if the run did not
    end in this way, or if the request itself set the limit.
    """
    stopped, limits = trajectory.agent_stopped, trajectory.run_configured
    usage = trajectory.usage_since_resume()
    if stopped is None or stopped.reason != "limit" or limits is None:
        return None
    if usage.steps >= limits.steps:
        return "max_steps"
    if usage.usd >= limits.usd:
        return None if get_options(trajectory).usd == limits.usd else "max_usd"
    tokens = limits.settings.get("max_tokens")
    if isinstance(tokens, int) and usage.tokens >= tokens:
        return "max_tokens"
    return "timeout" if usage.seconds >= limits.seconds else None


def _requested_usd(trajectory: Trajectory) -> Decimal | None:
    configuration, requested = trajectory.run_configured, get_options(trajectory).usd
    return requested if configuration and requested and requested > configuration.usd else None


def _dashboard_url(run: JobId, configuration: RunConfigured | None) -> str | None:
    names = ("public_url", "workflow_url", "poll")
    settings = (
        {name: configuration.settings[name] for name in names if name in configuration.settings}
        if configuration
        else {}
    )
    return ServerSettings.model_validate(settings).run_url(run)


def _browsing_task(spawned: SubagentSpawned, report: SubagentResult | None) -> BrowsingTask:
    if report is None:
        return BrowsingTask(task=spawned.task, status="unfinished", steps=0)
    return BrowsingTask(task=spawned.task, status=report.status, steps=report.usage.steps)


def list_steps(trajectory: Trajectory) -> list[StepSummary]:
    """Returns a summary of each call of a run and its result, in order."""
    return [
        StepSummary(
            number=call.step,
            action=describe_action(call.action),
            result=describe_observation(call.observation),
            is_first_in_new_sandbox=call.is_first_in_new_sandbox,
        )
        for call in iter_calls(trajectory)
    ]
