"""The OpenAPI description of the HTTP API, and the copy of it in `docs/`."""

import json
import os
import re
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from patchwright import LLM, default_agent
from patchwright.bot.api.openapi import ApiApplication
from patchwright.bot.redis.api_keys import API_SCOPES
from patchwright.bot.web.application import ROUTERS
from tests.bot.api.clients import api_client
from tests.bot.inline_queue import InlineQueue

COPY = Path(__file__).parents[3] / "docs" / "openapi.json"


def describe() -> dict[str, Any]:
    return ApiApplication(ROUTERS).openapi()


def test_the_published_description_is_up_to_date() -> None:
    """Set PATCHWRIGHT_REGENERATE to renew the file."""
    text = json.dumps(describe(), indent=1) + "\n"
    if os.environ.get("PATCHWRIGHT_REGENERATE"):
        COPY.write_text(text)
    assert COPY.read_text() == text


def test_the_description_includes_the_agents_that_the_docs_and_the_library_write() -> None:
    description = describe()
    (example,) = re.findall(r'^\{"kind": "Agent".*$', COPY.with_name("http-api.md").read_text(), re.MULTILINE)
    written = default_agent(LLM(model="openai/m", api_key="k")).model_dump_json(
        context={"expose_secrets": True}
    )
    validator = Draft202012Validator(
        {"$ref": "#/components/schemas/Agent", "components": description["components"]}
    )
    for agent in (json.loads(example), json.loads(written)):
        assert list(validator.iter_errors(agent)) == []
        assert list(validator.iter_errors({**agent, "steps": 3}))
    (named, other) = description["components"]["schemas"]["NewConversation"]["properties"]["agent"]["anyOf"]
    assert (named, other["type"]) == ({"$ref": "#/components/schemas/Agent"}, "object")


async def test_the_server_shows_the_description_without_a_key() -> None:
    async with api_client(InlineQueue()) as http:
        del http.headers["authorization"]
        answer = await http.get("/openapi.json")
    assert (answer.status_code, answer.json()) == (200, describe())


def test_every_operation_names_its_scope_and_its_errors() -> None:
    operations = [one for path in describe()["paths"].values() for one in path.values()]
    assert len(operations) >= 3
    for operation in operations:
        (security,) = operation["security"]
        assert set(security["apiKey"]) <= set(API_SCOPES) and len(security["apiKey"]) == 1
        assert {"401", "403", "503"} <= set(operation["responses"])
        errors = [
            response for status, response in operation["responses"].items() if status.startswith(("4", "5"))
        ]
        assert {name for error in errors for name in error["content"]} == {"application/problem+json"}


def test_the_description_is_about_the_api_only() -> None:
    description = describe()
    assert {path.split("/")[1] for path in description["paths"]} == {"jobs", "conversations", "workspaces"}
    references = set(json.dumps(description).split('"#/components/schemas/')[1:])
    used = {reference.partition('"')[0] for reference in references}
    assert used == set(description["components"]["schemas"])
