"""What refusals in GraphQL's own way mean: they come with status 200."""

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from bot.errors import Rejected, Unanswered
from bot.github.answers import CommitId
from bot.github.graphql import GraphQL
from bot.github.rest import Pace, Rest, TokenAccess
from demo.world import World
from resolver.domain import Repo
from resolver.errors import BranchMoved, Forbidden, ForgeError, NotFound, RateLimited

SAMPLE = Repo(owner="acme", name="sample")
REQUEST = "query Q($id: ID!) { node(id: $id) { id } }"


@pytest.fixture
async def graphql(world: World) -> AsyncIterator[GraphQL]:
    access = TokenAccess(SecretStr(world.token("patchwright")))
    rest = Rest(access, world.api_url, None, Pace(between_writes=0, first_pause=0.01, timeout=5))
    yield GraphQL(rest, world.graphql_url)
    await rest.aclose()


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        ({"type": "RATE_LIMITED", "message": "API rate limit exceeded"}, RateLimited),
        ({"type": "NOT_FOUND", "message": "Could not resolve to a Repository"}, NotFound),
        ({"type": "STALE_DATA", "message": "Expected branch to point to"}, BranchMoved),
        ({"type": "FORBIDDEN", "message": "Resource not accessible by integration"}, Forbidden),
        ({"type": "BRANCH_PROTECTION_RULE_VIOLATION", "message": "Changes must be made"}, Forbidden),
        ({"message": "Something went wrong while executing your query on 2026"}, Unanswered),
        ({"type": "UNPROCESSABLE", "message": "A path was requested"}, Rejected),
    ],
)
async def test_an_error_says_who_must_act(
    world: World, graphql: GraphQL, error: dict[str, str], meaning: type[ForgeError]
) -> None:
    world.refuse_next("POST", "/graphql", status=200, body={"data": None, "errors": [error]})
    with pytest.raises(ForgeError, match=f"GitHub says: {error['message']}") as caught:
        await graphql.ask(CommitId, SAMPLE, REQUEST, {"id": "x"}, again=False)
    assert type(caught.value) is meaning


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"data": {"node": None}}, "answered nothing"),
        ({"data": {}}, "answered nothing"),
        ({"data": {"node": {"id": 7}}}, "not as GitHub's: oid: Field required"),
        ({"data": [1]}, "is not answered as GitHub does"),
    ],
)
async def test_what_is_no_answer_is_an_error(
    world: World, graphql: GraphQL, body: dict[str, object], why: str
) -> None:
    world.refuse_next("POST", "/graphql", status=200, body=body)
    with pytest.raises(ForgeError, match=why):
        await graphql.ask(CommitId, SAMPLE, REQUEST, {"id": "x"})
