"""Servers with conversations, and watchers of their events, for the benchmarks of the HTTP API.

`python -m benchmarks.conversation_server` reads from standard input which WebSockets to open. It prints a line when all
are open, and another one with what they have received (`Watchers`).
"""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import uvloop
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.measure import stopped
from patchwright.bot.http_server import open_listener
from patchwright.demo.recorded_model import RecordedModel

ROOT = Path(__file__).parents[1]
TOKEN = "operator-token-of-a-benchmark"
KEY = "sk-benchmark"
TEXT = (
    "The separator is looked for before the line is stripped, so the last field of the line is dropped. " * 4
)
OPENING_AT_ONCE = 16
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}


@dataclass(frozen=True)
class Server:
    """One `patchwright serve` without a worker."""

    url: str
    process: subprocess.Popen[str]

    @property
    def kilobytes(self) -> float:
        """Memory in 10^3 bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1.024

    @property
    def cpu_seconds(self) -> float:
        """Processor time since its start."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def socket_url(self) -> str:
        return self.url.replace("http", "ws", 1)

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.url, headers=AUTHORIZED, trust_env=False, timeout=120, limits=httpx.Limits()
        )


def free_port() -> int:
    """Returns a port that no program uses."""
    with open_listener("127.0.0.1", 0) as listener:
        return int(listener.getsockname()[1])


@contextlib.asynccontextmanager
async def serve(data: Path, redis: str, variables: Mapping[str, str] = {}) -> AsyncIterator[Server]:
    """Runs a server whose containers need no image of their own."""
    environment = os.environ | {
        "PATCHWRIGHT_DATA": str(data),
        "PATCHWRIGHT_OPERATOR_TOKEN": TOKEN,
        "PATCHWRIGHT_WEBHOOK_SECRET": "a-secret-of-a-benchmark",
        "PATCHWRIGHT_IMAGE": "debian:bookworm-slim",
        "PATCHWRIGHT_SANDBOX_FEATURES": "none",
        "PATCHWRIGHT_NETWORK": "none",
        "GITHUB_TOKEN": "ghp_of_a_benchmark",
        "REDIS_URL": redis,
        **variables,
    }
    command = (sys.executable, "-m", "patchwright", "serve", "--no-worker", "--port", "0")
    async with start(command, environment) as server:
        yield server


@contextlib.asynccontextmanager
async def start(command: tuple[str, ...], environment: Mapping[str, str]) -> AsyncIterator[Server]:
    """Runs a program that prints its address."""
    process = subprocess.Popen(  # noqa: ASYNC220  # takes a millisecond
        command, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    with stopped(process):
        for line in process.stdout:
            if found := re.search(r"http://[\w.:]+", line):
                break
        else:
            raise RuntimeError("the server does not start")
        yield Server(found[0], process)


def agent(model: RecordedModel) -> dict[str, object]:
    """Returns an agent that answers with the recorded model."""
    llm = {
        "kind": "LLM",
        "model": "openai/recorded",
        "api_key": KEY,
        "base_url": model.base_url,
        "input_price": 2,
        "output_price": 8,
    }
    return {"kind": "Agent", "llm": llm, "tools": ["run_shell", "view_file", "replace_text", "finish"]}


async def post(client: httpx.AsyncClient, path: str, body: object = None) -> dict[str, Any]:
    """Returns the response to a POST. Raises HTTPStatusError."""
    response = await client.post(path, json=body)
    response.raise_for_status()
    answer: dict[str, Any] = response.json()
    return answer


class Relayed(NamedTuple):
    """What all watchers have received."""

    waits: list[float]
    """Milliseconds from the timestamp of an event until a watcher had it, for each of both."""
    seconds: float
    """From the first timestamp until the last watcher had the last event."""


class Watchers:
    """WebSockets in a process of their own, which receive messages with TEXT."""

    def __init__(
        self,
        urls: Sequence[str],
        count: int = 0,
        headers: Mapping[str, str] = AUTHORIZED,
        *,
        is_greeted: bool = False,
    ) -> None:
        """`count` is the number of messages that each receives; 0 if they only stay connected. `is_greeted` if a
        WebSocket misses all messages before the first one that the server sends to it.
        """
        self._input = json.dumps(
            {"urls": urls, "count": count, "headers": dict(headers), "is_greeted": is_greeted}
        )

    async def __aenter__(self) -> "Watchers":
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.conversation_server"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, limit=1 << 28,
        )  # fmt: skip
        assert self._process.stdin
        self._process.stdin.write(self._input.encode() + b"\n")
        if await self._line() != b"ready\n":
            raise RuntimeError("the watchers could not connect")
        return self

    async def relayed(self) -> Relayed:
        """Waits until each watcher has received its last message."""
        if not (line := await self._line()):
            raise RuntimeError("a watcher was disconnected")
        return Relayed(*json.loads(line))

    async def _line(self) -> bytes:
        assert self._process.stdout
        async with asyncio.timeout(300):
            return await self._process.stdout.readline()

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.communicate()


async def _watch(urls: list[str], count: int, headers: dict[str, str], is_greeted: bool) -> None:
    gate = asyncio.Semaphore(OPENING_AT_ONCE)

    async def open_socket(url: str) -> ClientConnection:
        async with gate:
            socket = await connect(
                url, additional_headers=headers, open_timeout=120, ping_interval=None, proxy=None
            )
            if is_greeted:
                await socket.recv()
            return socket

    sockets = await asyncio.gather(*map(open_socket, urls))
    print("ready", flush=True)
    received: list[tuple[float, str]] = []

    async def receive(socket: Any) -> None:
        missing = count
        async for text in socket:
            if TEXT in text:
                received.append((time.time(), text))
                missing -= 1
                if not missing:
                    return

    await asyncio.gather(*map(receive, sockets))
    written = [datetime.fromisoformat(json.loads(text)["timestamp"]).timestamp() for _, text in received]
    waits = [1000 * (at - then) for (at, _), then in zip(received, written, strict=True)]
    print(json.dumps((waits, max(received)[0] - min(written))), flush=True)


if __name__ == "__main__":
    uvloop.run(_watch(**json.loads(sys.stdin.readline())))
