"""Describes actions, observations and threads in one line each."""

import json

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
    ProposePlan,
    ReadSkill,
    SearchWeb,
    SubagentResult,
    Think,
)
from patchwright.resolver.events import RunStarted
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
from patchwright.runtime.observations import ActionFailure, CellResult, EditResult, PageSnapshot, ShellResult

MAX_LINE = 160  # Characters of a step's line.
NEW_SANDBOX = "The run continued in a new sandbox"
LOST_WITH_SANDBOX = "what the agent had started or installed in the old one is gone"


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


def name_thread(started: RunStarted) -> str:
    """Returns `owner/name#7`, or only the name of the repository if the issue is a file on this disk."""
    is_on_forge = bool(started.thread.url)
    return f"{started.job.repo}#{started.thread.number}" if is_on_forge else started.job.repo.name
