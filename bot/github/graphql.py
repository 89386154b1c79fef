"""GraphQL requests to GitHub: for what REST cannot do, with its own way of refusing put into our errors."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from bot.errors import Rejected, Unanswered
from bot.github.answers import GraphQLAnswer, GraphQLError
from bot.github.meanings import A_MINUTE
from bot.github.rest import Rest
from resolver.domain import Repo
from resolver.errors import BranchMoved, Forbidden, ForgeError, NotFound, RateLimited

T = TypeVar("T")

FORBIDDEN = {"FORBIDDEN", "INSUFFICIENT_SCOPES", "BRANCH_PROTECTION_RULE_VIOLATION"}


class GraphQL:
    """Requests of one root field each; its arguments are all variables."""

    def __init__(self, rest: Rest, url: str) -> None:
        self._rest = rest
        self._url = url

    async def ask(
        self,
        shape: type[T],
        repo: Repo,
        request: str,
        variables: Mapping[str, object],
        *,
        again: bool = True,
    ) -> T:
        """The value of the root field, in the shape wanted. Raises ForgeError.

        `again=False`: after Unanswered it may or may not have been done; look before you ask again.
        """
        body = {"query": request, "variables": variables}
        answer = await self._rest.post_query(GraphQLAnswer, repo, self._url, body, again=again)
        if answer.errors:
            error = _meaning(answer.errors[0])
            if isinstance(error, RateLimited):
                await self._rest.hold(repo, error)
            raise error
        value = next(iter((answer.data or {}).values()), None)
        if value is None:
            raise NotFound(f"GitHub answered nothing to {request.strip()[:80]}")
        try:
            return TypeAdapter(shape).validate_python(value)
        except ValidationError as exc:
            first = exc.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ForgeError(f"a GraphQL answer is not as GitHub's: {where}: {first['msg']}") from exc


def _meaning(error: GraphQLError) -> ForgeError:
    """Source: errors seen of GitHub's; its documentation lists none of their types."""
    said = f"GitHub says: {error.message[:500]}"
    if error.type == "RATE_LIMITED":
        return RateLimited(said, datetime.now(UTC) + A_MINUTE)
    if error.type == "NOT_FOUND":
        return NotFound(said)
    if error.type == "STALE_DATA":
        return BranchMoved(said)
    if error.type in FORBIDDEN:
        return Forbidden(said)
    if "went wrong while executing" in error.message or "timeout" in error.message.lower():
        return Unanswered(said)
    return Rejected(said)
