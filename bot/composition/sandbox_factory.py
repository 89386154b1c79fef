"""Chooses and builds the sandboxes of a run from the settings and the available Docker engine."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.errors import EngineUnavailable, ImageUnavailable
from patchwright.runtime.sandbox import SandboxSpec

if TYPE_CHECKING:
    from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
    from patchwright.runtime.egress.proxy import EgressConfig
    from patchwright.runtime.sandbox import Sandboxes

LOCAL_SANDBOX_HINT = "To let the model run commands on this machine without isolation, use --sandbox local"


def build_sandbox_spec(settings: Settings) -> SandboxSpec:
    """Returns the image and the limits that the operator has configured for sandboxes."""
    return SandboxSpec(
        image=settings.image,
        memory_mb=settings.memory_mb,
        cpus=settings.cpus,
        disk_mb=settings.disk_mb,
    )


def build_sandboxes(
    settings: Settings, environ: Mapping[str, str], notify: Callable[[str], object]
) -> "Sandboxes":
    """Returns sandboxes that are not prepared yet: Docker sandboxes, or local sandboxes if the settings choose
    them. Local sandboxes never replace a Docker engine that is unavailable.
    """
    if settings.sandbox == "local":
        return _build_local_sandboxes(settings, environ)
    return build_docker_sandboxes(settings, environ, notify)


async def prepare_sandboxes(sandboxes: "Sandboxes", settings: Settings) -> None:
    """Prepares sandboxes. Raises EngineUnavailable or ImageUnavailable; the message explains how to run
    without Docker.
    """
    try:
        await sandboxes.prepare()
    except (EngineUnavailable, ImageUnavailable) as exc:
        if requires_docker(settings):
            raise
        raise type(exc)(f"{exc}. {LOCAL_SANDBOX_HINT}") from exc


def requires_docker(settings: Settings) -> bool:
    """Returns True if the operator chose Docker or an image, so that local sandboxes must not replace Docker."""
    return settings.sandbox == "docker" or "image" in settings.model_fields_set


async def find_engine_problem(environ: Mapping[str, str]) -> str | None:
    """Returns why no Docker engine can be used, or None if an engine responds."""
    from patchwright.runtime.docker.engine import Engine

    try:
        engine = await Engine.connect(_engine_url(environ))
    except EngineUnavailable as exc:
        return str(exc)
    await engine.close()
    return None


def _engine_url(environ: Mapping[str, str]) -> str | None:
    """Returns the engine's URL if the engine is reached over SSH, otherwise None. The Docker client reads
    other URLs itself.
    """
    host = environ.get("DOCKER_HOST", "")
    return host if host.startswith("ssh://") else None


def build_docker_sandboxes(
    settings: Settings, environ: Mapping[str, str], notify: Callable[[str], object]
) -> "DockerSandboxes":
    """Returns Docker sandboxes that are not prepared yet."""
    from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes, EngineAddress
    from patchwright.runtime.docker.runtime_layer import BuildSettings

    build = BuildSettings(
        features=settings.sandbox_features,
        ca_bundle=settings.ca_bundle,
        package_index=settings.package_index,
        proxy=settings.proxy.get_secret_value() if settings.proxy else None,
        log_dir=settings.data / "builds",
        on_notice=notify,
    )
    return DockerSandboxes(
        build_sandbox_spec(settings),
        build,
        engine=EngineAddress(_engine_url(environ), settings.sandbox_transport),
        egress=_build_egress(settings),
        namespace=str(settings.data.resolve()),
    )


def _build_egress(settings: Settings) -> "EgressConfig | None":
    """Returns the network access of the sandboxes, or None if they have no network."""
    from patchwright.runtime.egress.proxy import EgressConfig
    from patchwright.runtime.egress_policy import UpstreamProxy, build_policy

    allowed = build_policy(
        settings.network,
        settings.allowed_hosts,
        settings.package_index,
        settings.max_upload_mb,
        settings.allowed_addresses,
    )
    upstream = UpstreamProxy.from_url(settings.proxy.get_secret_value()) if settings.proxy else None
    return EgressConfig(allowed, upstream) if allowed else None


async def choose_demo_sandbox(
    settings: Settings, environ: Mapping[str, str], notify: Callable[[str], object]
) -> tuple[Literal["docker", "local"], str | None]:
    """Returns whether the demo uses Docker or local sandboxes. If Docker is unavailable, also returns the
    reason.
    """
    if settings.sandbox == "local":
        return "local", None
    try:
        sandboxes = build_docker_sandboxes(settings, environ, notify)
        await sandboxes.prepare()
        await sandboxes.close()
    except (EngineUnavailable, ImageUnavailable) as exc:
        if settings.sandbox == "docker":
            raise
        return "local", str(exc)
    return "docker", None


def _build_local_sandboxes(settings: Settings, environ: Mapping[str, str]) -> "Sandboxes":
    from patchwright.runtime.execution.local_sandboxes import LocalSandboxes

    host = dict(environ)
    if not _can_run_pytest(host.get("PATH")):
        # Adds the pytest of Patchwright's own installation.
        host["PATH"] = os.pathsep.join(filter(None, [str(Path(sys.executable).parent), host.get("PATH")]))
    return LocalSandboxes(
        settings.data / "sandboxes",
        host,
        settings.ca_bundle,
        settings.package_index,
        settings.sandbox_features,
    )


def _can_run_pytest(path: str | None) -> bool:
    python = shutil.which("python3", path=path)
    if python is None:
        return False
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pytest') is None)"
    result = subprocess.run([python, "-c", code], capture_output=True, timeout=20, check=False)
    return result.returncode == 0
