"""Removes containers that have our label, if their owners are dead or their lifetimes are over."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from patchwright.runtime import ownership
from patchwright.runtime.docker import socket_dir
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.engine_models import ContainerInfo
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.execution.action_server import HOST_TIMEOUT

log = logging.getLogger(__name__)

OWNER_LABEL = "io.patchwright.owner"
RUN_LABEL = "io.patchwright.run"
DEADLINE_LABEL = "io.patchwright.deadline"
SOCKET_DIR_LABEL = "io.patchwright.socket-dir"
"""Label with the id of the sandbox's socket directory. The directory's name contains the id of the process that
currently owns the sandbox.
"""
ADOPTABLE_LABEL = "io.patchwright.adoptable"
"""Label whose value is `yes` if another process may adopt the sandbox after its owner was killed."""
SWEEP_INTERVAL = 10.0  # seconds between two sweeps; each sweep sends one request to the engine
# seconds until a container that has exited is removed, if it is unknown whether its owner is alive
EXITED_GRACE = 5.0
# seconds in which a sandbox may be adopted; its server gives up after HOST_TIMEOUT
ADOPTION_GRACE = HOST_TIMEOUT + 5.0


class Reaper:
    """Removes orphaned sandboxes. Before that, gives other processes some time to adopt them."""

    def __init__(self, adoption_grace: float = ADOPTION_GRACE, exited_grace: float = EXITED_GRACE) -> None:
        """`adoption_grace` is the number of seconds in which another process may adopt a sandbox. The time
        starts when the sandbox is first seen without its owner.

        Sometimes it is unknown whether the owner of an exited sandbox is alive. Such a sandbox is removed after
        `exited_grace` seconds.
        """
        self._adoption_grace = adoption_grace
        self._exited_grace = exited_grace
        self._orphans: dict[str, float] = {}

    async def reap(self, engine: Engine) -> int:
        """Remove orphaned and expired sandboxes. Return how many were removed."""
        reaped = 0
        kept: set[str] = set()
        containers = await engine.list_containers(OWNER_LABEL)
        self._orphans = {
            container.id: self._orphans.get(container.id, time.monotonic()) for container in containers
        }
        for container in containers:
            if self._should_keep(container):
                kept.add(container.labels.get(SOCKET_DIR_LABEL, ""))
                continue
            await engine.remove(container.id)
            reaped += 1
        await asyncio.to_thread(socket_dir.remove_orphaned, frozenset(kept))
        return reaped

    def _should_keep(self, container: ContainerInfo) -> bool:
        deadline, owner = container.labels.get(DEADLINE_LABEL, ""), find_owner(container.labels)
        if deadline.isdigit() and int(deadline) < time.time():
            return False
        orphaned_seconds = time.monotonic() - self._orphans[container.id]
        if container.has_exited and not ownership.is_alive(owner):
            # An owner that is alive removes its exited sandboxes itself. Sometimes the owner's state is
            # unknown, for example if the owner was a worker in a removed container. Its sandboxes are removed
            # after a grace period.
            return not ownership.is_dead(owner) and orphaned_seconds < self._exited_grace
        if not ownership.is_dead(owner):
            self._orphans[container.id] = time.monotonic()
            return True
        return (
            container.labels.get(ADOPTABLE_LABEL) == "yes"
            and container.is_running
            and orphaned_seconds < self._adoption_grace
        )


def find_owner(labels: Mapping[str, str]) -> str:
    """Return the id of the process that owns a container.

    The result is the owner of the container's socket directory. If this directory is gone, the result is the
    process that created the container.
    """
    directory = socket_dir.SocketDir.find(labels.get(SOCKET_DIR_LABEL, ""))
    return directory.owner if directory is not None else labels.get(OWNER_LABEL, "")


async def sweep_periodically(
    sweep: Callable[[], Awaitable[object]], interval: float = SWEEP_INTERVAL
) -> None:
    """Call `sweep` every `interval` seconds until canceled. If a call fails, logs the error and calls again
    as usual.
    """
    while True:
        await asyncio.sleep(interval)
        try:
            await sweep()
        except SandboxError as error:
            log.warning("sweep failed", extra={"error": str(error)[:500]})
