"""The agent server of OpenHands, as a peer of our server in the same run.

Install `openhands-agent-server`, `openhands-sdk`, and `openhands-tools` of the same version into an environment of
their own (Python 3.12), and set OPENHANDS_PYTHON to its Python. Without this variable, there is no peer.
"""

import asyncio
import contextlib
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from typing import NamedTuple

import httpx

from benchmarks.conversation_server import Server, free_port, post
from benchmarks.measure import stopped

WATCHERS = 49
"""The most that may watch one conversation: it has 50 subscribers, and one of them is the server itself."""
LIMIT = 1200.0  # seconds until the server answers; on a busy machine its imports take minutes


class Peer(NamedTuple):
    """A running server with one conversation."""

    server: Server
    megabytes: float
    """Idle memory before the first conversation, in 10^6 bytes."""
    client: httpx.AsyncClient
    conversation: str

    @property
    def events(self) -> str:
        return f"{self.server.socket_url}/sockets/events/{self.conversation}"

    async def write(self, text: str) -> None:
        """Adds a message, without a run of the agent."""
        content = [{"type": "text", "text": text}]
        body = {"role": "user", "content": content, "run": False}
        await post(self.client, f"/api/conversations/{self.conversation}/events", body)


def find_openhands_python() -> str | None:
    """Returns the Python that has OpenHands installed; None if OPENHANDS_PYTHON is not set."""
    return os.environ.get("OPENHANDS_PYTHON")


@contextlib.asynccontextmanager
async def serve_openhands(python: str) -> AsyncIterator[Peer]:
    """Runs the server on a free port."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        port = free_port()
        environment = os.environ | {
            "HOME": directory,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # Otherwise, litellm waits for a page on the internet.
            "OH_CONVERSATIONS_PATH": f"{directory}/conversations",
            "OH_ENABLE_VSCODE": "false",
            "OH_ENABLE_VNC": "false",
        }
        process = subprocess.Popen(  # noqa: ASYNC220  # takes a millisecond
            (python, "-m", "openhands.agent_server", "--host", "127.0.0.1", "--port", str(port)),
            env=environment, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        server = Server(f"http://127.0.0.1:{port}", process)
        with stopped(process):
            async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=120) as client:
                await _wait_until_healthy(client, process)
                idle = server.kilobytes / 1000
                llm = {"model": "openai/recorded", "api_key": "sk-benchmark", "usage_id": "agent"}
                workspace = {"kind": "LocalWorkspace", "working_dir": directory}
                # Otherwise, the first messages wait for minutes, because the server asks the model for a title.
                body = {
                    "agent": {"kind": "Agent", "llm": llm, "tools": []},
                    "workspace": workspace,
                    "autotitle": False,
                }
                created = await post(client, "/api/conversations", body)
                yield Peer(server, idle, client, created["id"])


async def _wait_until_healthy(client: httpx.AsyncClient, process: "subprocess.Popen[str]") -> None:
    async with asyncio.timeout(LIMIT):
        while True:
            if process.poll() is not None:
                raise RuntimeError(
                    "The server of OpenHands has ended. Its packages must have the same version."
                )
            with contextlib.suppress(httpx.TransportError):
                if (await client.get("/health")).is_success:
                    return
            await asyncio.sleep(0.3)
