"""A sandbox is launched in six steps: base image, runtime image, container, action, execution, observation."""

import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import docker
import pytest

from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.build_context import BASE_LABEL, LAYER_REPOSITORY
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.reaper import RUN_LABEL
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.observations import ShellResult
from patchwright.runtime.sandbox import Sandbox

BASE = "debian:bookworm-slim"
NAME = f"six-steps-{os.getpid()}"


async def execute(sandbox: Sandbox) -> tuple[float, float, float]:
    """Returns when the action was sent, executed, and observed, in seconds since 1970."""
    sent = time.time()
    result = await sandbox.act(RunShell(command="date +%s.%N"))
    assert isinstance(result, ShellResult) and result.exit_code == 0, result
    return sent, float(result.output), time.time()


def read_time(text: str) -> float:
    """Reads a time of Docker, which has nanoseconds."""
    return datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00").timestamp()


@pytest.mark.docker
@pytest.mark.slow
async def test_a_container_is_launched_in_six_steps(docker_sandboxes: Callable[..., DockerSandboxes]) -> None:
    client, sandboxes = docker.from_env(), docker_sandboxes(whose="six-steps")
    try:
        async with sandboxes.open(NAME) as sandbox:
            (container,) = client.containers.list(filters={"label": f"{RUN_LABEL}={NAME}"})
            image = container.image
            assert any(LAYER_REPOSITORY in tag for tag in image.tags)
            assert image.labels[BASE_LABEL] == BASE and client.images.get(BASE).id != image.id
            steps = [
                read_time(client.images.get(BASE).attrs["Created"]),
                read_time(image.attrs["Created"]),
                read_time(container.attrs["Created"]),
                read_time(container.attrs["State"]["StartedAt"]),
                *await execute(sandbox),
            ]
    finally:
        await sandboxes.close()
        client.close()
    assert steps == sorted(steps)


async def test_a_process_goes_through_the_same_steps_without_an_image(tmp_path: Path) -> None:
    started = time.time()
    async with LocalSandboxes(tmp_path, {"PATH": "/usr/bin:/bin"}).open("six") as sandbox:
        steps = [started, *await execute(sandbox)]
    assert steps == sorted(steps)
