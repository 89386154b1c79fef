"""The tools that act in the sandbox."""

from resolver.tools.tool import ActionTool, Tool
from runtime.actions import CreateFile, InsertText, ReplaceText, RunShell, SendInput, UndoEdit, ViewFile
from runtime.sandbox import Sandbox

EDITS = (CreateFile, ReplaceText, InsertText, UndoEdit)
CHANGES = (RunShell, SendInput, *EDITS)
"""Actions after which the work tree may be another."""


def sandbox_tools(sandbox: Sandbox) -> tuple[Tool, ...]:
    """Shell, view and edit in this sandbox."""
    return tuple(ActionTool(action, sandbox.act) for action in (RunShell, SendInput, ViewFile, *EDITS))
