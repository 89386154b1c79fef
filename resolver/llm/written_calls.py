"""Calls as text: how a model without function calling writes them, and how they are shown to it again.

`<call name="run_shell"><command>ls</command></call>`; also read, because models were trained on them, are
`<tool_call>{"name": ..., "arguments": ...}</tool_call>` and fenced blocks of code. Nothing here raises.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pydantic_core

from resolver.llm.fences import blocks
from resolver.llm.model import ToolCall, ToolSpec

RESULT = "[result of "
"""Begins the line above each result; a model that writes it itself makes its results up."""

FENCED: tuple[tuple[str, frozenset[str], tuple[str, ...]], ...] = (
    ("finish", frozenset({"finish"}), ()),
    ("run_shell", frozenset({"bash", "sh", "shell", "console"}), ("command",)),
    ("run_python", frozenset({"python", "py", "ipython"}), ("code",)),
    ("use_browser", frozenset({"browser"}), ("code",)),
)
"""What a fenced block means in a reply without other calls: tool, languages, and the field that its text is. The
first that there is counts, in this order, and one only."""

_OPENING = re.compile(r"<call\s+name\s*=\s*[\"']?([\w.-]{1,100})[\"']?\s*>|<tool_call>")
_FIELD = re.compile(r"<([A-Za-z_]\w{0,99})>")


def read(
    reply: str, tools: Sequence[ToolSpec], ids: str, *, truncated: bool = False
) -> tuple[str, list[ToolCall]]:
    """What a reply says beside its calls, and its calls, with ids that begin with `ids`."""
    specs = {tool.name: tool for tool in tools}
    said, found = _tagged(reply, specs, truncated)
    if not found:
        said, found = _fenced(reply, specs)
    calls = [ToolCall(id=f"{ids}-{n}", name=name, arguments=args) for n, (name, args) in enumerate(found)]
    return said.strip(), calls


def write(call: ToolCall, tools: Mapping[str, ToolSpec]) -> str:
    """A call as `read` reads it: as tags, or as JSON where a value would break the tags."""
    arguments = _json(call.arguments)
    spec = tools.get(call.name)
    if spec is not None and isinstance(arguments, dict):
        fields = [_field(name, value, spec) for name, value in arguments.items()]
        if None not in fields:
            return "\n".join([f'<call name="{call.name}">', *map(str, fields), "</call>"])
    whole = {"name": call.name, "arguments": arguments if isinstance(arguments, dict) else call.arguments}
    return f"<tool_call>\n{json.dumps(whole).replace('<', chr(92) + 'u003c')}\n</tool_call>"


def _field(name: str, value: object, spec: ToolSpec) -> str | None:
    """None: it cannot be written as a tag and be read as the same."""
    text = value if isinstance(value, str) else json.dumps(value)
    safe = not _OPENING.search(text) and "</call>" not in text and f"</{name}>" not in text
    known = _FIELD.fullmatch(f"<{name}>") and isinstance(value, str) == _is_text(spec, name)
    return f"<{name}>\n{text}\n</{name}>" if known and safe and f"\n{RESULT}" not in f"\n{text}" else None


def _tagged(reply: str, specs: Mapping[str, ToolSpec], truncated: bool) -> tuple[str, list[tuple[str, str]]]:
    said: list[str] = []
    found: list[tuple[str, str]] = []
    at = 0
    while opening := _OPENING.search(reply, at):
        said.append(_before_results(reply[at : opening.start()], bool(found)))
        if found and RESULT in reply[at : opening.start()]:
            return "".join(said), found  # what follows answers results that it made up
        name = opening[1]
        closing = "</call>" if name else "</tool_call>"
        end = reply.find(closing, opening.end())
        body = reply[opening.end() : end if end >= 0 else len(reply)]
        if end < 0 and truncated:
            found.append((name or "unfinished", body))  # never run by half
        elif name:
            found.append((name, _arguments(body, specs.get(name))))
        elif (call := _json_call(body)) is not None:
            found.append(call)
        else:
            found.append(("tool_call", body))
        at = end + len(closing) if end >= 0 else len(reply)
    said.append(_before_results(reply[at:], bool(found)))
    return "".join(said), found


def _before_results(text: str, after_a_call: bool) -> str:
    return text.partition(RESULT)[0] if after_a_call else text


def _fenced(reply: str, specs: Mapping[str, ToolSpec]) -> tuple[str, list[tuple[str, str]]]:
    there = blocks(reply)
    for block in there:
        call = _json_call(block.text) if block.language in ("json", "tool", "tool_call", "") else None
        if call is not None and call[0] in specs:
            return reply[: block.start] + reply[block.end :], [call]
    for name, languages, fields in FENCED:
        of_it = [block for block in there if block.language in languages]
        if not of_it or name not in specs:
            continue
        first = of_it[0]
        arguments = json.dumps({fields[0]: first.text}) if fields else _arguments(first.text, specs[name])
        return reply[: first.start] + reply[first.end :], [(name, arguments)]
    return reply, []


def _json_call(text: str) -> tuple[str, str] | None:
    match _json(text.strip()):
        case {"name": str(name), "arguments": str(arguments)}:
            return name, arguments
        case {"name": str(name), "arguments": dict(arguments)} | {
            "name": str(name),
            "parameters": dict(arguments),
        }:
            return name, json.dumps(arguments)
        case _:
            return None


def _arguments(body: str, spec: ToolSpec | None) -> str:
    """The fields of a call as JSON text; the body itself when it makes no sense, which is then told."""
    fields: dict[str, Any] = {}
    at = 0
    while opening := _FIELD.search(body, at):
        name = opening[1]
        end = body.find(f"</{name}>", opening.end())
        value = body[opening.end() : end if end >= 0 else len(body)]
        fields[name] = _value(value.removeprefix("\n").removesuffix("\n"), name, spec)
        at = end + len(name) + 3 if end >= 0 else len(body)
    bare = body.strip()
    if fields or not bare:
        return json.dumps(fields)
    needed = spec.parameters.get("required", []) if spec else []
    if isinstance(_json(bare), dict) or len(needed) != 1:
        return bare
    return json.dumps({needed[0]: _value(body.strip("\n"), needed[0], spec)})


def _value(text: str, name: str, spec: ToolSpec | None) -> Any:
    if spec is None or _is_text(spec, name):
        return text
    value = _json(text.strip())
    return text if value is _NOTHING else value


def _is_text(spec: ToolSpec, name: str) -> bool:
    field = spec.parameters.get("properties", {}).get(name, {})
    return bool(field.get("type", "string") == "string")


_NOTHING = object()


def _json(text: str) -> Any:
    try:
        return pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError:
        return _NOTHING
