"""The union types of all actions and observations. To register a tool, add its action to `Action`."""

from decimal import Decimal
from typing import Annotated, Literal, get_args

from pydantic import Field

from patchwright.resolver.domain import Usage
from patchwright.resolver.tool_actions.control_actions import Ask, Finish, Plan, ProposePlan, Report, Think
from patchwright.resolver.tool_actions.lookup_actions import ReadSkill, SearchWeb, UseTool
from patchwright.resolver.tool_actions.subagent_actions import Browse, Delegate
from patchwright.resolver.tool_actions.unchecked_actions import CallTool, MalformedCall
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
from patchwright.runtime.observations import ImageData, Observation
from patchwright.runtime.tool_action import ToolAction

Action = Annotated[
    RunShell
    | SendInput
    | RunPython
    | SearchCode
    | ViewFile
    | CreateFile
    | ReplaceText
    | InsertText
    | UndoEdit
    | UseBrowser
    | Browse
    | SearchWeb
    | Delegate
    | Report
    | Plan
    | Ask
    | ProposePlan
    | ReadSkill
    | UseTool
    | CallTool
    | Think
    | Finish
    | MalformedCall,
    Field(discriminator="kind"),
]
"""A call of a tool. The model sees the sandbox's tools in this order."""
TOOL_ACTIONS: tuple[type[ToolAction], ...] = get_args(get_args(Action)[0])


class ExternalToolResult(FrozenModel):
    """The result of an external tool, or of an external service that a built-in tool used."""

    kind: Literal["external_tool_result"] = "external_tool_result"
    text: str
    ok: bool = True
    """False if the tool reported a failure."""
    images: tuple[ImageData, ...] = Field(default=(), max_length=4)
    usd: Decimal = Decimal(0)
    """Cost of the call, as far as the service reports it."""


class SubagentResult(FrozenModel):
    """The result of a subagent, which worked on its own log."""

    kind: Literal["subagent_result"] = "subagent_result"
    run: str
    """Id of the subagent's log."""
    status: Literal["answered", "infeasible", "unfinished"]
    text: str
    """The answer, the reason why there is none, or how the subagent stopped."""
    usage: Usage
    """The subagent's usage. It is also part of the usage of the run that started the subagent."""
    schema_error: str = ""
    """Why the answer does not match the requested format; empty if it matches or if no format was requested."""
    guessed_urls: tuple[str, ...] = ()
    """URLs that the subagent guessed and opened. It had not seen them in any text before."""
    task: str = ""
    """The task; set if several subagents report together."""
    results: tuple["SubagentResult", ...] = ()
    """The individual results if several subagents ran together. The other fields then contain totals."""


AnyObservation = Annotated[Observation | ExternalToolResult | SubagentResult, Field(discriminator="kind")]
"""The result of an action, as the log stores it."""
