"""Conversations whose server or worker is killed with SIGKILL: another process continues them, and no client asks."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from websockets.asyncio.client import connect

from patchwright import LLM, Conversation, RemoteWorkspace, default_agent
from patchwright.bot.conversation_models import ConversationRecord
from patchwright.bot.redis.connection import blocking_client
from patchwright.bot.redis.conversation_records import CONVERSATIONS_KEY
from patchwright.bot.redis.shared_run_log import stream_key
from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import CreateFile, RunShell
from tests.contracts.workspace_servers import TOKEN, run_redis, start_server, wait_until_ready
from tests.preloaded_command import preloaded_command
from tests.sdk.model_endpoint import KEY, serve_model

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.redis]

WRITE = RecordedTurn("", CreateFile(path="one.txt", content="first\n"))
LONG = RecordedTurn("", RunShell(command="echo started >> marks; sleep 10; echo ended >> marks"))
LOOK = RecordedTurn("", RunShell(command="cat one.txt marks"))
DONE = RecordedTurn("", Finish(cause="A file was missing.", change="It is there.", testing="cat"))
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}


@dataclass
class Machines:
    """Servers and workers that share a Redis and the credentials key, each with its own disk."""

    place: Path
    redis: str
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def _environment(self, name: str) -> dict[str, str]:
        (self.place / name).mkdir()
        key_file = self.place / "shared.key"
        if not key_file.exists():
            key_file.write_text("a-key-that-all-machines-share-0123456789")
            key_file.chmod(0o600)
        return {"REDIS_URL": self.redis, "PATCHWRIGHT_CREDENTIALS_KEY": f"file:{key_file}"}

    def start_server(self, name: str) -> str:
        """Returns the address of a new server."""
        self.processes[name], host = start_server(self.place / name, **self._environment(name))
        wait_until_ready(host)
        return host

    def start_worker(self, name: str) -> None:
        environment = {
            **os.environ,
            **self._environment(name),
            "PATCHWRIGHT_DATA": str(self.place / name),
            "PATCHWRIGHT_IMAGE": "debian:bookworm-slim",
            "PATCHWRIGHT_SANDBOX_FEATURES": "none",
            "PATCHWRIGHT_NETWORK": "none",
            "PATCHWRIGHT_MODEL": "openai/unused",
            "PATCHWRIGHT_MODEL_API_KEY": KEY,
            "GITHUB_TOKEN": "ghp_of_tests",
            "GITHUB_SERVER_URL": "http://127.0.0.1:9",  # Nothing answers there, so the worker has no jobs.
        }
        command = [*preloaded_command(), "work"]
        with (self.place / f"{name}.log").open("w") as log:
            worker = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        assert worker.stdout is not None
        self.processes[name] = worker
        for line in worker.stdout:
            if line.startswith("patchwright worker ready"):
                return
        raise AssertionError((self.place / f"{name}.log").read_text())

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        assert self.processes.pop(name).wait(10) == -signal.SIGKILL

    def read_entries(self, id: str) -> list[dict[str, Any]]:
        """Returns the log that all processes share, without a request to a server."""
        with contextlib.closing(blocking_client(self.redis)) as redis:
            record = ConversationRecord.model_validate_json(cast("bytes", redis.hget(CONVERSATIONS_KEY, id)))
            stored = cast("list[tuple[bytes, dict[bytes, bytes]]]", redis.xrange(stream_key(record.log)))
        return [json.loads(fields[b"entry"]) for _, fields in stored]

    def find_worker(self) -> str:
        """Returns the name of the only live worker that has taken over a conversation."""
        logs = {name: (self.place / f"{name}.log") for name in self.processes}
        (found,) = [
            name
            for name, path in logs.items()
            if path.exists() and "conversation taken over" in path.read_text()
        ]
        return found

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.communicate(timeout=60)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with run_redis(tmp_path / "redis") as redis_url:
        machines = Machines(tmp_path, redis_url)
        yield machines
        machines.stop()


@contextlib.contextmanager
def watch(host: str, id: str) -> Iterator[list[dict[str, Any]]]:
    """Follows the log over a WebSocket, and yields its entries so far."""
    entries: list[dict[str, Any]] = []

    async def follow() -> None:
        url = f"{host.replace('http', 'ws')}/conversations/{id}/events"
        async with connect(url, additional_headers=AUTHORIZED) as socket:
            while not entries or entries[-1]["event"]["kind"] != "agent_stopped":
                entries.append(json.loads(await socket.recv()))

    thread = threading.Thread(target=lambda: asyncio.run(follow()), daemon=True)
    thread.start()
    yield entries
    thread.join(30)


def wait_for(condition: Callable[[], bool], seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def start_conversation(host: str, id: str, llm: LLM, *messages: str) -> RemoteWorkspace:
    """Starts an agent and returns at once."""
    workspace = RemoteWorkspace(host, TOKEN).__enter__()
    conversation = Conversation(default_agent(llm), workspace, id=id)
    for message in messages:
        conversation.send_message(message)
    httpx.post(f"{host}/conversations/{id}/run", headers=AUTHORIZED).raise_for_status()
    return workspace


def list_kinds(entries: list[dict[str, Any]]) -> list[str]:
    assert [entry["seq"] for entry in entries] == list(range(len(entries)))
    return [entry["event"]["kind"] for entry in entries]


def count_requests(endpoint: RecordedModel) -> int:
    """Returns the number of requests for replies to the task."""
    return sum("Write one.txt." in json.dumps(request["messages"]) for request in endpoint.requests)


def test_workers_continue_a_conversation_whose_server_and_then_whose_worker_is_killed(
    machines: Machines,
) -> None:
    def kill(turn: int, request: object) -> None:
        if turn == 1 and "first" in machines.processes:
            machines.kill("first")

    with serve_model(WRITE, LONG, LOOK, DONE, delay=0.3, on_request=kill) as (llm, endpoint):
        first = machines.start_server("first")
        for name in ("one", "two"):
            machines.start_worker(name)
        workspace = start_conversation(first, "killed", llm, "Write one.txt.")
        wait_for(lambda: "sleep 10" in json.dumps(machines.read_entries("killed")))
        time.sleep(1)  # The command runs now.
        machines.kill(machines.find_worker())
        wait_for(lambda: list_kinds(machines.read_entries("killed"))[-1] == "agent_stopped")
        assert machines.find_worker()
        second = machines.start_server("second")
        with watch(second, "killed") as entries:
            wait_for(lambda: bool(entries) and list_kinds(entries)[-1] == "agent_stopped")
        state = httpx.get(f"{second}/conversations/killed", headers=AUTHORIZED).json()
        assert (state["status"], state["answer"].splitlines()[0]) == ("finished", "A file was missing.")
        with RemoteWorkspace(second, TOKEN, id=workspace.id) as again:
            assert again.file_download("one.txt") == b"first\n"
    kinds = list_kinds(entries)
    assert kinds.count("model_reply") == 5, "the model asks for the lost command again"
    # The only reply that was paid twice is the one that the kill of the server cut off.
    assert count_requests(endpoint) == 6
    lost = [entry for entry in entries if entry["event"].get("observation", {}).get("reason") == "lost"]
    assert len(lost) == 1, "the model reads that its command was interrupted"


def test_only_the_conversation_that_was_working_is_continued(machines: Machines) -> None:
    def kill(turn: int, request: object) -> None:
        if turn == 4 and "first" in machines.processes:
            machines.kill("first")

    with (
        serve_model(WRITE, LOOK, DONE) as (idle_llm, idle_endpoint),
        serve_model(WRITE, LOOK, LOOK, LOOK, LOOK, DONE, delay=0.3, on_request=kill) as (llm, _),
    ):
        first, second = machines.start_server("first"), machines.start_server("second")
        with RemoteWorkspace(first, TOKEN) as kept:
            pausing = Conversation(
                default_agent(idle_llm),
                kept,
                id="paused",
                callbacks=[lambda entry: entry.event.kind == "tool_result" and pausing.pause()],
            )
            pausing.send_message("Write one.txt.")
            assert pausing.run().status == "paused"
            requests = len(idle_endpoint.requests)
            start_conversation(first, "working", llm, "Write one.txt.")
            with watch(second, "working") as entries:
                wait_for(lambda: bool(entries) and list_kinds(entries)[-1] == "agent_stopped")
            kept.client.url = second
            state = httpx.get(f"{second}/conversations/paused", headers=AUTHORIZED).json()
            assert state["status"] == "paused"
            assert len(idle_endpoint.requests) == requests
            assert [entry.event.kind for entry in pausing.events][-1] == "paused"
            while (state_now := pausing.run()).status == "paused":
                pass
            assert state_now.status == "finished"
            assert kept.file_download("one.txt") == b"first\n"
    assert list_kinds(entries).count("model_reply") == 6
