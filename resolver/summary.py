"""What a reviewer wants to know of a run: a function of its log."""

import json
from decimal import Decimal
from typing import Literal

from resolver.actions import (
    Action,
    Ask,
    Browse,
    Called,
    CallTool,
    Delegate,
    Finish,
    Malformed,
    Plan,
    PlanItem,
    Propose,
    ReadSkill,
    Reported,
    Result,
    SearchWeb,
    Think,
)
from resolver.circumstances import Configured, Prepared
from resolver.domain import JobId, Spent
from resolver.events import Call, Decided, Delegated, Observed, Trajectory
from resolver.gate import last_account, plan, reproduced
from resolver.request.planning import options
from resolver.settings.server import ServerSettings
from runtime.actions import (
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
from runtime.egress.egress import Network, Visit
from runtime.frozen import Frozen
from runtime.observations import Edited, Failed, Page, Ran, RanPython

LINE = 160  # characters of a step's line


class Step(Frozen):
    """One call and what came of it, a line each."""

    number: int
    """Of the reply that it belongs to, from 1."""
    did: str
    came: str


class Browsed(Frozen):
    """One task that a browsing agent worked on."""

    task: str
    status: Literal["answered", "infeasible", "unfinished"]
    steps: int


class Summary(Frozen):
    """A run in short."""

    account: Finish | None
    """The agent's own account; None when it did not finish."""
    ending: str
    """How the agent's work ended, in a sentence."""
    early: bool = False
    """The agent did not end it: a limit, circles or an error did."""
    steps: tuple[Step, ...]
    spent: Spent
    model: str
    """That the run was begun with."""
    others: tuple[str, ...] = ()
    """Models that went on in its place, in the order in which they first spoke."""
    sandbox: str
    network: Network = "none"
    """Of the agent's sandbox."""
    visits: tuple[Visit, ...] = ()
    """What it did by it."""
    prepared: Prepared | None = None
    """What became of the repository's set-up; None: none was needed."""
    browsed: tuple[Browsed, ...] = ()
    """Its steps are part of what was spent."""
    plan: tuple[PlanItem, ...] = ()
    """The list that the agent kept, as it wrote it last."""
    under: Configured | None = None
    """The settings that it went on with last; None: an older version worked on it."""
    reproduced: bool = False
    """Whether the failure was seen before the last edit."""
    capped: Decimal | None = None
    """Dollars that somebody asked for, where the operator allows less; else None."""
    page: str | None = None
    """Where the run is shown; None: nowhere."""


def summarize(trajectory: Trajectory) -> Summary:
    """The summary of a run that has started."""
    started = trajectory.started
    assert started is not None, "only a run that has started is summarized"
    ended = trajectory.ended
    spoke = (decided.usage.model for decided in trajectory.decisions())
    return Summary(
        account=last_account(trajectory),
        ending=ended.detail if ended else "The run has not ended.",
        early=ended is not None and ended.reason not in ("finished", "asked"),
        steps=tuple(steps(trajectory)),
        spent=trajectory.spent(),
        model=started.model,
        others=tuple(name for name in dict.fromkeys(spoke) if name != started.model),
        sandbox=started.sandbox,
        network=started.network,
        visits=trajectory.visits(),
        prepared=trajectory.prepared,
        browsed=tuple(_browsed(*each) for each in trajectory.delegations() if each[0].role == "browse"),
        plan=plan(trajectory),
        under=trajectory.configured,
        reproduced=reproduced(trajectory),
        capped=_capped(trajectory),
        page=_page(started.job.id, trajectory.configured),
    )


def _capped(trajectory: Trajectory) -> Decimal | None:
    under, wanted = trajectory.configured, options(trajectory).usd
    return wanted if under and wanted and wanted > under.usd else None


def _page(run: JobId, under: Configured | None) -> str | None:
    places = ("public_url", "workflow_url", "poll")
    known = {name: under.settings[name] for name in places if name in under.settings} if under else {}
    return ServerSettings.model_validate(known).page_of(run)


def _browsed(asked: Delegated, report: Reported | None) -> Browsed:
    if report is None:
        return Browsed(task=asked.task, status="unfinished", steps=0)
    return Browsed(task=asked.task, status=report.status, steps=report.spent.steps)


def steps(trajectory: Trajectory) -> list[Step]:
    """The calls of a run in order, each with its result."""
    answers = {event.call: event.observation for event in trajectory if isinstance(event, Observed)}
    found: list[Step] = []
    for number, decided in enumerate((e for e in trajectory if isinstance(e, Decided)), start=1):
        found.extend(_step(number, call, answers.get(call.id)) for call in decided.calls)
    return found


def _step(number: int, call: Call, observation: Result | None) -> Step:
    return Step(number=number, did=did(call.action), came=came(observation))


def did(action: Action) -> str:
    """One line about an action."""
    match action:
        case RunShell(command=command):
            return clip(f"$ {command}")
        case SendInput(text=text, key=key):
            return clip(
                f"type {' '.join(filter(None, (text, key)))}" if text or key else "wait for the command"
            )
        case RunPython(code=code):
            return clip(f">>> {code}")
        case UseBrowser(code=code):
            return clip(f"in the browser: {code}")
        case Browse(task=task):
            return clip(f"browse: {task}")
        case Delegate(tasks=tasks):
            return clip(f"delegate: {' | '.join(tasks)}")
        case ViewFile(path=path, start=start, end=end):
            where = f" from line {start}" if end is None else f" lines {start} to {end}"
            return clip(f"view {path}{where if start > 1 or end else ''}")
        case SearchCode(query=query, what=what, path=path):
            sought = " ".join(filter(None, (what, query, path and f"in {path}")))
            return clip(f"search {sought}")
        case SearchWeb(query=query):
            return clip(f"search the web: {query}")
        case CreateFile(path=path):
            return clip(f"create {path}")
        case ReplaceText(path=path) | InsertText(path=path):
            return clip(f"edit {path}")
        case UndoEdit(path=path):
            return clip(f"undo the last edit of {path}")
        case Think(thought=thought):
            return clip(f"think: {thought}")
        case Plan(items=items):
            done = sum(item.state == "done" for item in items)
            return f"plan: {done} of {len(items)} done"
        case Ask(question=question):
            return clip(f"ask: {question}")
        case Propose(cause=cause):
            return clip(f"propose: {cause}")
        case ReadSkill(name=name):
            return clip(f"read the skill {name}")
        case CallTool(name=name, arguments=arguments):
            return clip(f"{name} {json.dumps(arguments)}")
        case Finish():
            return "finish"
        case Malformed(name=name, problem=problem):
            return clip(f"call of {name} that could not be read: {problem}")
        case _:
            return action.kind


def came(observation: Result | None) -> str:
    """A few words about what came of an action."""
    match observation:
        case None:
            return "no answer"
        case Ran(exit_code=None, note=note):
            return clip(note or "ended without an exit code")
        case Ran(exit_code=code, output=output):
            last = output.strip().rsplit("\n", 1)[-1]
            return clip(f"exit code {code}" + (f": {last}" if last else ""))
        case RanPython(ok=ok, output=output, note=note):
            last = note or output.strip().rsplit("\n", 1)[-1]
            return clip(("done" if ok else "not done") + (f": {last}" if last else ""))
        case Page(answer=str(text)):
            return clip(f"reported: {text}")
        case Page(infeasible=str(reason)):
            return clip(f"cannot be done: {reason}")
        case Page(error=str(error)):
            return clip(error)
        case Page(url=url, title=title):
            return clip(f"at {url}" + (f" ({title})" if title else ""))
        case Reported(status=status, text=text, spent=spent):
            said = "cannot be done" if status == "infeasible" else status
            return clip(f"{said} after {spent.steps} steps: {text}")
        case Edited(diff=diff, warning=warning):
            added, removed = _changed(diff)
            return clip(f"+{added} -{removed}" + (f"; {warning}" if warning else ""))
        case Called(ok=ok, text=text):
            return clip(f"{'answered' if ok else 'failed'}: {text}")
        case Failed(message=message):
            return clip(message)
        case _:
            return "ok"


def _changed(diff: str) -> tuple[int, int]:
    body = [line for line in diff.splitlines() if not line.startswith(("+++", "---"))]
    return sum(line.startswith("+") for line in body), sum(line.startswith("-") for line in body)


def clip(text: str, limit: int = LINE) -> str:
    """The text as one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
