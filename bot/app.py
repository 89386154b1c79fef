"""The server: deliveries are checked, stored and answered; a worker beside it does the jobs.

GitHub waits 10 s for an answer and never sends a failed delivery again by itself: nothing slow happens here, and
2xx is said only of what is stored. Source: docs.github.com/webhooks/using-webhooks/handling-failed-webhook-deliveries
"""

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from bot.embedded import embedded_redis
from bot.jobs import Queue, QueueDown
from bot.queue import ArqQueue
from bot.triggers import Triggers, job_for
from bot.webhook import GUID, Forged, Ping, Unreadable, verify
from bot.worker import Apologize, Resolve, Worker
from resolver.errors import SettingsError
from resolver.settings import Settings

log = logging.getLogger(__name__)

MOST_BYTES = (
    25 * 1024 * 1024
)  # GitHub's own cap on a payload: docs.github.com/webhooks/webhook-events-and-payloads
MOST_HELD = 8 * MOST_BYTES  # of all bodies under way: whoever sends them is not known before their last byte
BODY_SECONDS = 10.0  # GitHub has hung up by then
HEAD_SECONDS = 10.0
STORE_SECONDS = 7.0
STOP_SECONDS = 30.0  # for what runs to be cancelled and put away


class TooLarge(Exception):
    """The body is larger than any delivery of GitHub's."""


class TooMany(Exception):
    """The bodies that are being received fill the memory set aside for them."""


# --- the application ----------------------------------------------------------------------------------------


def application(
    queue: Queue,
    rules: Triggers,
    secret: str,
    works: Callable[[], bool],
    *,
    body_seconds: float = BODY_SECONDS,
) -> FastAPI:
    """The ASGI application. `works`: whether the worker beside it is alive."""
    intake = _Intake()

    async def webhook(request: Request) -> JSONResponse:
        try:
            async with asyncio.timeout(body_seconds):
                body = await intake.body(request)
        except TimeoutError:
            return _answer(408, "slow", "The body did not come in time.", hang_up=True)
        except TooLarge:
            return _answer(413, "too large", f"The body has more than {MOST_BYTES} bytes.", hang_up=True)
        except TooMany:
            return _answer(503, "busy", "Too much is being received.", hang_up=True)
        except ClientDisconnect:
            return _answer(400, "cut", "The body is incomplete.")
        guid = request.headers.get(GUID, "")[:64]
        try:
            delivery = verify(request.headers, body, secret)
        except Forged as exc:
            log.warning("delivery forged", extra={"delivery": guid})
            return _answer(401, "forged", str(exc))
        except Unreadable as exc:
            log.warning("delivery unreadable", extra={"delivery": guid, "reason": str(exc)})
            return _answer(400, "unreadable", str(exc))
        if isinstance(delivery, Ping):
            return _answer(200, "pong")
        if (job := job_for(delivery, rules)) is None:
            return _answer(202, "ignored")
        try:
            async with asyncio.timeout(STORE_SECONDS):
                fresh = await queue.put(job)
        except (QueueDown, TimeoutError):
            # GitHub shows the delivery as failed, and it can be asked for again.
            log.error("delivery not stored", extra={"delivery": guid, "job": job.id})
            return _answer(503, "not stored", "The queue does not answer.")
        log.info("job queued" if fresh else "job known", extra={"delivery": guid, "job": job.id})
        return _answer(202, "queued" if fresh else "known", job=job.id)

    async def healthz(request: Request) -> JSONResponse:
        found = {"redis": await queue.healthy(), "worker": works()}
        return JSONResponse({"version": _version(), **found}, 200 if all(found.values()) else 503)

    return FastAPI(
        routes=[Route("/webhook", webhook, methods=["POST"]), Route("/healthz", healthz)],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )


class _Intake:
    """Receives bodies, within limits that hold whatever their headers claim."""

    def __init__(self) -> None:
        self._held = 0

    async def body(self, request: Request) -> bytes:
        """The raw body. Raises TooLarge or TooMany as soon as that is known."""
        claimed = request.headers.get("content-length", "")
        if claimed.isdecimal() and len(claimed) < 20 and int(claimed) > MOST_BYTES:
            raise TooLarge
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                self._held += len(chunk)
                if len(body) > MOST_BYTES:
                    raise TooLarge
                if self._held > MOST_HELD:
                    raise TooMany
            return bytes(body)
        finally:
            self._held -= len(body)


def _answer(status: int, what: str, why: str = "", *, job: str = "", hang_up: bool = False) -> JSONResponse:
    """What a person sees in GitHub's list of deliveries."""
    said = {"status": what, "why": why, "job": job}
    headers = {"connection": "close"} if hang_up else None
    return JSONResponse({key: value for key, value in said.items() if value}, status, headers)


def _version() -> str:
    try:
        return version("patchwright")
    except PackageNotFoundError:  # from a checkout that was not installed
        return "unknown"


# --- the process --------------------------------------------------------------------------------------------


def webhook_secret(settings: Settings) -> str:
    """What deliveries are signed with. Raises SettingsError when there is none."""
    secret = settings.webhook_secret.get_secret_value() if settings.webhook_secret else ""
    if not secret:
        raise SettingsError("PATCHWRIGHT_WEBHOOK_SECRET is not set: use the secret of the webhook on GitHub.")
    return secret


async def serve(
    settings: Settings,
    resolve: Resolve,
    apologize: Apologize,
    *,
    host: str,
    port: int,
    announce: Callable[[str], None] = lambda line: print(line, flush=True),
) -> signal.Signals:
    """Receiver, Redis (unless `settings.redis_url` names one) and worker until SIGTERM or SIGINT; which it was.

    `port` 0 takes a free one; `announce` gets one line with the URL once deliveries are taken. What runs at the
    end goes back into the queue and on at the next start. Raises SettingsError.
    """
    secret = webhook_secret(settings)
    rules = Triggers(label=settings.label, mention=settings.mention, app_id=settings.app_id)
    with _listen(host, port) as listening:
        async with _queue(settings) as queue:
            with _signals() as told:
                work = asyncio.create_task(queue.work(Worker(resolve, apologize).run))
                server = _Server(_config(application(queue, rules, secret, lambda: not work.done())))
                serving = asyncio.create_task(server.serve(sockets=[listening]))
                try:
                    announce(f"patchwright listens on {_url(listening)}/webhook")
                    await asyncio.wait((work, serving, told), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    server.should_exit = True
                    work.cancel()
                    _, late = await asyncio.wait((work, serving), timeout=STOP_SECONDS)
                    if late:
                        log.error("not stopped in time", extra={"seconds": STOP_SECONDS})
            for task in (work, serving):
                if task.done() and not task.cancelled():
                    task.result()  # a fault of ours: let it be seen
            return told.result()


@contextlib.asynccontextmanager
async def _queue(settings: Settings) -> AsyncIterator[ArqQueue]:
    async with contextlib.AsyncExitStack() as stack:
        if (url := settings.redis_url) is None:
            url = await stack.enter_async_context(embedded_redis(settings.data))
        # Nobody else can work on a Redis of our own: its directory is locked.
        queue = ArqQueue(url, sole=settings.redis_url is None)
        stack.push_async_callback(queue.close)
        yield queue


@contextlib.contextmanager
def _listen(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as exc:
        raise SettingsError(f"Cannot listen on {host} port {port} ({exc}): see --host and --port.") from exc
    with listening:
        yield listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ipaddress.ip_address(host).version == 6 else f"http://{host}:{port}"


@contextlib.contextmanager
def _signals() -> Iterator[asyncio.Future[signal.Signals]]:
    """Done with the signal that tells us to go."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[signal.Signals] = loop.create_future()

    def note(number: signal.Signals) -> None:
        if not told.done():
            told.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, note, number)
    try:
        yield told
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # they are `serve`'s


class _Protocol(H11Protocol):
    """HTTP, for senders that send: uvicorn waits for the head of a first request for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(HEAD_SECONDS, self._hang_up_if_silent)

    def _hang_up_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


def _config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_Protocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
