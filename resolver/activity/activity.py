"""Describes what a run is doing now, from its log. All functions are pure."""

from patchwright.resolver.actions import (
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
from patchwright.resolver.events import SystemPrompt, Trajectory
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
from patchwright.runtime.frozen_model import FrozenModel


class Activity(FrozenModel):
    """A description of the current step."""

    verb: str
    """What the run is doing, for example "running". `target` completes the sentence."""
    target: str = ""
    """The command, path or question from the model. It is shown as code after the verb."""


def get_activity(trajectory: Trajectory) -> Activity:
    """Returns a description of what the run is doing now, according to the events in its log."""
    if trajectory.run_started is None:
        return Activity(verb="fetching the repository")
    if trajectory.agent_stopped is not None:
        is_verified = trajectory.verdict is not None
        return Activity(verb="publishing the result" if is_verified else "running the tests with the change")
    if calls := trajectory.pending_calls():
        step = _action_activity(calls[0].action)
        more = f" (and {len(calls) - 1} more in parallel)" if len(calls) > 1 else ""
        return step.model_copy(update={"verb": f"{step.verb}{more}"})
    if trajectory.replies():
        return Activity(verb="thinking about the last result")
    if any(isinstance(event, SystemPrompt) for event in trajectory):
        return Activity(verb="waiting for the model's first reply")
    is_configured = trajectory.run_configured is not None
    return Activity(
        verb="setting up the sandbox and reading the issue" if is_configured else "fetching the repository"
    )


def _action_activity(action: Action) -> Activity:
    match action:
        case RunShell(command=command):
            return Activity(verb="running", target=command)
        case SendInput():
            return Activity(verb="sending input to a running command")
        case RunPython(code=code):
            return Activity(verb="running Python:", target=code)
        case UseBrowser(code=code):
            return Activity(verb="using the browser:", target=code)
        case Browse(task=task):
            return Activity(verb="browsing:", target=task)
        case Delegate(tasks=tasks):
            return Activity(verb="delegating:", target="; ".join(tasks))
        case ViewFile(path=path):
            return Activity(verb="reading", target=path)
        case SearchCode(query=query):
            return (
                Activity(verb="searching the code for", target=query)
                if query
                else Activity(verb="exploring the code")
            )
        case SearchWeb(query=query):
            return Activity(verb="searching the web for", target=query)
        case CreateFile(path=path) | ReplaceText(path=path) | InsertText(path=path):
            return Activity(verb="writing", target=path)
        case UndoEdit(path=path):
            return Activity(verb="undoing the last edit of", target=path)
        case ReadSkill(name=name):
            return Activity(verb="reading the skill", target=name)
        case CallTool(name=name):
            return Activity(verb="using the tool", target=name)
        case Plan():
            return Activity(verb="planning")
        case Ask():
            return Activity(verb="asking a question")
        case Finish():
            return Activity(verb="finishing")
        case _:
            return Activity(verb="thinking")
