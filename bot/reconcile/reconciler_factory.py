"""Builds the reconciler, which finds missed events (bot/reconcile/reconciler.py). It runs in a worker at the
same time as jobs.
"""

import contextlib
import logging
from collections.abc import AsyncIterator

from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.reconcile.reconciler import POLLING_SCHEDULE, PollSchedule, Reconciler, ReconcilerConfig
from patchwright.bot.redis.leader_lease import LeaderLease
from patchwright.bot.triggers.trigger_handler import TriggerHandler
from patchwright.bot.worker.worker_process import Watcher, require_redis_url
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.settings.settings import Settings

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def open_reconciler(
    settings: Settings, github: GitHubForge, *, schedule: PollSchedule | None = None
) -> AsyncIterator[Watcher]:
    """Yields a function that runs the reconciler: the `watcher` for `bot.worker.worker_process.run_worker`. Raises
    SettingsError.

    `github` must be the object that sends all requests of this process, so that they share the same tokens.
    """
    repositories = tuple(map(Repo.parse, settings.named_repositories))
    if not github.is_app and not repositories:
        if settings.poll:
            raise SettingsError(
                "PATCHWRIGHT_ALLOWED_REPOSITORIES names no repository. With a token, list each as owner/name."
            )
        log.info("no repositories to poll: missed deliveries are not recovered")
    lease = LeaderLease(require_redis_url(settings))
    config = ReconcilerConfig(
        schedule or (POLLING_SCHEDULE if settings.poll else PollSchedule()),
        repositories,
        has_webhook=settings.webhook_secret is not None,
    )

    async def watch(handler: TriggerHandler, name: str) -> None:
        await Reconciler(github, lease, handler, name, config).run()

    try:
        yield watch
    finally:
        await lease.close()
