"""Which sandboxes a run gets, by the settings and by what this machine has."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from resolver.settings.settings import Settings
from runtime.errors import EngineUnavailable, ImageUnavailable
from runtime.sandbox import SandboxSpec

if TYPE_CHECKING:
    from runtime.docker.docker import DockerSandboxes
    from runtime.sandbox import Sandboxes


def spec(settings: Settings) -> SandboxSpec:
    """What the operator says of each sandbox."""
    return SandboxSpec(
        image=settings.image,
        memory_mb=settings.memory_mb,
        cpus=settings.cpus,
        pids=settings.pids,
        disk_mb=settings.disk_mb,
        free_memory_mb=settings.free_memory_mb,
        free_disk_mb=settings.free_disk_mb,
    )


async def sandboxes_for(
    settings: Settings, environ: Mapping[str, str], *, trusted: bool, say: Callable[[str], object]
) -> "Sandboxes":
    """Docker, or the local sandbox where that is asked for or may stand in.

    `trusted`: whether issue and code are the operator's own. Raises EngineUnavailable or ImageUnavailable.
    """
    sandboxes = sandboxes_of(settings, environ, say)
    if not trusted:
        await prepare(sandboxes, settings)
        return sandboxes
    try:
        await sandboxes.prepare()
    except (EngineUnavailable, ImageUnavailable) as exc:
        if settings.sandbox == "docker":
            raise
        say(f"NOTICE: {exc} Using the local sandbox: a directory on this machine, and no wall around it.")
        return _local(settings, environ)
    return sandboxes


def sandboxes_of(settings: Settings, environ: Mapping[str, str], say: Callable[[str], object]) -> "Sandboxes":
    """Docker, unless the local sandbox is asked for; not ready yet."""
    if settings.sandbox == "local":
        return _local(settings, environ)
    return docker_sandboxes(settings, environ, say, settings.warm_pool)


async def prepare(sandboxes: "Sandboxes", settings: Settings) -> None:
    """Make them ready, for what is not the operator's own. Raises EngineUnavailable or ImageUnavailable."""
    try:
        await sandboxes.prepare()
    except (EngineUnavailable, ImageUnavailable) as exc:
        if settings.sandbox == "docker":
            raise
        raise type(exc)(
            f"{exc} To let a model run commands on this machine without a wall, say so: --sandbox local"
        ) from exc


def docker_sandboxes(
    settings: Settings, environ: Mapping[str, str], say: Callable[[str], object], warm: int = 0
) -> "DockerSandboxes":
    """Docker, not ready yet; `warm` sandboxes are started ahead once it is."""
    from bot.network import egress
    from runtime.docker.docker import DockerSandboxes

    host = environ.get("DOCKER_HOST", "")
    return DockerSandboxes(
        spec(settings),
        engine_url=host if host.startswith("ssh://") else None,  # the others are read by the client itself
        ca_bundle=settings.ca_bundle,
        package_index=settings.package_index,
        logs=settings.data / "builds",
        proxy=settings.proxy.get_secret_value() if settings.proxy else None,
        egress=egress(settings),
        transport=settings.transport,
        warm=warm,
        whose=str(settings.data.resolve()),
        plugins=settings.plugins,
        notice=say,
    )


async def sandbox_kind(
    settings: Settings, environ: Mapping[str, str], say: Callable[[str], object]
) -> tuple[Literal["docker", "local"], str | None]:
    """Which sandbox the demo uses, and why it is not Docker."""
    if settings.sandbox == "local":
        return "local", None
    try:
        made = docker_sandboxes(settings, environ, say)
        await made.prepare()
        await made.close()
    except (EngineUnavailable, ImageUnavailable) as exc:
        if settings.sandbox == "docker":
            raise
        return "local", str(exc)
    return "docker", None


def _local(settings: Settings, environ: Mapping[str, str]) -> "Sandboxes":
    from runtime.local import LocalSandboxes

    host = dict(environ)
    if not _can_run_pytest(host.get("PATH")):
        # pytest came with us, so that Python tests can be run where the machine has none.
        host["PATH"] = os.pathsep.join(filter(None, [str(Path(sys.executable).parent), host.get("PATH")]))
    return LocalSandboxes(
        settings.data / "sandboxes", host, settings.ca_bundle, settings.package_index, settings.plugins
    )


def _can_run_pytest(path: str | None) -> bool:
    python = shutil.which("python3", path=path)
    if python is None:
        return False
    asked = subprocess.run([python, "-c", "import pytest"], capture_output=True, timeout=20, check=False)
    return asked.returncode == 0
