"""The Docker engine: whether it answers, has the images, and really holds a sandbox to its limits."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bot import sandboxes
from bot.doctor.examine import Check, Finding, failed, ok, warning
from resolver.settings.settings import Settings
from runtime import lease
from runtime.docker import headroom
from runtime.docker.confinement import dropped, host_config, ineffective, user
from runtime.docker.engine import Engine
from runtime.docker.image import BASE, REPOSITORY
from runtime.docker.listed import Image
from runtime.docker.reaper import DEADLINE, KEPT, OWNER, RUN
from runtime.sandbox import SandboxSpec

OLDEST = (20, 10)
ENDS_SECONDS = 20.0  # for a container that reads a few files
_MIB = 1 << 20

# What the kernel says to a process inside. The engine gives the last 60 lines of it.
_SHOW = """
while read -r line; do
  case $line in Cap*|NoNewPrivs*|Seccomp:*|Uid:*) echo "$line";; esac
done < /proc/self/status
cat /proc/self/limits
for file in memory.max pids.max cpu.max memory/memory.limit_in_bytes pids/pids.max cpu/cpu.cfs_quota_us \
  cpu/cpu.cfs_period_us; do
  if [ -r /sys/fs/cgroup/$file ]; then echo "$file: $(cat /sys/fs/cgroup/$file)"; fi
done
"""


def checks(settings: Settings, environ: Mapping[str, str]) -> list[Check]:
    host = environ.get("DOCKER_HOST", "")
    url = host if host.startswith("ssh://") else None
    mend = "Start Docker and let this user reach it (docs/self-hosting.md), or set DOCKER_HOST."
    return [Check("engine", lambda: engine(settings, url), mend, seconds=60)]


async def engine(settings: Settings, url: str | None) -> list[Finding]:
    """Itself, its images, and the limits; the latter by a container that ends at once."""
    if settings.sandbox == "local":
        mend = "Leave the sandbox setting away once this machine has an engine."
        return [warning("engine", "no engine is used: the agent works on this machine without a wall", mend)]
    reached = await Engine.connect(url)
    try:
        info = await reached.info()
        base = await reached.image(settings.image)
        layers = await reached.images(REPOSITORY, f"{BASE}={settings.image}")
        room = _room(settings, Path(info["DockerRootDir"])) if reached.is_here else []
        return [
            *_itself(info),
            *room,
            *_images(settings, base, layers),
            await _limits(settings, reached, base),
        ]
    finally:
        await reached.close()


def _itself(info: Mapping[str, Any]) -> list[Finding]:
    version = str(info.get("ServerVersion", "unknown"))
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    rootless = any("rootless" in str(each) for each in info.get("SecurityOptions") or ())
    seen = f"version {version}, {'rootless' if rootless else 'as root'}, cgroup v{info.get('CgroupVersion', '?')}"
    found = [ok("engine", seen)]
    if parts and parts < OLDEST:
        found = [failed("engine", seen, "Docker 20.10 or newer is needed.")]
    limits = {"MemoryLimit": "memory", "PidsLimit": "processes", "CpuCfsQuota": "cpu"}
    if lacking := [name for key, name in limits.items() if info.get(key) is False]:
        mend = "Delegate the cgroup controllers to it: docs.docker.com/engine/security/rootless."
        found.append(failed("engine limits", f"it cannot limit {', '.join(lacking)}", mend))
    return found


def _room(settings: Settings, storage: Path) -> list[Finding]:
    """What is left on the engine's disk, which a run asks before it starts a sandbox."""
    left = headroom.disk(storage)
    if left is None:  # the engine runs in a VM, or we in a container
        return []
    seen = f"{left:,} MiB left at {storage}"
    if left < settings.free_disk_mb:
        mend = (
            "Make room there (docker system df): no sandbox is started where less than free_disk_mb is left."
        )
        return [failed("engine disk", seen, mend)]
    return [ok("engine disk", seen)]


def _images(settings: Settings, base: Image | None, layers: list[Image]) -> list[Finding]:
    if base is None:
        seen = f"{settings.image} is not here"
        mend = f"docker pull {settings.image}, or let the first run do so."
        return [warning("base image", seen, mend)]
    found = [ok("base image", f"{settings.image} is here, {base.size >> 20:,} MiB")]
    if not layers:
        return [
            *found,
            warning("runtime layer", "it is not made yet", "The first worker makes it, in minutes."),
        ]
    return [*found, ok("runtime layer", f"{layers[0].tags[0] if layers[0].tags else layers[0].id} is made")]


async def _limits(settings: Settings, engine: Engine, base: Image | None) -> Finding:
    """What an engine says of limits is one thing, what the kernel does another."""
    name = "sandbox limits"
    if base is None:
        return warning(name, "nothing to try them with", "Look again once the base image is here.")
    spec = sandboxes.spec(settings)
    async with _container(engine, spec) as container:
        ended = await _ended(engine, container)
        found = await engine.inspect(container)
        seen = await engine.logs(container)
    lacking = [*(dropped(found, spec) if found else ()), *ineffective(seen, spec), *_unlimited(seen, spec)]
    if not ended or lacking:
        mend = "No run is safe on this engine: see docs/security.md for what it has to hold."
        why = (
            f"not held: {', '.join(dict.fromkeys(lacking))}" if lacking else "a container did not end in time"
        )
        return failed(name, why, mend)
    held = (
        f"{spec.memory_mb:,} MiB, {spec.pids} processes, {spec.cpus:g} processors, no capability, no network"
    )
    return ok(name, f"a container was held to {held}")


@asynccontextmanager
async def _container(engine: Engine, spec: SandboxSpec) -> AsyncIterator[str]:
    name = f"patchwright-doctor-{secrets.token_hex(4)}"
    labels = {OWNER: lease.owner(), RUN: name, DEADLINE: str(int(time.time()) + 120), KEPT: "no"}
    container = await engine.create(
        name,
        image=spec.image,
        entrypoint=["sh"],
        command=["-c", _SHOW],
        healthcheck={"test": ["NONE"]},
        user=user(root=False),
        labels=labels,
        host=host_config(spec, None),
    )
    try:
        await engine.start(container)
        yield container
    finally:
        await engine.remove(container)


async def _ended(engine: Engine, container: str) -> bool:
    """Whether it has, in time."""
    until = time.monotonic() + ENDS_SECONDS
    while time.monotonic() < until:
        found = await engine.inspect(container)
        if found is None or not found["State"]["Running"]:
            return found is not None
        await asyncio.sleep(0.1)
    return False


def _unlimited(seen: str, spec: SandboxSpec) -> list[str]:
    """The limits that its control group does not have."""
    said = dict(line.split(": ", 1) for line in seen.splitlines() if ": " in line)
    memory = said.get("memory.max") or said.get("memory/memory.limit_in_bytes")
    pids = said.get("pids.max") or said.get("pids/pids.max")
    quota = said.get("cpu.max") or f"{said.get('cpu/cpu.cfs_quota_us')} {said.get('cpu/cpu.cfs_period_us')}"
    used, _, period = quota.partition(" ")
    holds = {
        "memory": memory == str(spec.memory_mb * _MIB),
        "processes": pids == str(spec.pids),
        "cpu": used.isdecimal() and period.isdecimal() and abs(int(used) / int(period) - spec.cpus) < 0.01,
    }
    return [limit for limit, held in holds.items() if not held]
