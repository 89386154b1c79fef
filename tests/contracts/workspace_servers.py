"""A server with conversations and workspaces, in a process of its own."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx

from patchwright.bot.redis.embedded_redis import find_redis_server
from tests.preloaded_command import preloaded_command

TOKEN = "an-operator-token-for-tests"


@contextlib.contextmanager
def run_redis(directory: Path) -> Iterator[str]:
    """Yields the URL of a Redis server of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    socket = Path(tempfile.mkdtemp(prefix="redis-")) / "s"  # The path of a socket must be short.
    options = ("--port", "0", "--unixsocket", str(socket), "--dir", str(directory), "--save", "")
    process = subprocess.Popen([find_redis_server(), *options], stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if socket.exists():
                break
            time.sleep(0.05)
        yield f"unix://{socket}"
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(socket.parent)


def start_server(data: Path, port: str = "0", **variables: str) -> tuple[subprocess.Popen[str], str]:
    """Starts `patchwright serve` without a worker. Returns the process and the server's address."""
    environment = {
        **os.environ,
        "PATCHWRIGHT_DATA": str(data),
        "PATCHWRIGHT_OPERATOR_TOKEN": TOKEN,
        "PATCHWRIGHT_WEBHOOK_SECRET": "a-webhook-secret",
        "PATCHWRIGHT_IMAGE": "debian:bookworm-slim",
        "PATCHWRIGHT_SANDBOX_FEATURES": "none",
        "PATCHWRIGHT_NETWORK": "none",
        "GITHUB_TOKEN": "ghp_of_tests",
        **variables,
    }
    command = [*preloaded_command(), "serve", "--no-worker", "--port", port]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://[\w.:]+", line):
            return process, found[0]
    raise AssertionError("the server did not start")


def wait_until_ready(host: str) -> None:
    for _ in range(100):
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{host}/openapi.json").is_success:
                return
        time.sleep(0.1)
    raise AssertionError("the server does not answer")


@contextlib.contextmanager
def serve_workspaces(data: Path, variables: Mapping[str, str] = {}) -> Iterator[tuple[str, str]]:
    """Yields the address of a server and an API key."""
    data.mkdir(exist_ok=True)
    with run_redis(data / "redis") as redis_url:
        process, host = start_server(data, REDIS_URL=redis_url, **variables)
        try:
            wait_until_ready(host)
            yield host, TOKEN
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
