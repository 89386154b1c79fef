"""Runs the server: Redis, the receiver, and a worker process on one machine.

Jobs run in the worker, so that the receiver stays small and fast. While no worker is running, the receiver
still stores deliveries.
"""

import asyncio
import contextlib
import json
import logging
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from patchwright.bot.child_process import WORKER_READY_PREFIX, stop_process, with_parent_death_signal
from patchwright.bot.errors import QueueDown, WorkerFailed
from patchwright.bot.http_server import HttpServer, listener_url, open_listener
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.connection import find_redis_problem
from patchwright.bot.redis.counters import Counters
from patchwright.bot.redis.delivery_inbox import DeliveryInbox
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.heartbeats import Heartbeats
from patchwright.bot.redis.leader_lease import LeaderLease
from patchwright.bot.redis.shared_run_index import SharedRunIndex
from patchwright.bot.signals import catch_stop_signals
from patchwright.bot.web.jobs_api import JOBS_PATH, JobsApi
from patchwright.bot.web.lazy_dashboard import build_lazy_dashboard
from patchwright.bot.webhooks.receiver import AsgiApp, GetEndpoint, Receiver
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime import VERSION

log = logging.getLogger(__name__)

STOP_TIMEOUT_SECONDS = 40.0  # How long running jobs may take to stop and save their work.
# Seconds before a worker that exited is restarted. The time doubles with each restart.
FIRST_RESTART_SECONDS, MAX_RESTART_SECONDS = 1.0, 60.0
STABLE_SECONDS = 60.0  # After a worker has run this long, the restart delay starts again at its first value.


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


async def run_server(
    settings: Settings,
    worker_command: Sequence[str],
    environment: Mapping[str, str],
    *,
    host: str,
    port: int,
    secrets: Secrets | None = None,
    listener: socket.socket | None = None,
    extra_apps: "Callable[[RedisStores, Mapping[tuple[str, str], int]], Mapping[str, AsgiApp]] | None" = None,
    announce: Callable[[str], None] = lambda line: print(line, flush=True),
) -> signal.Signals:
    """Runs Redis, the receiver and a worker until SIGTERM or SIGINT. Returns the signal.

    If `settings.redis_url` is set, uses that Redis instead of running one. `worker_command` starts a process
    that calls `bot.worker.worker_process.run_worker`. The worker gets the variables in `environment`, and the URL of
    Redis as REDIS_URL. If `worker_command` is empty, runs no worker. If `port` is 0, chooses a free port.
    `listener` is an open socket to use instead of `host` and `port`. `secrets` are masked on all pages.

    `extra_apps` returns additional applications by path. Its arguments are the stores and the delivery
    counts. `announce` prints messages for people, for example when the server is ready or stops. Raises
    SettingsError, or WorkerFailed if the first worker does not start.
    """
    secret = require_webhook_secret(settings)
    ready = asyncio.Event()
    with (
        contextlib.nullcontext(listener) if listener else open_listener(host, port) as server_socket,
        catch_stop_signals(announce, STOP_TIMEOUT_SECONDS) as stop_signal,
    ):
        async with _open_redis(settings) as url, RedisStores.open(url) as stores:
            receiver = Receiver(stores.inbox, secret, base_path=urlsplit(settings.public_url or "").path)
            receiver.endpoints = _health_endpoints(stores, receiver.delivery_counts)
            if settings.operator_token is not None:
                api = JobsApi(stores.queue, stores.runs, settings.operator_token.get_secret_value())
                receiver.mounted_apps = {JOBS_PATH: api}
            if extra_apps is not None:
                receiver.mounted_apps = {
                    **receiver.mounted_apps,
                    **extra_apps(stores, receiver.delivery_counts),
                }
            receiver.fallback_app = dashboard = build_lazy_dashboard(
                settings, url, secrets or Secrets(), receiver.delivery_counts
            )
            server = HttpServer(receiver)
            serving = asyncio.create_task(server.serve(sockets=[server_socket]))
            can_start = asyncio.Event()
            startup_message = _startup_message(
                settings, listener_url(server_socket), has_dashboard=dashboard is not None
            )

            async def greet() -> None:
                is_redis_late = bool(worker_command) and not await stores.inbox.is_healthy()
                if is_redis_late:
                    announce(startup_message)
                    problem = await find_redis_problem(url) or "Redis does not accept writes."
                    announce(f"patchwright is waiting: {problem} Start it, or correct REDIS_URL.")
                    while True:
                        await asyncio.sleep(FIRST_RESTART_SECONDS)
                        if await stores.inbox.is_healthy():
                            break
                can_start.set()
                await ready.wait()
                if not is_redis_late:
                    announce(startup_message)
                if worker_command:
                    announce(
                        f"patchwright is ready: add the label {settings.label} to an issue, or start a comment "
                        f"with {settings.mention}. Press Ctrl-C to stop."
                    )

            async def supervise() -> None:
                await can_start.wait()  # A worker exits if Redis does not respond when it starts.
                await _supervise_worker(worker_command, {**environment, "REDIS_URL": url}, ready)

            greeting = asyncio.create_task(greet())
            supervising = asyncio.create_task(supervise())
            try:
                await asyncio.wait((serving, supervising, stop_signal), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if dashboard is not None:
                    # Otherwise, the server would wait for the browsers that watch a run.
                    await dashboard.close()
                server.should_exit = True
                greeting.cancel()
                supervising.cancel()
                await asyncio.gather(serving, supervising, greeting, return_exceptions=True)
        for task in (supervising, serving):
            if not task.cancelled():
                task.result()  # Raises the error of the task that ended.
        return stop_signal.result()


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


@dataclass(frozen=True)
class RedisStores:
    """The Redis stores that the HTTP endpoints read."""

    inbox: DeliveryInbox
    heartbeats: Heartbeats
    queue: ArqQueue
    counters: Counters
    runs: SharedRunIndex
    leader_lease: LeaderLease

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator["RedisStores"]:
        stores = cls(
            DeliveryInbox(url),
            Heartbeats(url),
            ArqQueue(url),
            Counters(url),
            SharedRunIndex(url),
            LeaderLease(url),
        )
        try:
            yield stores
        finally:
            for store in vars(stores).values():
                await store.close()


def _health_endpoints(
    stores: RedisStores, deliveries: Mapping[tuple[str, str], int]
) -> dict[str, GetEndpoint]:
    async def alive() -> tuple[int, str, bytes]:
        return _json_response(200, {"version": VERSION})

    async def ready() -> tuple[int, str, bytes]:
        workers, github_failure = 0, None
        with contextlib.suppress(QueueDown):
            workers, github_failure = (
                await stores.heartbeats.count_workers(),
                await stores.leader_lease.fetch_failure(),
            )
        checks = {"redis": await stores.inbox.is_healthy(), "worker": workers > 0}
        # An outage of GitHub does not affect readiness, because restarting or isolating this server would not
        # help.
        details = {"github": github_failure is None}
        return _json_response(200 if all(checks.values()) else 503, {"version": VERSION, **checks, **details})

    async def metrics() -> tuple[int, str, bytes]:
        from patchwright.bot.observe.metrics import CONTENT_TYPE, MetricsSnapshot, render_metrics

        try:
            # The inbox is read before the jobs. Otherwise, a delivery that becomes a job between the two
            # reads would not be counted.
            inbox_size = await stores.inbox.size()
            jobs, oldest_job_seconds = await stores.queue.measure_backlog()
            snapshot = MetricsSnapshot(
                deliveries=deliveries,
                counts=await stores.counters.fetch_counts(),
                inbox_size=inbox_size,
                jobs=jobs,
                oldest_job_seconds=oldest_job_seconds,
                workers=await stores.heartbeats.count_workers(),
            )
        except QueueDown as exc:
            return 503, "text/plain; charset=utf-8", f"{exc}\n".encode()
        return 200, CONTENT_TYPE, render_metrics(snapshot)

    return {"/healthz": alive, "/readyz": ready, "/metrics": metrics}


def _json_response(status: int, content: Mapping[str, object]) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(content).encode()


async def _supervise_worker(
    command: Sequence[str], environment: Mapping[str, str], ready: asyncio.Event
) -> None:
    """Runs a worker, and restarts it whenever it exits, until canceled. Raises WorkerFailed if the first
    worker does not start.
    """
    if not command:  # Workers run elsewhere.
        ready.set()
        await asyncio.Event().wait()
    delay = FIRST_RESTART_SECONDS
    while True:
        started = time.monotonic()
        worker = await asyncio.create_subprocess_exec(
            *with_parent_death_signal(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # Ctrl-C in a terminal must not reach the worker, because the server stops the receiver first.
            start_new_session=True,
        )
        try:
            assert worker.stdout is not None
            async for line in worker.stdout:
                if line.startswith(WORKER_READY_PREFIX.encode()):
                    if ready.is_set():
                        log.info("worker ready again")
                    ready.set()
            code = await worker.wait()
        finally:
            await stop_process(worker, STOP_TIMEOUT_SECONDS)
        if not ready.is_set():
            raise WorkerFailed(code)
        log.error("worker exited", extra={"exit_code": code})
        delay = (
            FIRST_RESTART_SECONDS
            if time.monotonic() - started > STABLE_SECONDS
            else min(2 * delay, MAX_RESTART_SECONDS)
        )
        await asyncio.sleep(delay)
