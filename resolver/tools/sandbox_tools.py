"""The tools that act in the sandbox."""

from collections.abc import Collection

from patchwright.resolver.actions import TOOL_ACTIONS, AnyObservation
from patchwright.resolver.tools.tool import ActionTool, Tool
from patchwright.runtime.features import SandboxFeature
from patchwright.runtime.observations import CellResult, EditResult, Observation, ShellResult
from patchwright.runtime.sandbox import Sandbox, SandboxTool
from patchwright.runtime.tool_action import RecordedTool

EDIT_TOOLS = frozenset(action.model_fields["kind"].default for action in TOOL_ACTIONS if action.is_edit)
"""Names of the tools that edit files."""


def build_sandbox_tools(sandbox: Sandbox, features: Collection[SandboxFeature] = ()) -> tuple[Tool, ...]:
    """Returns the tools that need only the sandbox and these of its features."""

    async def run(action: SandboxTool) -> Observation:
        return await action.run(sandbox)

    return tuple(
        ActionTool(action, run if issubclass(action, SandboxTool) else sandbox.act)
        for action in TOOL_ACTIONS
        if issubclass(action, SandboxTool | RecordedTool) and action.required_feature in (None, *features)
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
