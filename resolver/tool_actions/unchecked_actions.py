"""The calls whose arguments no class describes: calls of external tools, and malformed calls."""

import json
from typing import Any, ClassVar, Literal

from patchwright.runtime.output_text import clip_line
from patchwright.runtime.tool_action import CallDescription, CallText, ToolAction


class MalformedCall(ToolAction):
    """An invalid tool call: unknown tool, broken JSON, or arguments that do not match the schema. It is never
    executed.
    """

    kind: Literal["malformed_call"] = "malformed_call"
    name: str
    arguments: str
    """The arguments as the model sent them, truncated."""
    problem: str
    is_unknown_tool: bool = False
    """True if there is no tool with this name."""

    def describe(self) -> CallDescription:
        name = clip_line(self.name, 80)
        title, heading = (
            (
                f"call of {self.name}, but there is no such tool",
                f"a call of {name}, but there is no such tool",
            )
            if self.is_unknown_tool
            else (
                f"call of {self.name} that could not be parsed: {self.problem}",
                f"a call of {name} that could not be parsed",
            )
        )
        return CallDescription(
            title=title,
            heading=heading,
            label=self.name,
            texts=(CallText("arguments", self.arguments, is_code=True),) if self.arguments.strip() else (),
        )


class CallTool(ToolAction):
    """A call of an external tool: from an MCP server or another package, or of a micro agent."""

    may_change_files: ClassVar[bool] = True

    kind: Literal["call_tool"] = "call_tool"
    name: str
    arguments: dict[str, Any]

    def describe(self) -> CallDescription:
        arguments = json.dumps(self.arguments, indent=2, ensure_ascii=False)
        return CallDescription(
            title=f"{self.name} {json.dumps(self.arguments)}",
            verb="using the tool",
            target=self.name,
            texts=(CallText("arguments", arguments, is_code=True),),
            risk_reason="the call acts outside the work tree",
        )
