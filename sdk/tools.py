"""Tools of an agent, by name: the built-in tools, typed functions, and the tools of other packages."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from patchwright.runtime.frozen_model import FrozenModel
from patchwright.sdk.plugins import load_entry_points

if TYPE_CHECKING:
    from patchwright.runtime.sandbox import Sandbox

TOOL_GROUP = "patchwright.tools"

DEFAULT_TOOLS = tuple(
    "run_shell send_input search_code view_file create_file replace_text insert_text undo_edit "
    "run_python browse plan finish".split()
)
"""The tools of the default agent. `run_python` and `browse` are left out if the workspace lacks a Python session or a
browser.
"""
BUILT_IN_TOOLS = frozenset((*DEFAULT_TOOLS, "think"))

ToolFunction = Callable[..., str | Awaitable[str]]

_functions: dict[str, ToolFunction] = {}


class Tool(FrozenModel):
    """A tool by its name: a built-in tool, a function that was registered with `tool`, or an entry point of the group
    `patchwright.tools`.
    """

    name: str


def tool(function: ToolFunction) -> ToolFunction:
    """Registers a typed function as a tool, and returns the function. Its docstring is the description that the model
    reads. It runs in this process, not in the sandbox.

    Raises ValueError if the function lacks a docstring or annotations, or if another tool has its name.
    """
    from patchwright.resolver.errors import SettingsError
    from patchwright.resolver.tools.entry_point_tools import FunctionTool

    name = function.__name__
    try:
        FunctionTool(function, cast("Sandbox", None))  # Only the description is built.
    except SettingsError as exc:
        raise ValueError(str(exc)) from exc
    if name in BUILT_IN_TOOLS:
        raise ValueError(f"there is a built-in tool {name}: give the function another name")
    if _functions.setdefault(name, function) is not function:
        raise ValueError(f"another function {name} is already a tool: give one of them another name")
    return function


def resolve_tool_name(choice: Any) -> str:
    """Returns the name of a tool that is given as a name, a Tool, or a function. Raises ValueError if the tool is
    unknown.
    """
    if callable(choice) and not isinstance(choice, FrozenModel):
        return tool(choice).__name__
    name = choice.name if isinstance(choice, Tool) else choice
    if not isinstance(name, str):
        raise ValueError(f"{choice!r} is not a tool: pass its name or a function")
    if name not in BUILT_IN_TOOLS and name not in _functions:
        installed = load_entry_points(TOOL_GROUP)
        if name not in installed:
            known = ", ".join(sorted({*BUILT_IN_TOOLS, *_functions, *installed}))
            raise ValueError(f"unknown tool {name!r}; known: {known}")
    return name


def find_function(name: str) -> ToolFunction:
    """Returns the function of a tool that is not built in."""
    function: ToolFunction = _functions[name] if name in _functions else load_entry_points(TOOL_GROUP)[name]
    return function
