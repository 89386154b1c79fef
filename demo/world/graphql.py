"""The GraphQL half of the stand-in: finds the root field, asks its resolver, gives back what was selected.

A resolver gets the call and the field's arguments; it returns the whole value under GitHub's names, as a nested
field with arguments a function `(info, **arguments)`. New ones go into files of their own, imported by `api.py`.
Our requests have one root field, whose arguments are all variables: `name(argument: $variable)`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from demo.world import schema
from demo.world.access import Need, Refusal, allow, visible
from demo.world.call import Answer, Call
from demo.world.operations import PROPOSE, operation
from demo.world.shapes import Json, node_id
from demo.world.state import Pull, Repository, Token

Arguments = Mapping[str, Any]
Resolver = Callable[[Call, Arguments], Json]
FIELDS: dict[str, Resolver] = {}

ROOT = re.compile(
    r"\s*(?:query|mutation)[^{]*\{\s*(?P<name>\w+)\s*(?:\((?P<arguments>(?:\s*\w+:\s*\$\w+,?)*)\s*\)|(?=\{))"
)


class Failure(Exception):
    """A refusal in GraphQL's own way: status 200, `data` null, an error with a type."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def field(name: str) -> Callable[[Resolver], Resolver]:
    def keep(resolver: Resolver) -> Resolver:
        FIELDS[name] = resolver
        return resolver

    return keep


@operation("POST", "/graphql")
def answer(call: Call) -> Answer:
    query, variables = str(call.body.get("query")), call.body.get("variables") or {}
    assert isinstance(variables, dict)
    if found := schema.faults(query, variables):
        call.violations += [f"POST /graphql: {fault}" for fault in found]
        return Answer({"errors": [{"message": fault} for fault in found]})
    root = ROOT.match(query)
    if root is None or root["name"] not in FIELDS:
        call.violations.append(f"POST /graphql: the stand-in knows no such request: {query}")
        raise Refusal(400, "The stand-in knows no such request")
    pairs = re.findall(r"(\w+):\s*\$(\w+)", root["arguments"] or "")
    name, arguments = root["name"], {argument: variables.get(variable) for argument, variable in pairs}
    if not isinstance(call.actor, Token):
        raise Refusal(401, "This endpoint requires you to be authenticated.")
    try:
        value = FIELDS[name](call, arguments)
    except Failure as failure:
        return _failed(name, failure.kind, str(failure))
    except Refusal as refusal:
        return _failed(name, "NOT_FOUND" if refusal.status == 404 else "FORBIDDEN", refusal.message)
    data, off = schema.selected(query, variables, {name: value})
    call.violations += [f"POST /graphql {name}: {fault}" for fault in off]
    return Answer({"data": data})


def _failed(name: str, kind: str, message: str) -> Answer:
    error = {"type": kind, "path": [name], "locations": [{"line": 1, "column": 1}], "message": message}
    return Answer({"data": {name: None}, "errors": [error]})


def allowed(call: Call, repo: Repository, need: Need) -> Token:
    """The token that asks, if it may see the repository and do what is needed. Raises Refusal."""
    return allow(call.actor, visible(call.actor, repo), need)


def pull_by_id(call: Call, wanted: object) -> Pull:
    """The pull request of this node id. Raises Failure."""
    pulls = (pull for repo in call.state.repositories for pull in repo.pulls)
    found = next((pull for pull in pulls if node_id("PullRequest", pull.id) == wanted), None)
    if found is None:
        raise Failure("NOT_FOUND", f"Could not resolve to a node with the global id of '{wanted}'")
    return found


@field("viewer")
def viewer(call: Call, arguments: Arguments) -> Json:
    """Whose the token is: an installation's is its App's, and a workflow's own that of the App `github-actions`."""
    assert isinstance(call.actor, Token)
    return {"login": call.actor.user.login}


def _set_draft(draft: bool) -> Resolver:
    def resolve(call: Call, arguments: Arguments) -> Json:
        pull = pull_by_id(call, arguments["input"]["pullRequestId"])
        allowed(call, pull.repo, PROPOSE)
        pull.draft, pull.updated = draft, call.state.stamp()
        return {"pullRequest": {"id": node_id("PullRequest", pull.id), "isDraft": pull.draft}}

    return resolve


field("convertPullRequestToDraft")(_set_draft(True))
field("markPullRequestReadyForReview")(_set_draft(False))
