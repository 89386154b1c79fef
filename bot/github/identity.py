"""Finds the GitHub account that the bot writes as. This works with every kind of token."""

import contextlib

from patchwright.bot.github.graphql import GraphQLClient
from patchwright.bot.github.rest import RestClient
from patchwright.bot.github.schemas import Account, AppResponse, Viewer
from patchwright.resolver.domain import Credentials, Repo
from patchwright.resolver.errors import Forbidden, NotFound

VIEWER_QUERY = "query Who { viewer { login } }"


class Identity:
    """Fetches the bot's account once, and caches it."""

    def __init__(self, rest: RestClient, graphql: GraphQLClient) -> None:
        self._rest = rest
        self._graphql = graphql
        self._account: Account | None = None

    def cache_account(self, account: Account | None) -> None:
        """Caches the bot's account, so that no request is needed. The caller got `account` from one of the
        bot's own comments or pull requests.
        """
        self._account = self._account or account

    async def __call__(self, principal: Repo | Credentials) -> Account | None:
        """Returns the bot's account, or None if GitHub does not reveal it. Raises ForgeError.

        If GitHub must be asked, the request uses the credentials of `principal`.
        """
        if self._account is None:
            try:
                if self._rest.is_app:
                    login = f"{(await self._rest.get_as_app(AppResponse, 'app')).slug}[bot]"
                    self._account = await self._rest.get(Account, principal, "users", login)
                else:
                    self._account = await self._rest.get(Account, principal, "user")
            except Forbidden:
                with contextlib.suppress(Forbidden, NotFound):
                    # Installation tokens may not request their own user. A workflow's token is an
                    # installation token of the App `github-actions`. Source:
                    # github.com/release-plz/action/pull/85
                    viewer = await self._graphql.execute(Viewer, principal, VIEWER_QUERY, {})
                    self._account = await self._rest.get(Account, principal, "users", viewer.login)
        return self._account
