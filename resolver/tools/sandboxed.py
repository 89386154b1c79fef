"""The tools that act in the sandbox."""

from collections.abc import Collection

from resolver.tools.tool import ActionTool, Tool
from runtime.actions import (
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
from runtime.plugins import Plugin
from runtime.sandbox import Sandbox

EDITS = (CreateFile, ReplaceText, InsertText, UndoEdit)
CHANGES = (RunShell, SendInput, RunPython, *EDITS)
"""Actions after which the work tree may be another."""
SANDBOXED = (*CHANGES, SearchCode, ViewFile)
"""Actions of which the sandbox knows whether it was asked for them, and what they came to."""


def sandbox_tools(sandbox: Sandbox, plugins: Collection[Plugin] = ()) -> tuple[Tool, ...]:
    """Shell, search, view and edit in this sandbox, and Python where it has the kernel."""
    running = (RunShell, SendInput, RunPython) if "kernel" in plugins else (RunShell, SendInput)
    return tuple(ActionTool(action, sandbox.act) for action in (*running, SearchCode, ViewFile, *EDITS))
