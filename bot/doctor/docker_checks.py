"""Checks of the Docker engine: reachability, images, and enforced sandbox limits."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from patchwright.bot.composition import sandbox_factory
from patchwright.bot.doctor.runner import CheckResult, DoctorCheck, failed, ok, warning
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime import ownership
from patchwright.runtime.docker import capacity
from patchwright.runtime.docker.build_context import BASE_LABEL, LAYER_REPOSITORY
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.engine_models import ImageInfo
from patchwright.runtime.docker.hardening import (
    container_user,
    find_dropped_limits,
    find_ineffective_limits,
    host_config,
)
from patchwright.runtime.docker.reaper import ADOPTABLE_LABEL, DEADLINE_LABEL, OWNER_LABEL, RUN_LABEL
from patchwright.runtime.sandbox import SandboxSpec

MIN_VERSION = (20, 10)
# the container of the check must exit in this time; it only reads a few files
CONTAINER_TIMEOUT_SECONDS = 20.0
_MIB = 1 << 20

_LIMITS_SCRIPT = Path(__file__).with_name("print_limits.sh").read_text()


def build_checks(settings: Settings, environ: Mapping[str, str]) -> list[DoctorCheck]:
    host = environ.get("DOCKER_HOST", "")
    url = host if host.startswith("ssh://") else None
    fix = "Start Docker and give this user access to it (docs/self-hosting.md), or set DOCKER_HOST."
    return [DoctorCheck("engine", lambda: check_engine(settings, url), fix, timeout_seconds=60)]


async def check_engine(settings: Settings, url: str | None) -> list[CheckResult]:
    """Checks the engine, its images and its limits. A short-lived container tests the limits."""
    if settings.sandbox == "local":
        fix = "Install Docker and remove the sandbox setting."
        return [
            warning(
                "engine",
                "no engine is used: the agent works directly on this machine, without isolation",
                fix,
            )
        ]
    engine = await Engine.connect(url)
    try:
        info = await engine.info()
        base = await engine.find_image(settings.image)
        layers = await engine.list_images(LAYER_REPOSITORY, f"{BASE_LABEL}={settings.image}")
        disk = _check_disk(Path(info["DockerRootDir"])) if engine.is_local else []
        return [
            *_check_version(info),
            *disk,
            *_check_images(settings, base, layers),
            await _check_limits(settings, engine, base),
        ]
    finally:
        await engine.close()


def _check_version(info: Mapping[str, Any]) -> list[CheckResult]:
    version = str(info.get("ServerVersion", "unknown"))
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    rootless = any("rootless" in str(each) for each in info.get("SecurityOptions") or ())
    detail = f"version {version}, {'rootless' if rootless else 'as root'}, cgroup v{info.get('CgroupVersion', '?')}"
    results = [ok("engine", detail)]
    if parts and parts < MIN_VERSION:
        results = [failed("engine", detail, "Upgrade to Docker 20.10 or newer.")]
    limits = {"MemoryLimit": "memory", "PidsLimit": "processes", "CpuCfsQuota": "cpu"}
    if missing := [name for key, name in limits.items() if info.get(key) is False]:
        fix = "Delegate the cgroup controllers to the engine: docs.docker.com/engine/security/rootless."
        results.append(failed("engine limits", f"the engine cannot limit {', '.join(missing)}", fix))
    return results


def _check_disk(storage: Path) -> list[CheckResult]:
    """Checks the free space on the engine's disk. Each run does the same check before it starts a sandbox."""
    free_mb = capacity.available_disk_mb(storage)
    if free_mb is None:  # the engine runs in a VM, or this process runs in a container
        return []
    detail = f"{free_mb:,} MiB free at {storage}"
    if free_mb < capacity.MIN_FREE_DISK_MB:
        fix = f"Free disk space (see docker system df). A sandbox needs {capacity.MIN_FREE_DISK_MB:,} MiB to start."
        return [failed("engine disk", detail, fix)]
    return [ok("engine disk", detail)]


def _check_images(settings: Settings, base: ImageInfo | None, layers: list[ImageInfo]) -> list[CheckResult]:
    if base is None:
        detail = f"{settings.image} is not pulled yet"
        fix = f"Run docker pull {settings.image}, or let the first run pull it."
        return [warning("base image", detail, fix)]
    found = [ok("base image", f"{settings.image} is present, {base.size >> 20:,} MiB")]
    if not layers:
        return [
            *found,
            warning(
                "runtime layer",
                "not built yet",
                "The first worker builds the image, which takes a few minutes.",
            ),
        ]
    return [*found, ok("runtime layer", f"{layers[0].tags[0] if layers[0].tags else layers[0].id} is built")]


async def _check_limits(settings: Settings, engine: Engine, base: ImageInfo | None) -> CheckResult:
    """Checks that the engine applies the requested limits to a container, and that the kernel enforces
    them.
    """
    name = "sandbox limits"
    if base is None:
        return warning(
            name, "not tested: the base image is missing", "Check again once the base image is present."
        )
    spec = sandbox_factory.build_sandbox_spec(settings)
    async with _run_container(engine, spec) as container:
        has_exited = await _wait_for_exit(engine, container)
        found = await engine.inspect(container)
        output = await engine.logs(container)
    missing = [
        *(find_dropped_limits(found, spec) if found else ()),
        *find_ineffective_limits(output, spec),
        *_find_missing_limits(output, spec),
    ]
    if not has_exited or missing:
        fix = (
            "Do not run agents on this engine: docs/security.md lists the limits that an engine must enforce."
        )
        reason = (
            f"not enforced: {', '.join(dict.fromkeys(missing))}"
            if missing
            else "a container did not exit in time"
        )
        return failed(name, reason, fix)
    limits = f"{spec.memory_mb:,} MiB, {spec.pids} processes, {spec.cpus:g} CPUs, no capabilities, no network"
    return ok(name, f"enforced in a container: {limits}")


@asynccontextmanager
async def _run_container(engine: Engine, spec: SandboxSpec) -> AsyncIterator[str]:
    name = f"patchwright-doctor-{secrets.token_hex(4)}"
    labels = {
        OWNER_LABEL: ownership.current_owner(),
        RUN_LABEL: name,
        DEADLINE_LABEL: str(int(time.time()) + 120),
        ADOPTABLE_LABEL: "no",
    }
    container = await engine.create(
        name,
        image=spec.image,
        entrypoint=["sh"],
        command=["-c", _LIMITS_SCRIPT],
        healthcheck={"test": ["NONE"]},
        user=container_user(as_root=False),
        labels=labels,
        host=host_config(spec, None),
    )
    try:
        await engine.start(container)
        yield container
    finally:
        await engine.remove(container)


async def _wait_for_exit(engine: Engine, container: str) -> bool:
    """Waits for a container to exit; returns False on a timeout."""
    deadline = time.monotonic() + CONTAINER_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found = await engine.inspect(container)
        if found is None or not found["State"]["Running"]:
            return found is not None
        await asyncio.sleep(0.1)
    return False


def _find_missing_limits(output: str, spec: SandboxSpec) -> list[str]:
    """Returns the limits that are not set in the container's cgroup."""
    values = dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)
    memory = values.get("memory.max") or values.get("memory/memory.limit_in_bytes")
    pids = values.get("pids.max") or values.get("pids/pids.max")
    quota = (
        values.get("cpu.max") or f"{values.get('cpu/cpu.cfs_quota_us')} {values.get('cpu/cpu.cfs_period_us')}"
    )
    used, _, period = quota.partition(" ")
    enforced = {
        "memory": memory == str(spec.memory_mb * _MIB),
        "processes": pids == str(spec.pids),
        "cpu": used.isdecimal() and period.isdecimal() and abs(int(used) / int(period) - spec.cpus) < 0.01,
    }
    return [limit for limit, is_enforced in enforced.items() if not is_enforced]
