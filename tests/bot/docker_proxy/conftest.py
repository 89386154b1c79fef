"""Fixtures: the Docker proxy in front of a real engine, and a container that Patchwright did not create."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from patchwright.bot.docker_proxy.proxy import DockerProxy
from tests.bot.docker_proxy.engines import ENGINE, IMAGE


@pytest.fixture
async def proxy_socket(short_tmp: Path) -> AsyncIterator[Path]:
    socket_path = short_tmp / "engine.sock"
    async with DockerProxy(ENGINE).listen(socket_path):
        yield socket_path


@pytest.fixture
def engine() -> Iterator[docker.DockerClient]:
    client = docker.DockerClient(f"unix://{ENGINE}")
    yield client
    client.close()


@pytest.fixture
def foreign_container(engine: docker.DockerClient) -> Iterator[Any]:
    """A container that Patchwright did not create, with a secret in its environment."""
    container = engine.containers.run(
        IMAGE, ["sleep", "600"], detach=True, network_mode="none", environment={"SECRET": "foreign-secret"}
    )
    yield container
    container.remove(force=True)
