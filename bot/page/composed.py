"""The page with all that it needs."""

import contextlib
from collections.abc import AsyncIterator, Mapping

from starlette.types import ASGIApp

from bot.observe.archive import archive_of
from bot.page.gate import Gate
from bot.page.kit import Kit
from bot.page.live import Live
from bot.page.people import People, Place
from bot.page.site import site
from bot.page.source import Source
from bot.redis.engines import Engines
from bot.redis.inbox import Inbox
from bot.redis.lookout import Lookout
from bot.redis.presence import Presence
from bot.redis.queue import ArqQueue
from bot.redis.runs import Runs
from bot.redis.sessions import Sessions
from bot.redis.streams import Streams
from resolver.domain import RunId
from resolver.log import FileLogs
from resolver.secrets import Secrets
from resolver.settings.settings import Settings


@contextlib.asynccontextmanager
async def opened(
    settings: Settings, url: str, secrets: Secrets, deliveries: Mapping[tuple[str, str], int]
) -> AsyncIterator[ASGIApp]:
    """The application, on the Redis of this URL. Raises SettingsError."""
    async with contextlib.AsyncExitStack() as stack:
        operator_token = settings.operator_token.get_secret_value() if settings.operator_token else ""
        queue, runs, streams = ArqQueue(url), Runs(url), Streams(url)
        sessions = Sessions(url, operator_token=operator_token)
        inbox, presence, engines, lookout = Inbox(url), Presence(url), Engines(url), Lookout(url)
        for store in (queue, runs, sessions, streams, inbox, presence, engines, lookout):
            stack.push_async_callback(store.close)
        archive = archive_of(settings)
        files = FileLogs(settings.data / "runs")
        source = Source(streams, files, secrets, archive.read if archive else None)

        async def is_over(run: RunId) -> bool:
            known = await queue.state(run)
            return (known is None or known.state == "ended") and not await streams.is_written(run)

        live = Live(source, is_over)
        stack.push_async_callback(live.close)
        people = _people(settings)
        if people is not None:
            stack.push_async_callback(people.close)
        kit = Kit(
            runs=runs,
            sessions=sessions,
            queue=queue,
            inbox=inbox,
            presence=presence,
            engines=engines,
            lookout=lookout,
            live=live,
            gate=Gate(people),
            people=people,
            operator_token=operator_token,
            public_url=settings.public_url or "",
            deliveries=deliveries,
        )
        yield site(kit)


def _people(settings: Settings) -> People | None:
    if not (settings.oauth_client_id and settings.oauth_client_secret and settings.public_url):
        return None
    place = Place(
        server_url=settings.github_server_url.rstrip("/"),
        api_url=settings.github_api_url.rstrip("/"),
        client_id=settings.oauth_client_id,
        client_secret=settings.oauth_client_secret.get_secret_value(),
        ca_bundle=settings.ca_bundle,
    )
    return People(place)
