"""Judges GraphQL requests and answers by GitHub's own schema (see `schema.md`)."""

import functools
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from demo.world.shapes import Json

if TYPE_CHECKING:
    from graphql import GraphQLSchema


def faults(query: str, variables: Mapping[str, object]) -> list[str]:
    """What GitHub would refuse in this request before it does anything.

    Nothing without `graphql-core`: the demo runs without it, the tests' extra has it.
    """
    try:
        import graphql
    except ModuleNotFoundError:
        return []
    try:
        document = graphql.parse(query)
    except graphql.GraphQLError as exc:
        return [exc.message]
    if found := graphql.validate(_schema(), document):
        return [fault.message for fault in found]
    (operation,) = [one for one in document.definitions if isinstance(one, graphql.OperationDefinitionNode)]
    given = graphql.execution.get_variable_values(
        _schema(), operation.variable_definitions or (), dict(variables)
    )
    return [fault.message for fault in given] if isinstance(given, list) else []


def selected(query: str, variables: Mapping[str, object], root: Json) -> tuple[Json, list[str]]:
    """Of these root values only what the query asks for, and what in them is off the schema.

    Without `graphql-core` all of it, but for what is a function: a nested field that takes arguments.
    """
    try:
        import graphql
    except ModuleNotFoundError:
        return _plain(root), []
    done = graphql.graphql_sync(_schema(), query, root_value=root, variable_values=dict(variables))
    return done.data or {}, [fault.message for fault in done.errors or ()]


@functools.cache
def _schema() -> "GraphQLSchema":
    import graphql

    return graphql.build_schema(resources.files("demo.world").joinpath("schema.graphql").read_text("utf-8"))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if not callable(part)}
    return [_plain(part) for part in value] if isinstance(value, list) else value
