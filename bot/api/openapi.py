"""The OpenAPI description of the API, and the FastAPI application that serves it."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

from patchwright.bot.api import DESCRIPTION_PATH
from patchwright.bot.api.problem_details import PROBLEM_TYPE, Problem, status_title
from patchwright.sdk.agents import Agent

API_VERSION = "1.0.0"
"""The version of the description. It changes with the routes, and not with each release of Patchwright."""
DESCRIPTION = """\
Start jobs on a Patchwright server, and talk to agents. Each request needs an API key, except the one for this
description. Each response has the header `X-Request-ID`. Each error is a problem as in RFC 9457.
"""
_EVERYWHERE = (401, 403, 500, 503)
"""The errors that any route with an API key can report."""
_REQUEST_ID = {
    "description": "The id of the request: the client's own, if it sent one in this header, or a new one.",
    "required": True,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the descriptions of a route's errors, for its parameter `responses`."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": status_title(status), "content": {PROBLEM_TYPE: {"schema": schema}}}
        for status in statuses
    }


class ApiApplication(FastAPI):
    """A FastAPI application that describes the API in OpenAPI. The routes of the dashboard are not described."""

    def __init__(self, routers: Sequence[APIRouter]) -> None:
        super().__init__(
            title="Patchwright",
            version=API_VERSION,
            description=DESCRIPTION,
            openapi_url=DESCRIPTION_PATH,
            docs_url=None,  # Its scripts come from another site.
            redoc_url=None,
            generate_unique_id_function=lambda route: route.name,
            redirect_slashes=False,  # A client that follows such a redirect drops its API key.
        )
        for router in routers:
            self.include_router(router, responses=problems(*_EVERYWHERE))

    def openapi(self) -> dict[str, Any]:
        """Returns the description. FastAPI knows neither the schema of the errors nor the headers of the middleware."""
        if self.openapi_schema is None:
            description = get_openapi(
                title=self.title, version=self.version, description=self.description, routes=self.routes
            )
            schemas = description["components"]["schemas"]
            problem = Problem.model_json_schema(
                mode="serialization", ref_template="#/components/schemas/{model}"
            )
            description["components"]["headers"] = {"RequestId": _REQUEST_ID}
            schemas |= {**problem.pop("$defs"), "Problem": problem, **_describe_log(), **_describe_agent()}
            agent = schemas["NewConversation"]["properties"]["agent"]
            agent["anyOf"] = [
                {"$ref": "#/components/schemas/Agent"},
                {name: agent.pop(name) for name in ("additionalProperties", "type")},
            ]
            entries = schemas["EventPage"]["properties"]["entries"]
            entries["items"] = {"$ref": "#/components/schemas/Log.Entry"}
            for unused in ("HTTPValidationError", "Repo", "ValidationError"):
                schemas.pop(unused, None)
            for path in description["paths"].values():
                for operation in path.values():
                    _describe_errors(operation)
            self.openapi_schema = description
        return self.openapi_schema


def _describe_log() -> dict[str, Any]:
    """Returns the schemas of a log's entries. Their names differ from those of the routes, such as `InputRequired`."""
    # Only the description needs the events, so a server that nobody asks for it does not import them.
    from patchwright.resolver.events import ENTRY_ADAPTER

    entry = ENTRY_ADAPTER.json_schema(mode="serialization", ref_template="#/components/schemas/Log.{model}")
    return {f"Log.{name}": schema for name, schema in {**entry.pop("$defs"), "Entry": entry}.items()}


def _describe_agent() -> dict[str, Any]:
    """Returns the schemas of an agent's JSON. Each value has the name of its class as `kind`."""
    agent = Agent.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas = {**agent.pop("$defs"), "Agent": agent}
    for kind, schema in schemas.items():
        schema["properties"]["kind"] = {"const": kind}
        schema["required"].append("kind")
    return schemas


def _describe_errors(operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    # FastAPI adds this response to each route with a parameter, even if every text is valid.
    if "application/json" in responses.get("422", {}).get("content", {}):
        del responses["422"]
    for response in responses.values():
        response["headers"] = {"X-Request-ID": {"$ref": "#/components/headers/RequestId"}}
