"""Validates JSON values against schemas from untrusted sources. This module never downloads anything.

Source: json-schema.org/draft/2020-12
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from patchwright.runtime.frozen_model import FrozenModel

MAX_DEPTH = 8
MAX_NODES = 300
"""Maximum total number of keys, lists and values in a schema."""
KEYWORDS = frozenset(
    """type title description properties required additionalProperties items enum
    minimum maximum minLength maxLength minItems maxItems""".split()
)
"""Keywords that a repository's schema may use. Every provider accepts these keywords, and values can be
validated against them quickly. `pattern` is excluded because a match can take very long, and `$ref` because a
reference can point anywhere.
"""


class AgentSchema(FrozenModel):
    """The input and output schemas of a micro agent. Each schema describes a JSON object."""

    input: dict[str, Any]
    output: dict[str, Any]


def parse_agent_schema(fields: Mapping[object, object]) -> AgentSchema:
    """Parses the schemas in a file's front matter. If they are invalid, raises ValueError with the reason."""
    schemas = {}
    for name in ("input", "output"):
        try:
            schemas[name] = parse_object_schema(fields.get(name))
        except ValueError as exc:
            raise ValueError(f"its {name}: {exc}") from exc
    return AgentSchema(**schemas)


def validation_error(value: object, schema: Mapping[str, Any]) -> str | None:
    """Returns why a value does not match a schema. Returns None if the value matches or the schema itself is
    invalid.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError, best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        Draft202012Validator.check_schema(schema)
        # Without an empty registry, the host would download the schemas that a reference points to.
        validator = Draft202012Validator(schema, registry=Registry())
        problem = best_match(validator.iter_errors(value))
    except (SchemaError, Unresolvable, RecursionError):
        return None
    if problem is None:
        return None
    path = ".".join(map(str, problem.absolute_path))
    return f"`{path}`: {problem.message[:200]}" if path else problem.message[:200]


def parse_object_schema(value: object) -> dict[str, Any]:
    """Parses a repository's schema, which must describe an object. If the schema is invalid, raises
    ValueError with the reason.

    Additional properties are only allowed if the schema says so.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    if not isinstance(value, dict):
        raise ValueError("it is not a JSON schema")
    _check_size(value)
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False, **value}
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        path = ".".join(map(str, exc.absolute_path)) or "it"
        raise ValueError(f"{path}: {exc.message[:200]}") from exc
    if schema["type"] != "object":
        raise ValueError("it does not describe an object")
    if unknown := sorted(set(_check_keywords(schema)) - KEYWORDS):
        raise ValueError(
            f"`{unknown[0][:60]}` is not supported. Supported keywords: {', '.join(sorted(KEYWORDS))}"
        )
    if missing := set(schema["required"]) - set(schema["properties"]):
        raise ValueError(f"`{min(missing)[:60]}` is required, but it is not a property")
    return schema


def _check_size(schema: object) -> None:
    """Raises ValueError if the schema cannot be written as JSON or is too large. The size must be checked
    because aliases let a few lines of YAML expand to an enormous tree.
    """
    parts: deque[tuple[object, int]] = deque([(schema, 0)])
    node_count = 0
    while parts:
        part, depth = parts.popleft()
        node_count += 1
        if node_count > MAX_NODES or depth > MAX_DEPTH:
            raise ValueError(f"it has more than {MAX_NODES} parts, or more than {MAX_DEPTH} levels")
        match part:
            case dict():
                if not all(isinstance(key, str) for key in part):
                    raise ValueError("it has keys that are not strings")
                parts += [(child, depth + 1) for child in part.values()]
            case list():
                parts += [(child, depth + 1) for child in part]
            case float() if not math.isfinite(part):
                raise ValueError("it contains a number that is not finite")
            case str() | int() | float() | None:
                pass
            case _:
                raise ValueError(f"it contains a {type(part).__name__}, which JSON does not support")


def _check_keywords(schema: object) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    yield from schema
    for inner in (*schema.get("properties", {}).values(), schema.get("items")):
        yield from _check_keywords(inner)
    yield from _check_keywords(schema.get("additionalProperties"))
