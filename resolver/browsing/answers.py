"""Answers in the form that was asked for: read out of a model's text, or what is wrong with them. Pure."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pydantic_core

from resolver.actions import AnswerField

KINDS = {
    "text": "a text",
    "number": "a number",
    "boolean": "true or false",
    "list": "a list of texts",
}
_EXAMPLES: dict[str, object] = {"text": "...", "number": 0, "boolean": True, "list": ["..."]}
_FENCED = re.compile(r"\A\s*```[a-z]*\s*\n(?P<inside>.*?)\n?\s*```\s*\Z", re.DOTALL)
_GROUPED = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")  # 1,279.49, as people write it


class OffForm(Exception):
    """A text is not in the form that was asked for; says what is wrong with it."""


def formed(text: str, fields: Sequence[AnswerField]) -> str:
    """The answer as a JSON object with the fields as its keys, in their order. Raises OffForm.

    One field alone may be answered by its bare value.
    """
    text = fenced["inside"] if (fenced := _FENCED.match(text)) else text.strip()
    try:
        value = pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError as exc:
        if len(fields) > 1:
            raise OffForm(f"it is no JSON: {exc}") from exc
        value = text
    if len(fields) == 1 and not (isinstance(value, dict) and fields[0].name in value):
        value = {fields[0].name: _bare(value, text, fields[0])}
    if not isinstance(value, dict):
        raise OffForm("it is JSON, but no object")
    if problems := list(_problems(value, fields)):
        raise OffForm("; ".join(problems[:5]))
    return json.dumps({field.name: value[field.name] for field in fields}, ensure_ascii=False)


def example(fields: Sequence[AnswerField]) -> str:
    """An answer in this form, with nothing in it."""
    return json.dumps({field.name: _EXAMPLES[field.holds] for field in fields})


def _bare(value: object, text: str, field: AnswerField) -> object:
    """What a text without its field's name says: `279.49` is a text where one was asked for."""
    if value is None or (isinstance(value, str) and field.holds == "text"):
        return value
    if field.holds == "text":
        return text
    if field.holds == "number" and _GROUPED.fullmatch(text):
        return float(text.replace(",", ""))
    return value


def _problems(value: dict[str, Any], fields: Sequence[AnswerField]) -> list[str]:
    known = [field.name for field in fields]
    problems = [f"`{field.name}` is missing" for field in fields if field.name not in value]
    problems += [f"`{name[:60]}` was not asked for" for name in value if name not in known]
    for field in fields:
        given = value.get(field.name)
        if given is not None and not _holds(given, field):
            problems.append(f"`{field.name}` must be {KINDS[field.holds]}, or null")
    return problems


def _holds(given: object, field: AnswerField) -> bool:
    match field.holds:
        case "text":
            return isinstance(given, str)
        case "number":
            return isinstance(given, int | float) and not isinstance(given, bool)
        case "boolean":
            return isinstance(given, bool)
        case "list":
            return isinstance(given, list) and all(isinstance(each, str) for each in given)
