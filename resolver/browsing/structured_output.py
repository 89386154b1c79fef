"""Validates answers against an output schema. All functions are pure."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pydantic_core

from patchwright.resolver.tool_actions.subagent_actions import OutputField

TYPE_DESCRIPTIONS = {
    "text": "a text",
    "number": "a number",
    "boolean": "true or false",
    "list": "a list of texts",
}
_EXAMPLE_VALUES: dict[str, object] = {"text": "...", "number": 0, "boolean": True, "list": ["..."]}
_CODE_BLOCK = re.compile(r"\A\s*```[a-z]*\s*\n(?P<inside>.*?)\n?\s*```\s*\Z", re.DOTALL)
# Numbers with thousands separators, such as 1,279.49.
_GROUPED_NUMBER = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")


class OutputSchemaError(Exception):
    """The text does not match the output schema; the message says why."""


def parse_output(text: str, fields: Sequence[OutputField]) -> str:
    """Returns the answer as a JSON object with the fields in order. Raises OutputSchemaError.

    If the schema has only one field, the text may contain only the value of this field, without a JSON
    object.
    """
    text = code_block["inside"] if (code_block := _CODE_BLOCK.match(text)) else text.strip()
    try:
        value = pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError as exc:
        if len(fields) > 1:
            raise OutputSchemaError(f"it is not valid JSON: {exc}") from exc
        value = text
    if len(fields) == 1 and not (isinstance(value, dict) and fields[0].name in value):
        value = {fields[0].name: _convert_bare_value(value, text, fields[0])}
    if not isinstance(value, dict):
        raise OutputSchemaError("it is JSON, but not an object")
    if problems := list(_find_problems(value, fields)):
        raise OutputSchemaError("; ".join(problems[:5]))
    return json.dumps({field.name: value[field.name] for field in fields}, ensure_ascii=False)


def build_example(fields: Sequence[OutputField]) -> str:
    """Returns an example answer with placeholder values."""
    return json.dumps({field.name: _EXAMPLE_VALUES[field.type] for field in fields})


def _convert_bare_value(value: object, text: str, field: OutputField) -> object:
    """Converts an answer that consists of a bare value, without a field name. For example, the answer
    `279.49` stays a string if the type of the field is text.
    """
    if value is None or (isinstance(value, str) and field.type == "text"):
        return value
    if field.type == "text":
        return text
    if field.type == "number" and _GROUPED_NUMBER.fullmatch(text):
        return float(text.replace(",", ""))
    return value


def _find_problems(value: dict[str, Any], fields: Sequence[OutputField]) -> list[str]:
    names = [field.name for field in fields]
    problems = [f"`{field.name}` is missing" for field in fields if field.name not in value]
    problems += [f"`{name[:60]}` is not a requested field" for name in value if name not in names]
    for field in fields:
        field_value = value.get(field.name)
        if field_value is not None and not _has_type(field_value, field):
            problems.append(f"`{field.name}` must be {TYPE_DESCRIPTIONS[field.type]}, or null")
    return problems


def _has_type(value: object, field: OutputField) -> bool:
    match field.type:
        case "text":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "list":
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
