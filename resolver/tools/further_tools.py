"""The `use_tool` tool. Tools that few runs need are called through it, so their schemas are not part of each prompt.

Providers cache the tools of a request before its messages. A tool that was added during a run would make the
provider read the whole conversation again, so the list of tools stays the same from the first request to the last.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import pydantic_core

from patchwright.resolver.llm.model import RawToolCall, ToolSpec
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.tool_actions.lookup_actions import UseTool
from patchwright.runtime.observations import ActionFailure, TextResult
from patchwright.runtime.output_text import clip_line

USE_TOOL: str = UseTool.model_fields["kind"].default
_FIRST_SENTENCE_END = re.compile(r"(?<=\.)\s")


def build_use_tool_spec(further: Sequence[ToolSpec]) -> ToolSpec:
    """Returns the definition of `use_tool`, which lists these tools with the first sentence of their descriptions."""
    tools = [(spec.name, clip_line(_FIRST_SENTENCE_END.split(spec.description, 1)[0])) for spec in further]
    return ToolSpec(
        name=USE_TOOL,
        description=render_prompt("use_tool.md.j2", tools=tools),
        parameters={
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "arguments": {"type": "object"},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
    )


def unwrap_call(call: RawToolCall) -> RawToolCall:
    """Returns the call of the further tool that a call of `use_tool` contains. Returns the call itself if it has no
    arguments for another tool.
    """
    try:
        wrapped = pydantic_core.from_json(call.arguments)
    except ValueError:
        return call
    match wrapped:
        case {"name": str(name), "arguments": str(arguments)}:
            return RawToolCall(id=call.id, name=name, arguments=arguments)
        case {"name": str(name), "arguments": dict(arguments)}:
            return RawToolCall(id=call.id, name=name, arguments=json.dumps(arguments))
        case _:
            return call


def wrap_call(call: RawToolCall) -> RawToolCall:
    """Returns a call of `use_tool` that contains this call, whose arguments are a JSON object."""
    arguments: Any = {"name": call.name, "arguments": pydantic_core.from_json(call.arguments)}
    return RawToolCall(id=call.id, name=USE_TOOL, arguments=json.dumps(arguments))


def describe_tool(action: UseTool, specs: Sequence[ToolSpec]) -> TextResult | ActionFailure:
    """Returns the description and the fields of a tool."""
    spec = next((spec for spec in specs if spec.name == action.name), None)
    if spec is None:
        names = ", ".join(spec.name for spec in specs)
        return ActionFailure(
            reason="not_found", message=f"There is no tool `{action.name}`. The tools are {names}."
        )
    return TextResult(text=render_prompt("tool_fields.md.j2", tool=spec))
