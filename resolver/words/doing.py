"""What a run does right now, in words: a function of its log. Pure."""

from resolver.actions import (
    Action,
    Ask,
    Browse,
    CallTool,
    Delegate,
    Finish,
    Plan,
    ReadSkill,
    SearchWeb,
)
from resolver.events import Trajectory
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
from runtime.frozen import Frozen


class Doing(Frozen):
    """The current step."""

    words: str
    """Ours, a part of a sentence."""
    what: str = ""
    """A command, a path, a question: the model's own words, which end the sentence as code."""


def doing(trajectory: Trajectory) -> Doing:
    """What goes on after the last event of a run."""
    if trajectory.started is None:
        return Doing(words="fetching the repository")
    if trajectory.ended is not None:
        judged = trajectory.verdict is not None
        return Doing(words="publishing what came of it" if judged else "running the tests with the change")
    if calls := trajectory.unanswered():
        step = _step(calls[0].action)
        more = f" (and {len(calls) - 1} more at once)" if len(calls) > 1 else ""
        return step.model_copy(update={"words": f"{step.words}{more}"})
    if trajectory.decisions():
        return Doing(words="thinking about what came of the last step")
    begun = trajectory.configured is not None
    return Doing(
        words="setting up the sandbox, and reading the issue" if begun else "fetching the repository"
    )


def _step(action: Action) -> Doing:
    match action:
        case RunShell(command=command):
            return Doing(words="running", what=command)
        case SendInput():
            return Doing(words="answering a command that waits")
        case RunPython(code=code):
            return Doing(words="running Python,", what=code)
        case UseBrowser(code=code):
            return Doing(words="in the browser,", what=code)
        case Browse(task=task):
            return Doing(words="browsing to find out:", what=task)
        case Delegate(tasks=tasks):
            return Doing(words="finding out beside the work:", what="; ".join(tasks))
        case ViewFile(path=path):
            return Doing(words="reading", what=path)
        case SearchCode(query=query):
            return (
                Doing(words="searching the code for", what=query) if query else Doing(words="looking around")
            )
        case SearchWeb(query=query):
            return Doing(words="searching the web for", what=query)
        case CreateFile(path=path) | ReplaceText(path=path) | InsertText(path=path):
            return Doing(words="writing", what=path)
        case UndoEdit(path=path):
            return Doing(words="taking back the last edit of", what=path)
        case ReadSkill(name=name):
            return Doing(words="reading the repository's instructions,", what=name)
        case CallTool(name=name):
            return Doing(words="using the tool", what=name)
        case Plan():
            return Doing(words="planning")
        case Ask():
            return Doing(words="asking")
        case Finish():
            return Doing(words="finishing")
        case _:
            return Doing(words="thinking")
