"""The account that what we write is by, whatever kind of token we have."""

import contextlib

from bot.github.answers import Account, AppAnswer, Viewer
from bot.github.graphql import GraphQL
from bot.github.rest import Rest
from resolver.domain import Repo
from resolver.errors import Forbidden, NotFound

WHO = "query Who { viewer { login } }"


class Identity:
    """Asks once who we are, and knows it from then on."""

    def __init__(self, rest: Rest, graphql: GraphQL) -> None:
        self._rest = rest
        self._graphql = graphql
        self._known: Account | None = None

    def learn(self, account: Account | None) -> None:
        """This has written what we wrote."""
        self._known = self._known or account

    async def __call__(self, repo: Repo) -> Account | None:
        """None while nobody could tell. Raises ForgeError."""
        if self._known is None:
            try:
                if self._rest.is_app:
                    login = f"{(await self._rest.get_as_app(AppAnswer, 'app')).slug}[bot]"
                    self._known = await self._rest.get(Account, repo, "users", login)
                else:
                    self._known = await self._rest.get(Account, repo, "user")
            except Forbidden:
                with contextlib.suppress(Forbidden, NotFound):
                    # An installation's token, a workflow's own (of the App `github-actions`) among them, may not ask
                    # for its user. Source: github.com/release-plz/action/pull/85
                    viewer = await self._graphql.ask(Viewer, repo, WHO, {})
                    self._known = await self._rest.get(Account, repo, "users", viewer.login)
        return self._known
