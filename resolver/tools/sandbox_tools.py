"""The tools that act in the sandbox."""

from collections.abc import Collection

from patchwright.resolver.actions import AnyObservation
from patchwright.resolver.tools.tool import ActionTool, Tool
from patchwright.runtime.actions import (
    CreateFile,
    InsertText,
    ReplaceText,
    RunPython,
    RunShell,
    SearchCode,
    SendInput,
    UndoEdit,
    ViewFile,
)
from patchwright.runtime.features import SandboxFeature
from patchwright.runtime.observations import CellResult, EditResult, ShellResult
from patchwright.runtime.sandbox import Sandbox

EDIT_ACTIONS = (CreateFile, ReplaceText, InsertText, UndoEdit)
MUTATING_ACTIONS = (RunShell, SendInput, RunPython, *EDIT_ACTIONS)
"""Actions that may change the work tree."""
RECOVERABLE_ACTIONS = (*MUTATING_ACTIONS, SearchCode, ViewFile)
"""Actions that the sandbox records. After an interruption, the sandbox can still report the state and result
of such an action.
"""


def build_sandbox_tools(sandbox: Sandbox, features: Collection[SandboxFeature] = ()) -> tuple[Tool, ...]:
    """Returns the shell, search, view and edit tools of a sandbox, and Python if the kernel is available."""
    run_actions = (RunShell, SendInput, RunPython) if "kernel" in features else (RunShell, SendInput)
    return tuple(
        ActionTool(action, sandbox.act) for action in (*run_actions, SearchCode, ViewFile, *EDIT_ACTIONS)
    )


def add_note(observation: AnyObservation, note: str) -> AnyObservation:
    """Appends a remark to the result of a command, a cell or an edit, and keeps the rest of the result."""
    match observation:
        case ShellResult() | CellResult():
            return observation.model_copy(update={"note": "; ".join(filter(None, (observation.note, note)))})
        case EditResult(warning=warning):
            return observation.model_copy(update={"warning": "; ".join(filter(None, (warning, note)))})
        case _:
            return observation
