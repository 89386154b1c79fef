"""GraphQL errors of GitHub, which come with status 200."""

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from patchwright.bot.errors import ForgeUnavailable, UnprocessableRequest
from patchwright.bot.github.auth import RequestPolicy, TokenAuth
from patchwright.bot.github.graphql import GraphQLClient
from patchwright.bot.github.rest import RestClient
from patchwright.bot.github.schemas import CommitPointer
from patchwright.demo.github import FakeGitHub
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import BranchMoved, Forbidden, ForgeError, NotFound, RateLimited

SAMPLE = Repo(owner="acme", name="sample")
REQUEST = "query Q($id: ID!) { node(id: $id) { id } }"


@pytest.fixture
async def graphql(fake_github: FakeGitHub) -> AsyncIterator[GraphQLClient]:
    access = TokenAuth(SecretStr(fake_github.create_token("patchwright")))
    rest = RestClient(
        access, fake_github.api_url, None, RequestPolicy(write_interval=0, initial_backoff=0.01, timeout=5)
    )
    yield GraphQLClient(rest, fake_github.graphql_url)
    await rest.aclose()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"type": "RATE_LIMITED", "message": "API rate limit exceeded"}, RateLimited),
        ({"type": "NOT_FOUND", "message": "Could not resolve to a Repository"}, NotFound),
        ({"type": "STALE_DATA", "message": "Expected branch to point to"}, BranchMoved),
        ({"type": "FORBIDDEN", "message": "Resource not accessible by integration"}, Forbidden),
        ({"type": "BRANCH_PROTECTION_RULE_VIOLATION", "message": "Changes must be made"}, Forbidden),
        ({"message": "Something went wrong while executing your query on 2026"}, ForgeUnavailable),
        ({"type": "UNPROCESSABLE", "message": "A path was requested"}, UnprocessableRequest),
    ],
)
async def test_graphql_errors_are_mapped(
    fake_github: FakeGitHub, graphql: GraphQLClient, error: dict[str, str], expected: type[ForgeError]
) -> None:
    fake_github.fail_next_request("POST", "/graphql", status=200, body={"data": None, "errors": [error]})
    with pytest.raises(ForgeError, match=f"GitHub returned: {error['message']}") as caught:
        await graphql.execute(CommitPointer, SAMPLE, REQUEST, {"id": "x"}, idempotent=False)
    assert type(caught.value) is expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"data": {"node": None}}, "returned no data"),
        ({"data": {}}, "returned no data"),
        ({"data": {"node": {"id": 7}}}, "unexpected GraphQL response: sha: Field required"),
        ({"data": [1]}, "unexpected response from GitHub"),
    ],
)
async def test_an_unexpected_graphql_response_is_an_error(
    fake_github: FakeGitHub, graphql: GraphQLClient, body: dict[str, object], message: str
) -> None:
    fake_github.fail_next_request("POST", "/graphql", status=200, body=body)
    with pytest.raises(ForgeError, match=message):
        await graphql.execute(CommitPointer, SAMPLE, REQUEST, {"id": "x"})
