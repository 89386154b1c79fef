"""Measures what an idle conversation keeps in memory, and how fast watchers see the events of a conversation.

The server is `patchwright serve` with its HTTP API, on a Redis of its own. Each of 500 conversations gets a message,
runs until its agent has answered (a recorded model, one container for all), and waits for the next message with a
WebSocket open. `conversations_idle` and `conversations_idle_watched` are the memory of each in the server's process,
without and with the WebSocket, after ten others have loaded what all need. `conversations_server_memory` is the server
before the first conversation, after a first request to the API.

Then another process writes to a conversation's log, as an agent on another server does. 50 WebSockets receive 25 events
per second: the time is from the event's timestamp, before it is written to disk and to Redis, until a watcher has it.
200 WebSockets receive events as fast as they come; `conversations_relayed_cpu` is the server's processor time for one
event to all of them, which says more than the time on a busy machine.

Floor, in the same run: a bare FastAPI application that sends each text that it receives on a WebSocket to all others.
Peer: see benchmarks/openhands.py. It takes some minutes: `script/bench long`.
"""

import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import httpx
from websockets.asyncio.client import connect

from benchmarks.conversation_server import (
    KEY,
    TEXT,
    Server,
    Watchers,
    agent,
    post,
    serve,
    start,
)
from benchmarks.measure import Result, report
from benchmarks.openhands import WATCHERS as PEER_WATCHERS
from benchmarks.openhands import find_openhands_python, serve_openhands
from patchwright.bot.redis.conversation_records import ConversationRecords
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.shared_run_log import SharedLogStore
from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.resolver.events import Message
from patchwright.resolver.run_log import FileLogStore

FIRST, IDLE, AT_ONCE = 10, 500, 8
WATCHERS, EVENTS, PAUSE = 50, 250, 0.04
MANY_WATCHERS, BURST = 200, 200

FLOOR = """
import uvloop
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from patchwright.bot.http_server import HttpServer, listener_url, open_listener
app, watchers = FastAPI(), set()
@app.websocket("/watch")
async def watch(socket: WebSocket) -> None:
    await socket.accept()
    watchers.add(socket)
    try:
        await socket.receive_text()
    except WebSocketDisconnect:
        watchers.remove(socket)
@app.websocket("/write")
async def write(socket: WebSocket) -> None:
    await socket.accept()
    while True:
        text = await socket.receive_text()
        for watcher in tuple(watchers):
            await watcher.send_text(text)
with open_listener("127.0.0.1", 0) as listener:
    print(listener_url(listener), flush=True)
    uvloop.run(HttpServer(app).serve(sockets=[listener]))
"""

Write = Callable[[], Awaitable[object]]


class Figures(NamedTuple):
    """How fast events reach their watchers."""

    waits: list[float]
    rate: float
    cpu: float
    """Milliseconds of the server for one event to all watchers."""


def measure() -> list[Result]:
    """Returns kB, milliseconds, and events per second."""
    return asyncio.run(_measure())


async def _measure() -> list[Result]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        directory = Path(name)
        async with run_embedded_redis(directory) as redis, serve(directory, redis) as server:
            async with server.client() as client:
                await client.get("/conversations")
            memory = server.kilobytes / 1000
            idle, watched, state = await _open_conversations(server)
            ours = await _relay(server, redis, directory)
        async with start((sys.executable, "-c", FLOOR), {}) as bare:
            bare_watched = await _open_bare(bare)
            floor = await _relay_bare(bare)

    peer = await _measure_openhands() if find_openhands_python() else {}

    def result(name: str, value: float, unit: str, floor: float | None, target: float | None) -> Result:
        least = None if floor is None else round(floor, 1)
        return Result(
            name=f"conversations_{name}",
            value=round(value, 1),
            unit=unit,
            floor=least,
            target=target,
            peers={"OpenHands": peer[name]} if name in peer else {},
        )

    return [
        result("server_memory", memory, "MB", None, None),
        result("idle", idle, "kB", None, 200),
        result("idle_watched", watched, "kB", bare_watched, 200),
        result("idle_state", state, "ms", None, None),
        result("event_p50", statistics.median(ours.waits), "ms", statistics.median(floor.waits), None),
        result("event_p99", p99(ours.waits), "ms", p99(floor.waits), 50),
        result("relayed", ours.rate, "/s", floor.rate, None).model_copy(update={"better": "higher"}),
        result("relayed_cpu", ours.cpu, "ms", floor.cpu, None),
    ]


def p99(waits: list[float]) -> float:
    return statistics.quantiles(waits, n=100)[98]


async def _open_conversations(server: Server) -> tuple[float, float, float]:
    """Returns the kB of each idle conversation, without and with a watcher, and the milliseconds in which the state of
    one can be read while all are watched.
    """
    async with server.client() as client, RecordedModel((RecordedTurn("Yes."),), key=KEY) as model:
        workspace = (await post(client, "/workspaces", {}))["id"]
        gate = asyncio.Semaphore(AT_ONCE)

        async def converse(number: int) -> str:
            async with gate:
                body = {"id": f"c-{number}", "workspace": workspace, "agent": agent(model)}
                path = f"/conversations/{(await post(client, '/conversations', body))['id']}"
                await post(client, f"{path}/messages", {"text": "Is it there?"})
                await post(client, f"{path}/run")
                while (state := (await client.get(path)).json())["status"] != "finished":
                    if state["status"] not in ("running", "idle"):
                        raise RuntimeError(state["detail"])
                    await asyncio.sleep(0.1)
                return f"{server.socket_url}{path}/events"

        first = [await converse(number) for number in range(FIRST)]
        async with Watchers(first):
            before = server.kilobytes
            urls = await asyncio.gather(*(converse(FIRST + number) for number in range(IDLE)))
            idle = server.kilobytes
            async with Watchers(urls):
                watched = server.kilobytes
                state = statistics.median([await _timed(client, "/conversations/c-1") for _ in range(20)])
    return (idle - before) / IDLE, (watched - before) / IDLE, state


async def _timed(client: httpx.AsyncClient, path: str) -> float:
    started_at = time.perf_counter()
    (await client.get(path)).raise_for_status()
    return 1000 * (time.perf_counter() - started_at)


async def _relay(server: Server, redis: str, directory: Path) -> Figures:
    """Lets another process write to the logs of two conversations, as an agent on another server does."""
    logs = SharedLogStore(FileLogStore(directory / "another-server"), redis)
    records = ConversationRecords(redis)
    async with (
        server.client() as client,
        RecordedModel((), key=KEY) as model,
        contextlib.AsyncExitStack() as stack,
    ):
        workspace = (await post(client, "/workspaces", {}))["id"]
        writers = []
        for id in ("even", "burst"):
            await post(client, "/conversations", {"id": id, "workspace": workspace, "agent": agent(model)})
            record = await records.get_conversation(id)
            assert record is not None
            log = await stack.enter_async_context(logs.open(record.log))
            writers.append(log.append)
        message = Message(text=TEXT, source="program")
        url = f"{server.socket_url}/conversations/{{}}/events"
        waits = await even(url.format("even"), lambda: writers[0](message))
        rate, cpu = await burst(server, url.format("burst"), lambda: writers[1](message))
    await logs.close()
    await records.close()
    return Figures(waits, rate, cpu)


async def _relay_bare(server: Server) -> Figures:
    async with connect(f"{server.socket_url}/write", proxy=None) as socket:

        async def write() -> None:
            await socket.send(json.dumps({"timestamp": datetime.now(UTC).isoformat(), "text": TEXT}))

        url = f"{server.socket_url}/watch"
        return Figures(await even(url, write), *await burst(server, url, write))


async def even(url: str, write: Write) -> list[float]:
    """Returns the milliseconds from each of 250 events to each of 50 watchers."""
    return await _write_evenly(Watchers([url] * WATCHERS, EVENTS), write)


async def _write_evenly(opening: Watchers, write: Write) -> list[float]:
    async with opening as watchers:
        for _ in range(EVENTS):
            started_at = time.perf_counter()
            await write()
            await asyncio.sleep(max(0.0, started_at + PAUSE - time.perf_counter()))
        return (await watchers.relayed()).waits


async def burst(server: Server, url: str, write: Write) -> tuple[float, float]:
    """Returns the events per second to 200 watchers, and the processor time of the server for each in milliseconds."""
    async with Watchers([url] * MANY_WATCHERS, BURST) as watchers:
        before = server.cpu_seconds
        for _ in range(BURST):
            await write()
        seconds = (await watchers.relayed()).seconds
        return BURST / seconds, 1000 * (server.cpu_seconds - before) / BURST


async def _measure_openhands() -> dict[str, float]:
    """Returns the figures of the server of OpenHands that ours are compared with."""
    async with serve_openhands(find_openhands_python() or "") as peer:
        watchers = Watchers([peer.events] * PEER_WATCHERS, EVENTS, {}, is_greeted=True)
        waits = await _write_evenly(watchers, lambda: peer.write(TEXT))
        return {
            "server_memory": round(peer.megabytes, 1),
            "event_p50": round(statistics.median(waits), 1),
            "event_p99": round(p99(waits), 1),
        }


async def _open_bare(server: Server) -> float:
    """Returns the kB of each idle WebSocket."""
    url = f"{server.socket_url}/watch"
    async with Watchers([url] * FIRST):
        before = server.kilobytes
        async with Watchers([url] * IDLE):
            return (server.kilobytes - before) / IDLE


if __name__ == "__main__":
    report(measure())
