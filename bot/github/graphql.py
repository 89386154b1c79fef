"""Sends GraphQL requests to GitHub for operations that REST does not offer, and maps their errors."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from patchwright.bot.errors import ForgeUnavailable, UnprocessableRequest
from patchwright.bot.github.api_errors import DEFAULT_RETRY_AFTER
from patchwright.bot.github.rest import RestClient
from patchwright.bot.github.schemas import GraphQLError, GraphQLResponse
from patchwright.resolver.domain import Credentials, Repo
from patchwright.resolver.errors import BranchMoved, Forbidden, ForgeError, NotFound, RateLimited

T = TypeVar("T")

FORBIDDEN_TYPES = {"FORBIDDEN", "INSUFFICIENT_SCOPES", "BRANCH_PROTECTION_RULE_VIOLATION"}


class GraphQLClient:
    """Executes GraphQL operations that have one root field. Sends all arguments as variables."""

    def __init__(self, rest: RestClient, url: str) -> None:
        self._rest = rest
        self._url = url

    async def execute(
        self,
        response_type: type[T],
        principal: Repo | Credentials,
        query: str,
        variables: Mapping[str, object],
        *,
        idempotent: bool = True,
    ) -> T:
        """Returns the value of the root field, parsed as `response_type`. Raises ForgeError.

        If `idempotent` is False and ForgeUnavailable is raised, GitHub may or may not have made the change.
        Find out which before you repeat the request.
        """
        body = {"query": query, "variables": variables}
        response = await self._rest.post_graphql(
            GraphQLResponse, principal, self._url, body, idempotent=idempotent
        )
        if response.errors:
            error = _to_forge_error(response.errors[0])
            if isinstance(error, RateLimited):
                await self._rest.record_rate_limit(principal, error)
            raise error
        value = next(iter((response.data or {}).values()), None)
        if value is None:
            raise NotFound(f"GitHub returned no data for {query.strip()[:80]}")
        try:
            return TypeAdapter(response_type).validate_python(value)
        except ValidationError as exc:
            first = exc.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ForgeError(f"unexpected GraphQL response: {where}: {first['msg']}") from exc


def _to_forge_error(error: GraphQLError) -> ForgeError:
    """Maps a GraphQL error to an error of the resolver.

    Source: errors that GitHub has returned, because GitHub's documentation does not list them.
    """
    message = f"GitHub returned: {error.message[:500]}"
    if error.type == "RATE_LIMITED":
        return RateLimited(message, datetime.now(UTC) + DEFAULT_RETRY_AFTER)
    if error.type == "NOT_FOUND":
        return NotFound(message)
    if error.type == "STALE_DATA":
        return BranchMoved(message)
    if error.type in FORBIDDEN_TYPES:
        return Forbidden(message)
    if "went wrong while executing" in error.message or "timeout" in error.message.lower():
        return ForgeUnavailable(message)
    return UnprocessableRequest(message)
