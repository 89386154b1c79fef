"""Removes containers that have our label, if their owner is dead or their lifetime is over."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from patchwright.runtime import ownership
from patchwright.runtime.action_server import HOST_TIMEOUT
from patchwright.runtime.docker import socket_dir
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.engine_models import ContainerInfo
from patchwright.runtime.errors import SandboxError

log = logging.getLogger(__name__)

OWNER_LABEL = "io.patchwright.owner"
RUN_LABEL = "io.patchwright.run"
DEADLINE_LABEL = "io.patchwright.deadline"
SOCKET_DIR_LABEL = "io.patchwright.socket-dir"
"""Label with the id of the sandbox's socket directory, whose name contains the current owner."""
ADOPTABLE_LABEL = "io.patchwright.adoptable"
"""Label whose value is `yes` if another process may adopt the sandbox when its owner is killed."""
SWEEP_INTERVAL = 10.0  # seconds between two sweeps; each is one request to the engine
EXITED_GRACE = 5.0  # seconds until an exited container is removed if its owner cannot be checked
ADOPTION_GRACE = HOST_TIMEOUT + 5.0  # seconds for an adoption; the server gives up after HOST_TIMEOUT


class Reaper:
    """Removes orphaned sandboxes, after some time in which another process may adopt them."""

    def __init__(self, adoption_grace: float = ADOPTION_GRACE, exited_grace: float = EXITED_GRACE) -> None:
        """`adoption_grace` is the time for an adoption, in seconds since the sandbox was first seen without
        its owner.

        `exited_grace` is the time in seconds until an exited sandbox is removed if its owner may be alive but
        cannot be checked.
        """
        self._adoption_grace = adoption_grace
        self._exited_grace = exited_grace
        self._orphans: dict[str, float] = {}

    async def reap(self, engine: Engine) -> int:
        """Remove the sandboxes that nobody can use any more. Returns how many were removed."""
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
            # A live owner removes its exited sandboxes itself. If the owner's state is unknown, as with a
            # worker in a removed container, they are removed after a grace period.
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
    """Return the owner of a container: the owner of its socket directory or, if that is gone, its creator."""
    directory = socket_dir.SocketDir.find(labels.get(SOCKET_DIR_LABEL, ""))
    return directory.owner if directory is not None else labels.get(OWNER_LABEL, "")


async def sweep_periodically(
    sweep: Callable[[], Awaitable[object]], interval: float = SWEEP_INTERVAL
) -> None:
    """Call `sweep` every `interval` seconds until canceled. Logs an error of the engine; the next call
    retries.
    """
    while True:
        await asyncio.sleep(interval)
        try:
            await sweep()
        except SandboxError as error:
            log.warning("sweep failed", extra={"error": str(error)[:500]})
