"""Validates GraphQL requests and responses against GitHub's own schema (see `schema.md`)."""

import functools
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from patchwright.demo.github.serializers import Json

if TYPE_CHECKING:
    from graphql import GraphQLSchema


def validate_query(query: str, variables: Mapping[str, object]) -> list[str]:
    """Returns the errors with which GitHub would reject the request before executing it.

    Returns no errors if `graphql-core` is not installed. The tests install this package, but the demo works
    without it.
    """
    try:
        import graphql
    except ModuleNotFoundError:
        return []
    try:
        document = graphql.parse(query)
    except graphql.GraphQLError as exc:
        return [exc.message]
    if found := graphql.validate(_load_schema(), document):
        return [fault.message for fault in found]
    (operation,) = [one for one in document.definitions if isinstance(one, graphql.OperationDefinitionNode)]
    given = graphql.execution.get_variable_values(
        _load_schema(), operation.variable_definitions or (), dict(variables)
    )
    return [fault.message for fault in given] if isinstance(given, list) else []


def execute_query(query: str, variables: Mapping[str, object], root: Json) -> tuple[Json, list[str]]:
    """Returns the fields of `root` that the query selects, and the errors for fields that violate the schema.

    Without `graphql-core`, it returns all fields of `root` except nested fields with arguments.
    """
    try:
        import graphql
    except ModuleNotFoundError:
        return _drop_resolvers(root), []
    done = graphql.graphql_sync(_load_schema(), query, root_value=root, variable_values=dict(variables))
    return done.data or {}, [fault.message for fault in done.errors or ()]


@functools.cache
def _load_schema() -> "GraphQLSchema":
    import graphql

    return graphql.build_schema(
        resources.files("patchwright.demo.github").joinpath("schema.graphql").read_text("utf-8")
    )


def _drop_resolvers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _drop_resolvers(part) for name, part in value.items() if not callable(part)}
    return [_drop_resolvers(part) for part in value] if isinstance(value, list) else value
