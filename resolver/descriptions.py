"""Describes actions, observations and threads in one line each."""

from patchwright.resolver.actions import AnyObservation, ExternalToolResult, SubagentResult
from patchwright.resolver.events import RunStarted
from patchwright.runtime.observations import ActionFailure, CellResult, EditResult, PageSnapshot, ShellResult
from patchwright.runtime.output_text import clip_line
from patchwright.runtime.tool_action import ToolAction

NEW_SANDBOX = "The run continued in a new sandbox"
LOST_WITH_SANDBOX = "what the agent had started or installed in the old one is gone"


def describe_action(action: ToolAction) -> str:
    """Describes an action in one line."""
    return clip_line(action.describe().title)


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


def name_thread(started: RunStarted) -> str:
    """Returns `owner/name#7`, or only the name of the repository if the issue is a file on this disk."""
    is_on_forge = bool(started.thread.url)
    return f"{started.job.repo}#{started.thread.number}" if is_on_forge else started.job.repo.name


def label_verdict(kind: str, *, documentation_only: bool) -> str:
    """Returns the name of a verdict for people: the kind, "no change", or "documentation only"."""
    return "documentation only" if documentation_only else "no change" if kind == "empty" else kind
