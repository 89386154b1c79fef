"""What becomes of the pull requests that we have opened: merged, closed, and whether anybody else had to touch them."""

import re
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from bot.github.answers import MergedAnswer
from bot.github.rest import PER_PAGE, Rest, path_of
from bot.lifecycle import time_of
from bot.reconcile.places import Place
from bot.redis.ledger import Ledger
from bot.webhooks.delivery import Branch, Closed
from resolver.ci.checks import Pushed
from resolver.domain import Repo, User

LATELY = 20  # pull requests that are looked at for the one that closed an issue
TOGETHER = timedelta(minutes=1)  # a merge closes its issues within seconds


class Forge(Protocol):
    """Every method may raise ForgeError."""

    async def identity(self, repo: Repo) -> User | None: ...

    async def commits(self, repo: Repo, number: int) -> Collection[Pushed]: ...


class OurPulls:
    """Our pull requests, by the beginning of their branches' names. Every method may raise ForgeError or QueueDown."""

    def __init__(self, rest: Rest, forge: Forge, ledger: Ledger, prefix: str) -> None:
        self._rest = rest
        self._forge = forge
        self._ledger = ledger
        self._prefix = prefix

    async def has_closed(self, issue: Closed) -> bool:
        """Whether one of ours that names this issue was merged in the moment in which it was closed."""
        query = {"state": "closed", "sort": "updated", "direction": "desc", "per_page": str(LATELY)}
        path = (*path_of(issue.repo), "pulls")
        lately = await self._rest.get(list[MergedAnswer], issue.repo, *path, **query)
        at, named = time_of(issue.at), re.compile(rf"#{issue.number}\b")
        return any(
            self._is_by_its_name(pull.head.ref)
            and _merged_with(pull.merged_at, at)
            and named.search(pull.body or "")
            for pull in lately
            if pull.same_repository
        )

    async def ended(self, pull: Closed) -> None:
        """Count it if it is ours: by its branch, and by who opened it."""
        branch = pull.branch
        if branch is None or not branch.same_repository or not self._is_by_its_name(branch.name):
            return
        us = await self._forge.identity(pull.repo)
        if us is None or us.id != branch.author:
            return
        alone = pull.how == "merged" and all(
            commit.author == us.id for commit in await self._forge.commits(pull.repo, pull.number)
        )
        await self._ledger.outcome_of_pull(
            pull.repo, pull.number, "untouched" if alone else "merged" if pull.how == "merged" else "closed"
        )

    def _is_by_its_name(self, branch: str) -> bool:
        return branch.startswith(self._prefix)


class ClosedPulls(NamedTuple):
    """Pull requests that somebody has merged or closed."""

    told: tuple[Closed, ...]
    until: datetime
    """When the last one was closed."""
    etag: str


async def closed_pulls(rest: Rest, place: Place, since: datetime, etag: str) -> ClosedPulls | None:
    """Those that were closed later than this, told as deliveries; None: all is as it was at this `etag`.

    Raises ForgeError.
    """
    query = {"state": "closed", "sort": "updated", "direction": "desc", "per_page": str(PER_PAGE)}
    page = await rest.page(list[MergedAnswer], place.token, *place.path, "pulls", etag=etag, **query)
    if page is None:
        return None
    lately = [(pull.closed_at, pull) for pull in page.found if pull.closed_at and pull.closed_at > since]
    told = tuple(
        Closed(
            repo=place.repo,
            number=pull.number,
            how="merged" if pull.merged_at else "closed",
            at=at.isoformat(),
            branch=Branch(
                name=pull.head.ref,
                same_repository=pull.same_repository,
                author=pull.user.id if pull.user else None,
            ),
        )
        for at, pull in lately
    )
    return ClosedPulls(told, max([since, *(at for at, _ in lately)]), page.etag)


def _merged_with(merged: datetime | None, closed: datetime) -> bool:
    return merged is not None and abs(merged - closed) <= TOGETHER
