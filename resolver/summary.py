"""Summarizes a run for a reviewer, from its log."""

import json
from decimal import Decimal
from typing import Literal

from patchwright.resolver.actions import (
    Action,
    AnyObservation,
    Ask,
    Browse,
    CallTool,
    Delegate,
    ExternalToolResult,
    Finish,
    MalformedCall,
    Plan,
    PlanItem,
    ProposePlan,
    ReadSkill,
    SearchWeb,
    SubagentResult,
    Think,
)
from patchwright.resolver.domain import JobId, Usage
from patchwright.resolver.events import ModelReply, RunStarted, ToolCall, ToolResult, Trajectory
from patchwright.resolver.finish_checks import has_reproduced, last_finish, latest_plan
from patchwright.resolver.request.run_task import get_options
from patchwright.resolver.run_events import EnvironmentPrepared, RunConfigured, SubagentSpawned
from patchwright.resolver.settings.server_settings import ServerSettings
from patchwright.runtime.actions import (
    CreateFile,
    InsertText,
    ReplaceText,
    RunPython,
    RunShell,
    SearchCode,
    SendInput,
    UndoEdit,
    UseBrowser,
    ViewFile,
)
from patchwright.runtime.egress.policy import ConnectionSummary, NetworkMode
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ActionFailure, CellResult, EditResult, PageSnapshot, ShellResult

MAX_LINE = 160  # Characters of a step's line.


class StepSummary(FrozenModel):
    """A tool call and its result, each described in one line."""

    number: int
    """Number of the reply that contains the call. The first reply is 1."""
    action: str
    result: str


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
    """How the agent stopped, in a sentence."""
    reached_setting: str | None = None
    """The setting whose limit ended the run before the first reply of the model; None in all other cases."""
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
    plan: tuple[PlanItem, ...] = ()
    """The agent's latest plan."""
    configuration: RunConfigured | None = None
    """The run's latest settings; None if an older version of Patchwright ran it."""
    has_reproduced: bool = False
    """True if the failure was reproduced before the last edit."""
    requested_usd: Decimal | None = None
    """The cost limit in dollars that the requester asked for, if it exceeds the operator's limit; otherwise
    None.
    """
    dashboard_url: str | None = None
    """URL of the run in the dashboard; None if there is no dashboard."""


def summarize_run(trajectory: Trajectory) -> Summary:
    """Builds the summary of a started run from its log."""
    started = trajectory.run_started
    assert started is not None, "cannot summarize a run that has not started"
    stopped = trajectory.agent_stopped
    models = (reply.usage.model for reply in trajectory.replies())
    return Summary(
        finish=last_finish(trajectory),
        stop_detail=stopped.detail if stopped else "The run has not ended.",
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
        plan=latest_plan(trajectory),
        configuration=trajectory.run_configured,
        has_reproduced=has_reproduced(trajectory),
        requested_usd=_requested_usd(trajectory),
        dashboard_url=_dashboard_url(started.job.id, trajectory.run_configured),
    )


def find_reached_setting(trajectory: Trajectory) -> str | None:
    """Returns the name of the setting whose limit ended a run before the model's first reply, such as `max_usd`.
    Returns None if the run did not end in this way.
    """
    stopped, limits, usage = trajectory.agent_stopped, trajectory.run_configured, trajectory.usage()
    if stopped is None or stopped.reason != "limit" or limits is None or usage.steps:
        return None
    if usage.usd >= limits.usd:
        return "max_usd"
    return "timeout" if usage.seconds >= limits.seconds else "max_tokens"


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
    results = {event.call_id: event.observation for event in trajectory if isinstance(event, ToolResult)}
    steps: list[StepSummary] = []
    for number, reply in enumerate((e for e in trajectory if isinstance(e, ModelReply)), start=1):
        steps.extend(_summarize_step(number, call, results.get(call.id)) for call in reply.calls)
    return steps


def _summarize_step(number: int, call: ToolCall, observation: AnyObservation | None) -> StepSummary:
    return StepSummary(
        number=number, action=describe_action(call.action), result=describe_observation(observation)
    )


def describe_action(action: Action) -> str:
    """Describes an action in one line."""
    match action:
        case RunShell(command=command):
            return clip_line(f"$ {command}")
        case SendInput(text=text, key=key):
            return clip_line(
                f"type {' '.join(filter(None, (text, key)))}" if text or key else "wait for the command"
            )
        case RunPython(code=code):
            return clip_line(f">>> {code}")
        case UseBrowser(code=code):
            return clip_line(f"in the browser: {code}")
        case Browse(task=task):
            return clip_line(f"browse: {task}")
        case Delegate(tasks=tasks):
            return clip_line(f"delegate: {' | '.join(tasks)}")
        case ViewFile(path=path, start=start, end=end):
            lines = f" from line {start}" if end is None else f" lines {start} to {end}"
            return clip_line(f"view {path}{lines if start > 1 or end else ''}")
        case SearchCode(query=query, what=what, path=path):
            criteria = " ".join(filter(None, (what, query, path and f"in {path}")))
            return clip_line(f"search {criteria}")
        case SearchWeb(query=query):
            return clip_line(f"search the web: {query}")
        case CreateFile(path=path):
            return clip_line(f"create {path}")
        case ReplaceText(path=path) | InsertText(path=path):
            return clip_line(f"edit {path}")
        case UndoEdit(path=path):
            return clip_line(f"undo the last edit of {path}")
        case Think(thought=thought):
            return clip_line(f"think: {thought}")
        case Plan(items=items):
            done = sum(item.status == "done" for item in items)
            return f"plan: {done} of {len(items)} done"
        case Ask(question=question):
            return clip_line(f"ask: {question}")
        case ProposePlan(cause=cause):
            return clip_line(f"propose: {cause}")
        case ReadSkill(name=name):
            return clip_line(f"read the skill {name}")
        case CallTool(name=name, arguments=arguments):
            return clip_line(f"{name} {json.dumps(arguments)}")
        case Finish():
            return "finish"
        case MalformedCall(name=name, problem=problem):
            return clip_line(f"call of {name} that could not be parsed: {problem}")
        case _:
            return action.kind


def name_thread(started: RunStarted) -> str:
    """Returns `owner/name#7`, or only the name of the repository if the issue is a file on this disk."""
    is_on_forge = bool(started.thread.url)
    return f"{started.job.repo}#{started.thread.number}" if is_on_forge else started.job.repo.name


def describe_observation(observation: AnyObservation | None) -> str:
    """Describes an observation in a few words."""
    match observation:
        case None:
            return "no answer"
        case ShellResult(exit_code=None, note=note):
            return clip_line(note or "ended without an exit code")
        case ShellResult(exit_code=code, output=output):
            return clip_line(f"exit code {code}{_last_line_suffix(output)}")
        case CellResult(ok=ok, output=output, note=note):
            suffix = f": {note}" if note else _last_line_suffix(output)
            return clip_line(f"{'done' if ok else 'not done'}{suffix}")
        case PageSnapshot(user_message=str(text)):
            return clip_line(f"reported: {text}")
        case PageSnapshot(infeasible_reason=str(reason)):
            return clip_line(f"cannot be done: {reason}")
        case PageSnapshot(error=str(error)):
            return clip_line(error)
        case PageSnapshot(url=url, title=title):
            return clip_line(f"at {url}" + (f" ({title})" if title else ""))
        case SubagentResult(status=status, text=text, usage=usage):
            outcome = "cannot be done" if status == "infeasible" else status
            return clip_line(f"{outcome} after {usage.steps} steps: {text}")
        case EditResult(diff=diff, warning=warning):
            added, removed = _count_changed_lines(diff)
            return clip_line(f"+{added} -{removed}" + (f"; {warning}" if warning else ""))
        case ExternalToolResult(ok=ok, text=text):
            return clip_line(f"{'answered' if ok else 'failed'}: {text}")
        case ActionFailure(message=message):
            return clip_line(message)
        case _:
            return "ok"


def _last_line_suffix(output: str) -> str:
    """Returns the last line of an output, with the number of lines if there are more, so that nobody takes the line
    for the whole output.
    """
    *earlier, last = output.strip().split("\n")
    return f", last of {len(earlier) + 1} lines: {last}" if earlier else f": {last}" if last else ""


def _count_changed_lines(diff: str) -> tuple[int, int]:
    body = [line for line in diff.splitlines() if not line.startswith(("+++", "---"))]
    return sum(line.startswith("+") for line in body), sum(line.startswith("-") for line in body)


def clip_line(text: str, limit: int = MAX_LINE) -> str:
    """Returns the text as one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
