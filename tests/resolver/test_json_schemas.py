"""Untrusted JSON schemas are limited, and nothing is downloaded for them."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import yaml

from patchwright.resolver.json_schemas import parse_object_schema, validation_error

PLACES = {
    "properties": {
        "places": {"type": "array", "items": {"type": "string", "maxLength": 5}},
        "sure": {"enum": ["yes", "no"]},
    },
    "required": ["places"],
}


@pytest.fixture
def visited() -> Iterator[tuple[str, list[str]]]:
    """Yields the URL of a server, and the paths that were requested from it."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type": "integer"}')

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", paths
    server.shutdown()
    thread.join()
    server.server_close()


def test_references_in_a_schema_are_not_downloaded(visited: tuple[str, list[str]]) -> None:
    address, paths = visited
    assert validation_error({"a": "x"}, {"properties": {"a": {"$ref": f"{address}/a.json"}}}) is None
    assert paths == []
    inside = {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}
    assert validation_error({"a": "x"}, inside) == "`a`: 'x' is not of type 'integer'"


@pytest.mark.parametrize(
    "schema", [{"type": 5}, {"type": "nothing"}, {"pattern": "("}, {"properties": 3}, {"$ref": "#/nowhere"}]
)
def test_an_invalid_schema_accepts_every_value(schema: dict[str, Any]) -> None:
    assert validation_error({"a": 1}, schema) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"places": ["a:1"], "sure": "no"}, None),
        ({}, "'places' is a required property"),
        ({"places": "a:1"}, "`places`: 'a:1' is not of type 'array'"),
        ({"places": ["a:1", "calc.py:5"]}, "`places.1`: 'calc.py:5' is too long"),
        ({"places": [], "sure": "so"}, "`sure`: 'so' is not one of ['yes', 'no']"),
        (
            {"places": [], "why": ""},
            "Additional properties are not allowed ('why' was unexpected)",
        ),
    ],
)
def test_a_validation_error_names_the_field(value: dict[str, Any], expected: str | None) -> None:
    assert validation_error(value, parse_object_schema(PLACES)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("text", "it is not a JSON schema"),
        ("[]", "it is not a JSON schema"),
        ("{type: array}", "it does not describe an object"),
        ("{properties: {a: {type: text}}}", "properties.a.type: 'text' is not valid"),
        ("{properties: [a]}", "properties: ['a'] is not of type 'object'"),
        ("{required: [a]}", "`a` is required, but it is not a property"),
        (
            "{properties: {a: {pattern: '(a+)+$'}}}",
            "`pattern` is not supported. Supported keywords: additional",
        ),
        ("{properties: {a: {$ref: 'http://10.0.0.1/'}}}", "`$ref` is not supported"),
        ("{properties: {a: {items: {anyOf: []}}}}", "anyOf: [] should be non-empty"),
        ("{additionalProperties: {format: date}}", "`format` is not supported"),
        ("{1: 2}", "it has keys that are not strings"),
        ("{properties: {a: {enum: [2026-11-20]}}}", "it contains a date, which JSON does not support"),
        ("{properties: {a: {maximum: .inf}}}", "it contains a number that is not finite"),
        ("&all {properties: *all}", "more than 8 levels"),
        (f"{{properties: {{a: {{enum: {list(range(400))}}}}}}}", "more than 300 parts"),
        (
            # Each line expands to nine times the previous one, which nobody can count to the end.
            "a: &a [1]\n"
            + "".join(
                f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdef", "bcdefg", strict=True)
            ),
            "more than 300 parts",
        ),
    ],
)
def test_an_invalid_object_schema_is_rejected_with_the_reason(text: str, expected: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_object_schema(yaml.safe_load(text))
    assert expected in str(error.value) and len(str(error.value)) < 400
