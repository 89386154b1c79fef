"""Reads and writes tool calls as text, for models without function calling.

The format is `<call name="run_shell"><command>ls</command></call>`. Two more formats are read, because models
were trained on these: `<tool_call>{"name": ..., "arguments": ...}</tool_call>` and fenced code blocks. No
function of this module raises an exception.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pydantic_core

from patchwright.resolver.llm.code_blocks import parse_code_blocks
from patchwright.resolver.llm.model import RawToolCall, ToolSpec

RESULT_PREFIX = "[result of "
"""Prefix of the line above each tool result. If a model writes this prefix in its reply, the text after the
prefix is a made-up result.
"""

CODE_BLOCK_TOOLS: tuple[tuple[str, frozenset[str], tuple[str, ...]], ...] = (
    ("finish", frozenset({"finish"}), ()),
    ("run_shell", frozenset({"bash", "sh", "shell", "console"}), ("command",)),
    ("run_python", frozenset({"python", "py", "ipython"}), ("code",)),
    ("use_browser", frozenset({"browser"}), ("code",)),
)
"""Fenced blocks that are read as tool calls, if a reply contains no other calls.

Each entry contains the tool, the languages of the blocks that call this tool, and the argument that gets the
block's text. Only the first matching entry is used.
"""

_OPENING_TAG = re.compile(r"<call\s+name\s*=\s*[\"']?([\w.-]{1,100})[\"']?\s*>|<tool_call>")
_FURTHER_TOOL = re.compile(r"^- ([\w.-]+): ", re.MULTILINE)  # as templates/prompts/use_tool.md.j2 lists it
_FIELD_TAG = re.compile(r"<([A-Za-z_]\w{0,99})>")


def parse_text_calls(
    reply: str, tools: Sequence[ToolSpec], id_prefix: str, *, truncated: bool = False
) -> tuple[str, list[RawToolCall]]:
    """Separates the tool calls from the rest of a reply. Returns the remaining text and the calls.

    The ids of the calls begin with `id_prefix`.
    """
    specs = {tool.name: tool for tool in tools}
    text, found = _parse_tagged_calls(reply, specs, truncated)
    if not found:
        text, found = _parse_code_block_calls(reply, specs)
    calls = [
        RawToolCall(id=f"{id_prefix}-{n}", name=name, arguments=args) for n, (name, args) in enumerate(found)
    ]
    return text.strip(), calls


def format_text_call(call: RawToolCall, tools: Mapping[str, ToolSpec]) -> str:
    """Formats a call so that `parse_text_calls` can read it: as tags, or as JSON if a value would break the
    tags.
    """
    arguments = _parse_json(call.arguments)
    spec = tools.get(call.name)
    if spec is not None and isinstance(arguments, dict):
        fields = [_format_field(name, value, spec) for name, value in arguments.items()]
        if None not in fields:
            return "\n".join([f'<call name="{call.name}">', *map(str, fields), "</call>"])
    payload = {"name": call.name, "arguments": arguments if isinstance(arguments, dict) else call.arguments}
    return f"<tool_call>\n{json.dumps(payload).replace('<', chr(92) + 'u003c')}\n</tool_call>"


def _format_field(name: str, value: object, spec: ToolSpec) -> str | None:
    """Returns the argument as a tag, or None if parsing that tag would result in another value."""
    text = value if isinstance(value, str) else json.dumps(value)
    is_safe = not _OPENING_TAG.search(text) and "</call>" not in text and f"</{name}>" not in text
    is_readable = _FIELD_TAG.fullmatch(f"<{name}>") and isinstance(value, str) == _is_text_field(spec, name)
    return (
        f"<{name}>\n{text}\n</{name}>"
        if is_readable and is_safe and f"\n{RESULT_PREFIX}" not in f"\n{text}"
        else None
    )


def _parse_tagged_calls(
    reply: str, specs: Mapping[str, ToolSpec], truncated: bool
) -> tuple[str, list[tuple[str, str]]]:
    text_parts: list[str] = []
    found: list[tuple[str, str]] = []
    position = 0
    while opening := _OPENING_TAG.search(reply, position):
        text_parts.append(_strip_made_up_results(reply[position : opening.start()], bool(found)))
        if found and RESULT_PREFIX in reply[position : opening.start()]:
            return "".join(text_parts), found  # calls after made-up results are not executed
        name = opening[1]
        closing = "</call>" if name else "</tool_call>"
        end = reply.find(closing, opening.end())
        body = reply[opening.end() : end if end >= 0 else len(reply)]
        if end < 0 and truncated:
            found.append((name or "unfinished", body))  # never execute an incomplete call
        elif name:
            found.append((name, _parse_arguments(body, specs.get(name))))
        elif (call := _parse_json_call(body)) is not None:
            found.append(call)
        else:
            found.append(("tool_call", body))
        position = end + len(closing) if end >= 0 else len(reply)
    text_parts.append(_strip_made_up_results(reply[position:], bool(found)))
    return "".join(text_parts), found


def _strip_made_up_results(text: str, after_a_call: bool) -> str:
    return text.partition(RESULT_PREFIX)[0] if after_a_call else text


def _parse_code_block_calls(reply: str, specs: Mapping[str, ToolSpec]) -> tuple[str, list[tuple[str, str]]]:
    blocks = parse_code_blocks(reply)
    names = {*specs, *_list_further_tools(specs)}
    for block in blocks:
        call = _parse_json_call(block.text) if block.language in ("json", "tool", "tool_call", "") else None
        if call is not None and call[0] in names:
            return reply[: block.start] + reply[block.end :], [call]
    for name, languages, fields in CODE_BLOCK_TOOLS:
        matching = [block for block in blocks if block.language in languages]
        if not matching or name not in names:
            continue
        first = matching[0]
        arguments = (
            json.dumps({fields[0]: first.text}) if fields else _parse_arguments(first.text, specs.get(name))
        )
        return reply[: first.start] + reply[first.end :], [(name, arguments)]
    return reply, []


def _list_further_tools(specs: Mapping[str, ToolSpec]) -> list[str]:
    """Returns the tools that are called through `use_tool`. The registry also accepts direct calls of these tools."""
    spec = specs.get("use_tool")
    return _FURTHER_TOOL.findall(spec.description) if spec else []


def _parse_json_call(text: str) -> tuple[str, str] | None:
    match _parse_json(text.strip()):
        case {"name": str(name), "arguments": str(arguments)}:
            return name, arguments
        case {"name": str(name), "arguments": dict(arguments)} | {
            "name": str(name),
            "parameters": dict(arguments),
        }:
            return name, json.dumps(arguments)
        case _:
            return None


def _parse_arguments(body: str, spec: ToolSpec | None) -> str:
    """Returns the arguments of a call as JSON text. If the body cannot be parsed, returns the body unchanged,
    so that validation reports the error.
    """
    fields: dict[str, Any] = {}
    position = 0
    while opening := _FIELD_TAG.search(body, position):
        name = opening[1]
        end = body.find(f"</{name}>", opening.end())
        value = body[opening.end() : end if end >= 0 else len(body)]
        fields[name] = _parse_value(value.removeprefix("\n").removesuffix("\n"), name, spec)
        position = end + len(name) + 3 if end >= 0 else len(body)
    stripped = body.strip()
    if fields or not stripped:
        return json.dumps(fields)
    required = spec.parameters.get("required", []) if spec else []
    if isinstance(_parse_json(stripped), dict) or len(required) != 1:
        return stripped
    return json.dumps({required[0]: _parse_value(body.strip("\n"), required[0], spec)})


def _parse_value(text: str, name: str, spec: ToolSpec | None) -> Any:
    if spec is None or _is_text_field(spec, name):
        return text
    value = _parse_json(text.strip())
    return text if value is _INVALID else value


def _is_text_field(spec: ToolSpec, name: str) -> bool:
    field = spec.parameters.get("properties", {}).get(name, {})
    return bool(field.get("type", "string") == "string")


_INVALID = object()


def _parse_json(text: str) -> Any:
    try:
        return pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError:
        return _INVALID
