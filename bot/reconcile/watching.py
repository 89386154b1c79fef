"""What a worker does beside its jobs: it finds at GitHub what no delivery has told (bot/reconcile/reconcile.py)."""

import contextlib
import logging
from collections.abc import AsyncIterator

from pydantic import ValidationError

from bot.desk import Desk
from bot.github.graphql import GraphQL
from bot.github.identity import Identity
from bot.github.rest import AppAccess, Pace, Rest, TokenAccess
from bot.pacing import Line
from bot.reconcile.reconcile import POLLING, Reconcile, Rhythm
from bot.redis.lookout import Lookout
from bot.work import Watch, check
from resolver.domain import Repo
from resolver.errors import SettingsError
from resolver.settings.settings import Settings

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def watching(
    settings: Settings,
    access: AppAccess | TokenAccess,
    *,
    pace: Pace | None = None,
    line: Line | None = None,
    rhythm: Rhythm | None = None,
) -> AsyncIterator[Watch]:
    """A `watch` for `bot.work.work`; `line`: of the writes. Raises SettingsError."""
    repositories = tuple(map(_repo, settings.repositories))
    if isinstance(access, TokenAccess) and not repositories:
        if settings.poll:
            raise SettingsError(
                "PATCHWRIGHT_REPOSITORIES is not set: with a token, name the repositories to look at, as owner/name."
            )
        log.info("no repositories to look at: what a delivery does not tell is lost")
    pace = pace or Pace(between_writes=settings.between_writes)
    rest = Rest(access, settings.github_api_url, settings.ca_bundle, pace, line)
    us = Identity(rest, GraphQL(rest, settings.github_graphql_url))
    lookout = Lookout(check(settings))
    rhythm = rhythm or (POLLING if settings.poll else Rhythm())

    async def watch(desk: Desk, name: str) -> None:
        reconcile = Reconcile(
            rest,
            us,
            lookout,
            desk,
            name,
            repositories=repositories,
            webhook_url=settings.webhook_url,
            rhythm=rhythm,
            redelivers=settings.webhook_secret is not None,
        )
        await reconcile.run()

    try:
        yield watch
    finally:
        await rest.aclose()
        await lookout.close()


def _repo(full_name: str) -> Repo:
    owner, _, name = full_name.partition("/")
    try:
        return Repo(owner=owner, name=name)
    except ValidationError as exc:
        raise SettingsError(
            f"{full_name} in PATCHWRIGHT_REPOSITORIES is no repository: name it as owner/name."
        ) from exc
