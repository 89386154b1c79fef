"""Runs the server: Redis, the receiver, and a worker process on one machine.

Jobs run in the worker, so that the receiver stays small and fast. While no worker is running, the receiver
still stores deliveries.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from patchwright.bot.api import API_PATHS
from patchwright.bot.conversation_models import OpenConversations
from patchwright.bot.http_server import HttpServer, listener_url
from patchwright.bot.redis.connection import find_redis_problem
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.signals import catch_stop_signals
from patchwright.bot.web.health_endpoints import HealthEndpoints
from patchwright.bot.web.lazy_application import LazyApplication
from patchwright.bot.web.redis_stores import RedisStores
from patchwright.bot.web.worker_supervisor import STOP_TIMEOUT_SECONDS, WorkerSupervisor
from patchwright.bot.webhooks.receiver import AsgiApp, Receiver
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings

REDIS_CHECK_SECONDS = 1.0  # time between two checks whether Redis responds at last

ExtraApps = Callable[[RedisStores, Mapping[tuple[str, str], int]], Mapping[str, AsgiApp]]
"""Returns additional applications by path. The second argument is the number of deliveries by event and result."""


def require_webhook_secret(settings: Settings) -> str:
    """Returns the webhook secret, or "" if the server polls GitHub without a webhook. Raises SettingsError if
    the settings contain no webhook secret and do not enable polling.
    """
    secret = settings.webhook_secret.get_secret_value() if settings.webhook_secret else ""
    if not secret and not settings.poll:
        browser_setup = (
            ""
            if settings.github_token is None
            else " Or run `unset GITHUB_TOKEN` to set the server up in the browser."
        )
        raise SettingsError(
            "PATCHWRIGHT_WEBHOOK_SECRET is not set. Set it to the secret of your GitHub webhook. "
            f"Without a webhook, run `patchwright serve --poll`.{browser_setup}"
        )
    return secret


@dataclass(frozen=True)
class ServerExtensions:
    """Parts of the server that only some deployments have."""

    extra_apps: ExtraApps | None = None
    open_conversations: OpenConversations | None = None
    """None if the API has no conversations."""


NO_EXTENSIONS = ServerExtensions()


async def run_server(
    settings: Settings,
    worker_command: Sequence[str],
    environment: Mapping[str, str],
    listener: socket.socket,
    *,
    secrets: Secrets | None = None,
    extensions: ServerExtensions = NO_EXTENSIONS,
    announce: Callable[[str], None] = lambda line: print(line, flush=True),
) -> signal.Signals:
    """Runs Redis, the receiver and a worker until SIGTERM or SIGINT. Returns the signal.

    If `settings.redis_url` is set, uses that Redis instead of running one. `worker_command` starts a process
    that calls `bot.worker.worker_process.run_worker`. The worker gets the variables in `environment`, and the URL of
    Redis as REDIS_URL. If `worker_command` is empty, runs no worker. `listener` is the open socket on which the
    receiver listens. `secrets` are masked on all pages.

    `announce` prints messages for people, for example when the server is ready or stops. Raises SettingsError, or
    WorkerFailed if the first worker does not start.
    """
    secret = require_webhook_secret(settings)
    with catch_stop_signals(announce, STOP_TIMEOUT_SECONDS) as stop_signal:
        async with _open_redis(settings) as url, RedisStores.open(url) as stores:
            receiver = Receiver(stores.inbox, secret, base_path=urlsplit(settings.public_url or "").path)
            deliveries = receiver.delivery_counts
            receiver.endpoints = HealthEndpoints(stores, deliveries).by_path()
            application = LazyApplication(
                settings, url, stores, secrets or Secrets(), deliveries, extensions.open_conversations
            )
            apps: dict[str, AsgiApp] = dict.fromkeys(API_PATHS, application)
            if extensions.extra_apps is not None:
                apps |= extensions.extra_apps(stores, deliveries)
            receiver.mounted_apps = apps
            if application.has_dashboard:
                receiver.fallback_app = application
            server = HttpServer(receiver)
            worker = WorkerSupervisor(worker_command, {**environment, "REDIS_URL": url})
            startup_message = _startup_message(
                settings, listener_url(listener), has_dashboard=application.has_dashboard
            )
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            supervising = asyncio.create_task(worker.run())
            greeting = asyncio.create_task(_greet(settings, worker, stores, url, startup_message, announce))
            try:
                await asyncio.wait((serving, supervising, stop_signal), return_when=asyncio.FIRST_COMPLETED)
            finally:
                # Otherwise, the server would wait for the browsers that watch a run.
                await application.close()
                server.should_exit = True
                greeting.cancel()
                supervising.cancel()
                await asyncio.gather(serving, supervising, greeting, return_exceptions=True)
        for task in (supervising, serving):
            if not task.cancelled():
                task.result()  # Raises the error of the task that ended.
        return stop_signal.result()


async def _greet(
    settings: Settings,
    worker: WorkerSupervisor,
    stores: RedisStores,
    redis_url: str,
    startup_message: str,
    announce: Callable[[str], None],
) -> None:
    """Announces the server and its worker. Lets the worker start as soon as Redis accepts writes."""
    is_redis_late = bool(worker.command) and not await stores.inbox.is_healthy()
    if is_redis_late:
        announce(startup_message)
        problem = await find_redis_problem(redis_url) or "Redis does not accept writes."
        announce(f"patchwright is waiting: {problem} Start it, or correct REDIS_URL.")
        while True:
            await asyncio.sleep(REDIS_CHECK_SECONDS)
            if await stores.inbox.is_healthy():
                break
    worker.can_start.set()
    await worker.ready.wait()
    if not is_redis_late:
        announce(startup_message)
    if worker.command:
        announce(
            f"patchwright is ready: add the label {settings.label} to an issue, or start a comment "
            f"with {settings.mention}. Press Ctrl-C to stop."
        )


def _startup_message(settings: Settings, url: str, *, has_dashboard: bool) -> str:
    if settings.webhook_secret is not None:
        return f"patchwright is listening on {url}/webhook"
    dashboard = (
        f"the dashboard is at {url}"
        if has_dashboard
        else f"set PATCHWRIGHT_OPERATOR_TOKEN for a dashboard at {url}"
    )
    return f"patchwright is polling GitHub; {dashboard}"


@contextlib.asynccontextmanager
async def _open_redis(settings: Settings) -> AsyncIterator[str]:
    if settings.redis_url is not None:
        yield settings.redis_url
        return
    async with run_embedded_redis(settings.data) as url:
        yield url
