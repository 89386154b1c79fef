"""The GraphQL API of the fake server: finds the root field, calls its resolver, and returns the selected
fields.

A resolver gets the request and the field's arguments. It returns the complete value with GitHub's field
names. A nested field that takes arguments is returned as a function `(info, **arguments)`. Resolvers are
defined in other modules, which `rest_api.py` imports.

Each request of Patchwright has one root field. The values of the field's arguments are always variables:
`name(argument: $variable)`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from patchwright.demo.github import graphql_schema
from patchwright.demo.github.auth import ApiError, RequiredAccess, require_access, require_visible
from patchwright.demo.github.operations import PULL_ACCESS, operation
from patchwright.demo.github.request_context import RequestContext, RestResponse
from patchwright.demo.github.serializers import Json, node_id
from patchwright.demo.github.state import FakePullRequest, Repository, Token

Arguments = Mapping[str, Any]
Resolver = Callable[[RequestContext, Arguments], Json]
RESOLVERS: dict[str, Resolver] = {}

ROOT_FIELD = re.compile(
    r"\s*(?:query|mutation)[^{]*\{\s*(?P<name>\w+)\s*(?:\((?P<arguments>(?:\s*\w+:\s*\$\w+,?)*)\s*\)|(?=\{))"
)


class GraphQLFailure(Exception):
    """An error in GraphQL's form: status 200, `data` is null, and the error has a type."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def register_field(name: str) -> Callable[[Resolver], Resolver]:
    def keep(resolver: Resolver) -> Resolver:
        RESOLVERS[name] = resolver
        return resolver

    return keep


@operation("POST", "/graphql")
def handle_graphql(call: RequestContext) -> RestResponse:
    query, variables = str(call.body.get("query")), call.body.get("variables") or {}
    assert isinstance(variables, dict)
    if found := graphql_schema.validate_query(query, variables):
        call.violations += [f"POST /graphql: {fault}" for fault in found]
        return RestResponse({"errors": [{"message": fault} for fault in found]})
    root = ROOT_FIELD.match(query)
    if root is None or root["name"] not in RESOLVERS:
        call.violations.append(f"POST /graphql: the fake server does not support this request: {query}")
        raise ApiError(400, "the fake server does not support this request")
    pairs = re.findall(r"(\w+):\s*\$(\w+)", root["arguments"] or "")
    name, arguments = root["name"], {argument: variables.get(variable) for argument, variable in pairs}
    if not isinstance(call.actor, Token):
        raise ApiError(401, "This endpoint requires you to be authenticated.")
    try:
        value = RESOLVERS[name](call, arguments)
    except GraphQLFailure as failure:
        return _error_response(name, failure.kind, str(failure))
    except ApiError as refusal:
        return _error_response(name, "NOT_FOUND" if refusal.status == 404 else "FORBIDDEN", refusal.message)
    data, off = graphql_schema.execute_query(query, variables, {name: value})
    call.violations += [f"POST /graphql {name}: {fault}" for fault in off]
    return RestResponse({"data": data})


def _error_response(name: str, kind: str, message: str) -> RestResponse:
    error = {"type": kind, "path": [name], "locations": [{"line": 1, "column": 1}], "message": message}
    return RestResponse({"data": {name: None}, "errors": [error]})


def require_visible_access(call: RequestContext, repo: Repository, required: RequiredAccess) -> Token:
    """Returns the request's token if it may see the repository and has the required access. Raises ApiError."""
    return require_access(call.actor, require_visible(call.actor, repo), required)


def find_pull_by_id(call: RequestContext, id: object) -> FakePullRequest:
    """Returns the pull request with this node id. Raises GraphQLFailure."""
    pulls = (pull for repo in call.state.repositories for pull in repo.pulls)
    found = next((pull for pull in pulls if node_id("PullRequest", pull.id) == id), None)
    if found is None:
        raise GraphQLFailure("NOT_FOUND", f"Could not resolve to a node with the global id of '{id}'")
    return found


@register_field("viewer")
def viewer(call: RequestContext, arguments: Arguments) -> Json:
    """Returns the user of the token. The user of an installation token is its App. The user of a workflow's
    own token is the App `github-actions`.
    """
    assert isinstance(call.actor, Token)
    return {"login": call.actor.user.login}


def _set_draft(draft: bool) -> Resolver:
    def resolve(call: RequestContext, arguments: Arguments) -> Json:
        pull = find_pull_by_id(call, arguments["input"]["pullRequestId"])
        require_visible_access(call, pull.repo, PULL_ACCESS)
        pull.draft, pull.updated = draft, call.state.next_timestamp()
        return {"pullRequest": {"id": node_id("PullRequest", pull.id), "isDraft": pull.draft}}

    return resolve


register_field("convertPullRequestToDraft")(_set_draft(True))
register_field("markPullRequestReadyForReview")(_set_draft(False))
