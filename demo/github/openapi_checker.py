"""Checks every request and response against GitHub's own description of its API (see `openapi.md`)."""

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

# GitHub may give these statuses to any request, though not every operation lists them.
COMMON_STATUSES = {"401", "403", "404", "422", "429", "500", "502", "503"}


class SpecViolation(AssertionError):
    """A request or response did not conform to GitHub's API description."""


class OpenApiChecker:
    """Collects violations of the API description. If `jsonschema` is not installed, it checks only the names of
    fields.
    """

    def __init__(self) -> None:
        self.violations: list[str] = []

    def check_request(
        self, method: str, template: str, path: Mapping[str, str], query: Mapping[str, str], body: object
    ) -> None:
        where = f"{method} {template}"
        operation = _find_operation(method, template)
        if template == "/graphql":
            return  # GraphQL has its own schema, which its handler checks
        if operation is None:
            self.violations.append(f"{where}: GitHub's API has no such operation")
            return
        parameters = [_resolve_reference(parameter) for parameter in operation.get("parameters", ())]
        declared = {parameter["name"]: parameter for parameter in parameters if parameter["in"] == "query"}
        for name in query.keys() - declared.keys():
            self.violations.append(f"{where}: there is no query parameter {name!r}")
        for parameter in parameters:
            given = (path if parameter["in"] == "path" else query).get(parameter["name"])
            if given is not None:
                self._validate(
                    f"{where}: {parameter['name']}",
                    parameter["schema"],
                    _parse_parameter(given, parameter["schema"]),
                )
        wanted = operation.get("requestBody")
        if wanted is None:
            if body is not None:
                self.violations.append(f"{where}: the operation accepts no body")
            return
        if body is None:
            if wanted.get("required"):
                self.violations.append(f"{where}: the body is missing")
            return
        schema = wanted["content"]["application/json"]["schema"]
        self._validate(f"{where}: body", schema, body)
        known = _property_names(schema)
        if known and isinstance(body, dict):
            for name in body.keys() - known:
                self.violations.append(f"{where}: the body has no field {name!r}")

    def check_response(self, method: str, template: str, status: int, body: object) -> None:
        """Checks a response. `body` is parsed JSON, None, or text such as a diff, which the description does
        not cover.
        """
        operation = _find_operation(method, template)
        if operation is None or isinstance(body, str):
            return
        where = f"{method} {template} -> {status}"
        response = operation["responses"].get(str(status))
        if response is None:
            if str(status) not in COMMON_STATUSES:
                self.violations.append(f"{where}: GitHub's API has no such response for this operation")
            return
        content = _resolve_reference(response).get("content", {}).get("application/json")
        if content is not None:
            self._validate(where, content["schema"], body)
        elif body is not None:
            self.violations.append(f"{where}: the response must have no body")

    def check_webhook(self, event: str, action: str, payload: object) -> None:
        """Checks an event's payload against GitHub's API description. Skips events that the stored part of the
        description does not contain.
        """
        hook = _load_description()["x-webhooks"].get(f"{event}-{action}".replace("_", "-"))
        if hook is not None:
            schema = hook["post"]["requestBody"]["content"]["application/json"]["schema"]
            self._validate(f"webhook {event} {action}", schema, payload)

    def _validate(self, where: str, schema: Mapping[str, Any], value: object) -> None:
        self.violations += [f"{where}: {fault}" for fault in _schema_errors(schema, value)]


def _schema_errors(schema: Mapping[str, Any], value: object) -> list[str]:
    try:
        import jsonschema
    except ModuleNotFoundError:  # the demo does not need it; the extra for tests installs it
        return []
    judge = jsonschema.Draft202012Validator({**schema, "components": _load_description()["components"]})
    return [
        f"{'.'.join(map(str, fault.absolute_path))} {fault.message[:300]}"
        for fault in judge.iter_errors(value)
    ]


@functools.cache
def _load_description() -> dict[str, Any]:
    text = resources.files("patchwright.demo.github").joinpath("openapi.json").read_text("utf-8")
    description: dict[str, Any] = json.loads(text)
    return description


def _find_operation(method: str, template: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = _load_description()["paths"].get(template, {}).get(method.lower())
    return found


def _resolve_reference(value: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in value:
        return value
    found: Any = _load_description()
    for part in value["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return _resolve_reference(found)


def _property_names(schema: dict[str, Any]) -> set[str]:
    """Returns the field names that a body may have; an empty set if the schema does not list them."""
    schema = _resolve_reference(schema)
    names = set(schema.get("properties", ()))
    for part in (*schema.get("oneOf", ()), *schema.get("anyOf", ()), *schema.get("allOf", ())):
        names |= _property_names(part)
    return names


def _parse_parameter(text: str, schema: Mapping[str, Any]) -> object:
    """Converts a URL parameter from text to the type in its schema."""
    match schema.get("type"):
        case "integer" if text.removeprefix("-").isdigit():
            return int(text)
        case "boolean" if text in ("true", "false"):
            return text == "true"
        case _:
            return text
