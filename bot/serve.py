"""The server on one machine: Redis, the receiver, and a process that works beside them.

The receiver stays small and quick, whatever the work needs; while no worker lives, deliveries are stored all the same.
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
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit

from bot.api import PATH, JobsApi
from bot.beyond import beyond
from bot.child import READY, dying_with_us, stop
from bot.embedded import embedded_redis
from bot.errors import QueueDown, WorkerFailed
from bot.http import Server, listening, url_of
from bot.redis.inbox import Inbox
from bot.redis.ledger import Ledger
from bot.redis.lookout import Lookout
from bot.redis.presence import Presence
from bot.redis.queue import ArqQueue
from bot.redis.runs import Runs
from bot.signals import signals
from bot.webhooks.receiver import App, Page, Receiver
from resolver.errors import SettingsError
from resolver.secrets import Secrets
from resolver.settings.settings import Settings

log = logging.getLogger(__name__)

STOP_SECONDS = 40.0  # for what runs to be cancelled and put away
# Seconds before a worker that died is started again; doubled each time.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
STEADY_SECONDS = 60.0  # a worker that lived so long did not die of its start


def webhook_secret(settings: Settings) -> str:
    """What deliveries are signed with; "" where none is expected. Raises SettingsError when it is missing."""
    secret = settings.webhook_secret.get_secret_value() if settings.webhook_secret else ""
    if not secret and not settings.poll:
        raise SettingsError(
            "PATCHWRIGHT_WEBHOOK_SECRET is not set: use the secret of the webhook on GitHub. "
            "Without a webhook: patchwright serve --poll."
        )
    return secret


async def serve(
    settings: Settings,
    worker: Sequence[str],
    environment: Mapping[str, str],
    *,
    host: str,
    port: int,
    secrets: Secrets | None = None,
    door: socket.socket | None = None,
    more: "Callable[[Stores, Mapping[tuple[str, str], int]], Mapping[str, App]] | None" = None,
    announce: Callable[[str], None] = lambda line: print(line, flush=True),
) -> signal.Signals:
    """Receiver, Redis (unless `settings.redis_url` names one) and worker until SIGTERM or SIGINT; which it was.

    `worker` is the command of a process that runs `bot.work.work`; empty: there is none here. It gets the URL of the
    Redis as REDIS_URL in `environment`. `port` 0 takes a free one; `door`: it is open already. `secrets`: what no page
    may show. `more`: further pages, made of what they are read from and of the deliveries by what became of them.
    `announce` gets lines for a person: the URL once jobs are taken, and what happens at a signal. Raises SettingsError,
    and WorkerFailed when the worker could not begin.
    """
    secret = webhook_secret(settings)
    ready = asyncio.Event()
    with (
        contextlib.nullcontext(door) if door else listening(host, port) as opened,
        signals(announce, STOP_SECONDS) as told,
    ):
        async with _redis(settings) as url, Stores.opened(url) as stores:
            receiver = Receiver(stores.inbox, secret, base=urlsplit(settings.public_url or "").path)
            receiver.pages = _pages(stores, receiver.counts)
            if settings.operator_token is not None:
                api = JobsApi(stores.queue, stores.runs, settings.operator_token.get_secret_value())
                receiver.apps = {PATH: api}
            if more is not None:
                receiver.apps = {**receiver.apps, **more(stores, receiver.counts)}
            receiver.beyond = page = beyond(settings, url, secrets or Secrets(), receiver.counts)
            server = Server(receiver)
            serving = asyncio.create_task(server.serve(sockets=[opened]))
            keeping = asyncio.create_task(_keep(worker, {**environment, "REDIS_URL": url}, ready))

            async def greet() -> None:
                await ready.wait()
                announce(_greeting(settings, url_of(opened), has_page=page is not None))
                if not worker:
                    return
                waits = False
                while not await stores.inbox.healthy():
                    if not waits:
                        announce("patchwright waits for its Redis, which does not answer: see REDIS_URL")
                    waits = True
                    await asyncio.sleep(FIRST_PAUSE)
                announce(
                    f"patchwright is ready: label an issue {settings.label}, or begin a comment with "
                    f"{settings.mention}; Ctrl-C stops it"
                )

            greeting = asyncio.create_task(greet())
            try:
                await asyncio.wait((serving, keeping, told), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if page is not None:
                    await page.close()  # else the server waits for those who watch a run
                server.should_exit = True
                greeting.cancel()
                keeping.cancel()
                await asyncio.gather(serving, keeping, greeting, return_exceptions=True)
        for task in (keeping, serving):
            if not task.cancelled():
                task.result()  # why it ended, if that was not our doing
        return told.result()


def _greeting(settings: Settings, url: str, *, has_page: bool) -> str:
    if settings.webhook_secret is not None:
        return f"patchwright listens on {url}/webhook"
    runs = f"its page is at {url}" if has_page else f"with PATCHWRIGHT_OPERATOR_TOKEN it has a page at {url}"
    return f"patchwright looks at GitHub again and again; {runs}"


@contextlib.asynccontextmanager
async def _redis(settings: Settings) -> AsyncIterator[str]:
    if settings.redis_url is not None:
        yield settings.redis_url
        return
    async with embedded_redis(settings.data) as url:
        yield url


@dataclass(frozen=True)
class Stores:
    """What the receiver's pages are read from."""

    inbox: Inbox
    presence: Presence
    queue: ArqQueue
    ledger: Ledger
    runs: Runs
    lookout: Lookout

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, url: str) -> AsyncIterator["Stores"]:
        stores = cls(Inbox(url), Presence(url), ArqQueue(url), Ledger(url), Runs(url), Lookout(url))
        try:
            yield stores
        finally:
            for store in vars(stores).values():
                await store.close()


def _pages(stores: Stores, deliveries: Mapping[tuple[str, str], int]) -> dict[str, Page]:
    async def alive() -> tuple[int, str, bytes]:
        return _json(200, {"version": _version()})

    async def ready() -> tuple[int, str, bytes]:
        workers, trouble = 0, None
        with contextlib.suppress(QueueDown):
            workers, trouble = await stores.presence.workers(), await stores.lookout.trouble()
        found = {"redis": await stores.inbox.healthy(), "worker": workers > 0}
        # GitHub away makes us no less ready: to be started anew, or reached by nobody, would mend nothing.
        more = {"github": trouble is None}
        return _json(200 if all(found.values()) else 503, {"version": _version(), **found, **more})

    async def metrics() -> tuple[int, str, bytes]:
        from bot.observe.metrics import CONTENT_TYPE, Figures, exposition

        try:
            inbox = await stores.inbox.size()  # first: what leaves it meanwhile is seen as a job
            jobs, oldest = await stores.queue.waiting()
            figures = Figures(
                deliveries=deliveries,
                counts=await stores.ledger.counts(),
                inbox=inbox,
                jobs=jobs,
                oldest_seconds=oldest,
                workers=await stores.presence.workers(),
            )
        except QueueDown as exc:
            return 503, "text/plain; charset=utf-8", f"{exc}\n".encode()
        return 200, CONTENT_TYPE, exposition(figures)

    return {"/healthz": alive, "/readyz": ready, "/metrics": metrics}


def _json(status: int, said: Mapping[str, object]) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(said).encode()


def _version() -> str:
    try:
        return version("patchwright")
    except PackageNotFoundError:  # from a checkout that was not installed
        return "unknown"


async def _keep(command: Sequence[str], environment: Mapping[str, str], ready: asyncio.Event) -> None:
    """Until cancelled, a worker runs; then none does. Raises WorkerFailed when the first one could not begin."""
    if not command:  # workers are elsewhere
        ready.set()
        await asyncio.Event().wait()
    pause = FIRST_PAUSE
    while True:
        begun = time.monotonic()
        worker = await asyncio.create_subprocess_exec(
            *dying_with_us(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C at a terminal is for us: we end it when deliveries are put away
        )
        try:
            assert worker.stdout is not None
            async for line in worker.stdout:
                if line.startswith(READY.encode()):
                    if ready.is_set():
                        log.info("worker ready again")
                    ready.set()
            code = await worker.wait()
        finally:
            await stop(worker, STOP_SECONDS)
        if not ready.is_set():
            raise WorkerFailed(code)
        log.error("worker ended", extra={"exit_code": code})
        pause = FIRST_PAUSE if time.monotonic() - begun > STEADY_SECONDS else min(2 * pause, LONGEST_PAUSE)
        await asyncio.sleep(pause)
