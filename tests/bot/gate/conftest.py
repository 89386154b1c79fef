"""The gate before a real engine, and a container of somebody else's on it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from bot.gate.gate import Gate
from tests.bot.gate.engines import ENGINE, IMAGE


@pytest.fixture
async def gate(short_tmp: Path) -> AsyncIterator[Path]:
    place = short_tmp / "gate" / "engine.sock"
    async with Gate(ENGINE).listening(place):
        yield place


@pytest.fixture
def engine() -> Iterator[docker.DockerClient]:
    client = docker.DockerClient(f"unix://{ENGINE}")
    yield client
    client.close()


@pytest.fixture
def neighbour(engine: docker.DockerClient) -> Iterator[Any]:
    """A container that is none of ours, with a secret in its environment."""
    made = engine.containers.run(
        IMAGE, ["sleep", "600"], detach=True, network_mode="none", environment={"SECRET": "of-the-neighbour"}
    )
    yield made
    made.remove(force=True)
