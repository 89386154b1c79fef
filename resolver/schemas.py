"""JSON schemas that others wrote, and values judged by them. Nothing is ever fetched for one.

Source: json-schema.org/draft/2020-12
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from runtime.frozen import Frozen

MAX_DEPTH = 8
MAX_PARTS = 300
"""Of a schema: its keys, lists and values."""
KEYWORDS = frozenset(
    """type title description properties required additionalProperties items enum
    minimum maximum minLength maxLength minItems maxItems""".split()
)
"""What a repository's schema may be made of: what every provider takes, and what is judged in no time. A `pattern`
may take forever, and a `$ref` may lead anywhere."""


class Form(Frozen):
    """What goes into a micro agent, and what comes out of it: two schemas of objects."""

    input: dict[str, Any]
    output: dict[str, Any]


def form(fields: Mapping[object, object]) -> Form:
    """The form that a file's front matter describes. Raises ValueError that says what is wrong with it."""
    schemas = {}
    for name in ("input", "output"):
        try:
            schemas[name] = of_object(fields.get(name))
        except ValueError as exc:
            raise ValueError(f"its {name}: {exc}") from exc
    return Form(**schemas)


def off(value: object, schema: Mapping[str, Any]) -> str | None:
    """What is wrong with a value; None: nothing, or the schema is none that anything can be judged by."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError, best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        Draft202012Validator.check_schema(schema)
        # Without a registry of our own, a reference to somewhere else would be downloaded, by the host.
        judge = Draft202012Validator(schema, registry=Registry())
        problem = best_match(judge.iter_errors(value))
    except (SchemaError, Unresolvable, RecursionError):
        return None
    if problem is None:
        return None
    where = ".".join(map(str, problem.absolute_path))
    return f"`{where}`: {problem.message[:200]}" if where else problem.message[:200]


def of_object(given: object) -> dict[str, Any]:
    """The schema of an object, as a repository's file has it. Raises ValueError that says why it is none.

    What it does not name is not allowed, unless it says so.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    if not isinstance(given, dict):
        raise ValueError("it is no JSON schema")
    _check_size(given)
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False, **given}
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        where = ".".join(map(str, exc.absolute_path)) or "it"
        raise ValueError(f"{where}: {exc.message[:200]}") from exc
    if schema["type"] != "object":
        raise ValueError("it is the schema of no object")
    if unknown := sorted(set(_keywords(schema)) - KEYWORDS):
        raise ValueError(f"`{unknown[0][:60]}` is not understood; what is: {', '.join(sorted(KEYWORDS))}")
    if missing := set(schema["required"]) - set(schema["properties"]):
        raise ValueError(f"`{min(missing)[:60]}` is required, but no property")
    return schema


def _check_size(given: object) -> None:
    """That it is JSON, and small: a few lines of YAML can stand for a tree without end."""
    parts: deque[tuple[object, int]] = deque([(given, 0)])
    seen = 0
    while parts:
        part, depth = parts.popleft()
        seen += 1
        if seen > MAX_PARTS or depth > MAX_DEPTH:
            raise ValueError(f"it has more than {MAX_PARTS} parts, or more than {MAX_DEPTH} levels")
        match part:
            case dict():
                if not all(isinstance(key, str) for key in part):
                    raise ValueError("it has keys that are no texts")
                parts += [(each, depth + 1) for each in part.values()]
            case list():
                parts += [(each, depth + 1) for each in part]
            case float() if not math.isfinite(part):
                raise ValueError("it holds a number that is none")
            case str() | int() | float() | None:
                pass
            case _:
                raise ValueError(f"it holds a {type(part).__name__}, which JSON does not know")


def _keywords(schema: object) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    yield from schema
    for inner in (*schema.get("properties", {}).values(), schema.get("items")):
        yield from _keywords(inner)
    yield from _keywords(schema.get("additionalProperties"))
