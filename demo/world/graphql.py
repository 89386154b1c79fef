"""The two GraphQL mutations without a twin in REST: a pull request becomes a draft, or ready for review."""

import re

from demo.world.access import Refusal, allow, visible
from demo.world.call import Answer, Call
from demo.world.operations import OPERATIONS, PROPOSE, Handler, operation
from demo.world.shapes import Json, node_id

__all__ = ["OPERATIONS", "Handler"]

DRAFT = {"convertPullRequestToDraft": True, "markPullRequestReadyForReview": False}
MUTATION = re.compile(
    r"mutation\(\$id: ID!\) \{ (\w+)\(input: \{pullRequestId: \$id\}\) \{ pullRequest \{ isDraft \} \} \}"
)


@operation("POST", "/graphql")
def mutate(call: Call) -> Answer:
    """Status 200 also where it refuses, as GraphQL has it."""
    known, variables = MUTATION.fullmatch(str(call.body.get("query"))), call.body.get("variables")
    if known is None or known[1] not in DRAFT or not isinstance(variables, dict):
        raise Refusal(400, "The stand-in knows no such query")
    pulls = (pull for repo in call.state.repositories for pull in repo.pulls)
    pull = next((pull for pull in pulls if node_id("PullRequest", pull.id) == variables.get("id")), None)
    if pull is None:
        return _refused(f"Could not resolve to a node with the global id of '{variables.get('id')}'")
    try:
        allow(call.actor, visible(call.actor, pull.repo), PROPOSE)
    except Refusal as refusal:
        if refusal.status == 401:
            raise
        return _refused(refusal.message)
    pull.draft, pull.updated = DRAFT[known[1]], call.state.stamp()
    return Answer({"data": {known[1]: {"pullRequest": {"isDraft": pull.draft}}}})


def _refused(message: str) -> Answer:
    body: Json = {"data": None, "errors": [{"message": message}]}
    return Answer(body)
