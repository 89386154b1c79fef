"""Connects the dashboard to Redis, the run logs and GitHub."""

import contextlib
from collections.abc import AsyncIterator, Mapping

from patchwright.bot.dashboard.access_control import AccessControl
from patchwright.bot.dashboard.dependencies import DashboardDependencies
from patchwright.bot.dashboard.github_oauth import GitHubOAuth, OAuthConfig
from patchwright.bot.dashboard.live_runs import LiveRuns
from patchwright.bot.dashboard.log_reader import LogReader
from patchwright.bot.observe.archive import open_archive
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.redis.engine_health import EngineHealth
from patchwright.bot.redis.heartbeats import Heartbeats
from patchwright.bot.redis.leader_lease import LeaderLease
from patchwright.bot.redis.log_streams import LogStreams
from patchwright.bot.redis.sessions import Sessions
from patchwright.bot.redis.shared_run_index import SharedRunIndex
from patchwright.resolver.domain import RunId
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings


@contextlib.asynccontextmanager
async def open_dashboard(
    settings: Settings, url: str, secrets: Secrets, delivery_counts: Mapping[tuple[str, str], int]
) -> AsyncIterator[DashboardDependencies]:
    """Opens what the dashboard's routes use, with the Redis server at `url`. Raises SettingsError if a setting is
    invalid.
    """
    async with contextlib.AsyncExitStack() as stack:
        operator_token = settings.operator_token.get_secret_value() if settings.operator_token else ""
        queue, runs, streams = ArqQueue(url), SharedRunIndex(url), LogStreams(url)
        sessions = Sessions(url, operator_token=operator_token)
        inbox, heartbeats, engine_health, leader_lease = (
            DeliveryInbox(url),
            Heartbeats(url),
            EngineHealth(url),
            LeaderLease(url),
        )
        for store in (queue, runs, sessions, streams, inbox, heartbeats, engine_health, leader_lease):
            stack.push_async_callback(store.close)
        archive = open_archive(settings)
        files = FileLogStore(settings.data / "runs")
        log_reader = LogReader(streams, files, secrets, archive.read if archive else None)

        async def is_over(run: RunId) -> bool:
            summary = await runs.get(run)
            record = await queue.get_record(summary.working_job if summary else run)
            return (record is None or record.state == "completed") and not await streams.has_writer(run)

        live_runs = LiveRuns(log_reader, is_over)
        stack.push_async_callback(live_runs.close)
        oauth = _build_oauth(settings)
        if oauth is not None:
            stack.push_async_callback(oauth.close)
        yield DashboardDependencies(
            runs=runs,
            sessions=sessions,
            queue=queue,
            inbox=inbox,
            heartbeats=heartbeats,
            engine_health=engine_health,
            leader_lease=leader_lease,
            live_runs=live_runs,
            access_control=AccessControl(oauth),
            oauth=oauth,
            operator_token=operator_token,
            public_url=settings.public_url or "",
            github_url=settings.github_server_url.rstrip("/"),
            mention=settings.mention,
            delivery_counts=delivery_counts,
        )


def _build_oauth(settings: Settings) -> GitHubOAuth | None:
    if not (settings.oauth_client_id and settings.oauth_client_secret and settings.public_url):
        return None
    config = OAuthConfig(
        server_url=settings.github_server_url.rstrip("/"),
        api_url=settings.github_api_url,
        client_id=settings.oauth_client_id,
        client_secret=settings.oauth_client_secret.get_secret_value(),
        ca_bundle=settings.ca_bundle,
    )
    return GitHubOAuth(config)
