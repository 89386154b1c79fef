"""Builds the reconciler, which finds missed events (bot/reconcile/reconciler.py). It runs in a worker at the
same time as jobs.
"""

import contextlib
import logging
from collections.abc import AsyncIterator

from pydantic import ValidationError

from patchwright.bot.github.auth import AppAuth, RequestPolicy, TokenAuth
from patchwright.bot.github.graphql import GraphQLClient
from patchwright.bot.github.identity import Identity
from patchwright.bot.github.rest import RestClient
from patchwright.bot.reconcile.comment_outbox import CommentOutbox
from patchwright.bot.reconcile.reconciler import POLLING_SCHEDULE, PollSchedule, Reconciler
from patchwright.bot.redis.leader_lease import LeaderLease
from patchwright.bot.trigger_handler import TriggerHandler
from patchwright.bot.worker_process import Watcher, require_redis_url
from patchwright.bot.write_limiter import WriteLimiter
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.settings.settings import Settings

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def open_reconciler(
    settings: Settings,
    access: AppAuth | TokenAuth,
    *,
    request_policy: RequestPolicy | None = None,
    write_limiter: WriteLimiter | None = None,
    schedule: PollSchedule | None = None,
    outbox: CommentOutbox | None = None,
) -> AsyncIterator[Watcher]:
    """Yields the `watcher` argument of `bot.worker_process.run_worker`. Raises SettingsError.

    `write_limiter` must be the same object that limits all other GitHub writes of this process. `outbox`
    contains comments that GitHub rejected; the watcher posts them again.
    """
    repositories = tuple(map(_parse_repository, settings.polled_repositories))
    if isinstance(access, TokenAuth) and not repositories:
        if settings.poll:
            raise SettingsError(
                "PATCHWRIGHT_POLLED_REPOSITORIES is not set. With a token, list the repositories as owner/name."
            )
        log.info("no repositories to poll: missed deliveries are not recovered")
    request_policy = request_policy or RequestPolicy(write_interval=settings.github_write_interval)
    rest = RestClient(access, settings.github_api_url, settings.ca_bundle, request_policy, write_limiter)
    identity = Identity(rest, GraphQLClient(rest, settings.github_graphql_url))
    lease = LeaderLease(require_redis_url(settings))
    schedule = schedule or (POLLING_SCHEDULE if settings.poll else PollSchedule())

    async def watch(handler: TriggerHandler, name: str) -> None:
        reconciler = Reconciler(
            rest,
            identity,
            lease,
            handler,
            name,
            repositories=repositories,
            webhook_url=settings.webhook_url,
            schedule=schedule,
            has_webhook=settings.webhook_secret is not None,
            outbox=outbox,
        )
        await reconciler.run()

    try:
        yield watch
    finally:
        await rest.aclose()
        await lease.close()


def _parse_repository(full_name: str) -> Repo:
    owner, _, name = full_name.partition("/")
    try:
        return Repo(owner=owner, name=name)
    except ValidationError as exc:
        raise SettingsError(
            f"{full_name} in PATCHWRIGHT_POLLED_REPOSITORIES is not a repository. Write it as owner/name."
        ) from exc
