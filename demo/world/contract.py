"""Judges every request and every answer by GitHub's own description of its API (see `openapi.md`)."""

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

# Answers that GitHub may give to any request, though not every operation lists them.
ANYWHERE = {"401", "403", "404", "422", "429", "500", "502", "503"}


class Contract:
    """Collects what was off the description; without `jsonschema` installed it sees names, not shapes."""

    def __init__(self) -> None:
        self.violations: list[str] = []

    def check_request(
        self, method: str, template: str, path: Mapping[str, str], query: Mapping[str, str], body: object
    ) -> None:
        where = f"{method} {template}"
        operation = _operation(method, template)
        if template == "/graphql":
            return  # described elsewhere; its handler takes only what it knows
        if operation is None:
            self.violations.append(f"{where}: the description has no such operation")
            return
        parameters = [_resolved(parameter) for parameter in operation.get("parameters", ())]
        declared = {parameter["name"]: parameter for parameter in parameters if parameter["in"] == "query"}
        for name in query.keys() - declared.keys():
            self.violations.append(f"{where}: there is no query parameter {name!r}")
        for parameter in parameters:
            given = (path if parameter["in"] == "path" else query).get(parameter["name"])
            if given is not None:
                self._judge(
                    f"{where}: {parameter['name']}", parameter["schema"], _typed(given, parameter["schema"])
                )
        wanted = operation.get("requestBody")
        if wanted is None:
            if body is not None:
                self.violations.append(f"{where}: it takes no body")
            return
        if body is None:
            if wanted.get("required"):
                self.violations.append(f"{where}: the body is missing")
            return
        schema = wanted["content"]["application/json"]["schema"]
        self._judge(f"{where}: body", schema, body)
        known = _properties(schema)
        if known and isinstance(body, dict):
            for name in body.keys() - known:
                self.violations.append(f"{where}: the body has no field {name!r}")

    def check_answer(self, method: str, template: str, status: int, body: object) -> None:
        """`body` is parsed JSON, None where there is none, or text such as a diff: nothing describes that."""
        operation = _operation(method, template)
        if operation is None or isinstance(body, str):
            return
        where = f"{method} {template} -> {status}"
        response = operation["responses"].get(str(status))
        if response is None:
            if str(status) not in ANYWHERE:
                self.violations.append(f"{where}: the description has no such answer")
            return
        content = _resolved(response).get("content", {}).get("application/json")
        if content is not None:
            self._judge(where, content["schema"], body)
        elif body is not None:
            self.violations.append(f"{where}: it has no body")

    def check_hook(self, event: str, action: str, payload: object) -> None:
        """Only events that the description has kept are judged."""
        hook = _description()["x-webhooks"].get(f"{event}-{action}".replace("_", "-"))
        if hook is not None:
            schema = hook["post"]["requestBody"]["content"]["application/json"]["schema"]
            self._judge(f"webhook {event} {action}", schema, payload)

    def _judge(self, where: str, schema: Mapping[str, Any], value: object) -> None:
        self.violations += [f"{where}: {fault}" for fault in _faults(schema, value)]


def _faults(schema: Mapping[str, Any], value: object) -> list[str]:
    try:
        import jsonschema
    except ModuleNotFoundError:  # the demo runs without it; the tests' extra has it
        return []
    judge = jsonschema.Draft202012Validator({**schema, "components": _description()["components"]})
    return [
        f"{'.'.join(map(str, fault.absolute_path))} {fault.message[:300]}"
        for fault in judge.iter_errors(value)
    ]


@functools.cache
def _description() -> dict[str, Any]:
    text = resources.files("demo.world").joinpath("openapi.json").read_text("utf-8")
    description: dict[str, Any] = json.loads(text)
    return description


def _operation(method: str, template: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = _description()["paths"].get(template, {}).get(method.lower())
    return found


def _resolved(value: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in value:
        return value
    found: Any = _description()
    for part in value["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return _resolved(found)


def _properties(schema: dict[str, Any]) -> set[str]:
    """Names that a body may have; empty when the schema does not say."""
    schema = _resolved(schema)
    names = set(schema.get("properties", ()))
    for part in (*schema.get("oneOf", ()), *schema.get("anyOf", ()), *schema.get("allOf", ())):
        names |= _properties(part)
    return names


def _typed(text: str, schema: Mapping[str, Any]) -> object:
    """A parameter as the type that its schema names: in a URL everything is text."""
    match schema.get("type"):
        case "integer" if text.removeprefix("-").isdigit():
            return int(text)
        case "boolean" if text in ("true", "false"):
            return text == "true"
        case _:
            return text
