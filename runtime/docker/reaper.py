"""Removes what carries our label and whose owner is dead or whose time is over; nothing else."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from runtime import lease
from runtime.docker import place
from runtime.docker.engine import Engine
from runtime.docker.listed import Container
from runtime.errors import SandboxError
from runtime.server import ALONE

log = logging.getLogger(__name__)

OWNER = "io.patchwright.owner"
RUN = "io.patchwright.run"
DEADLINE = "io.patchwright.deadline"
PLACE = "io.patchwright.place"
"""Names the directory of a sandbox, and so who owns it now."""
KEPT = "io.patchwright.kept"
"""`yes`: another process may adopt it when its owner is killed."""
EVERY = 10.0  # seconds; one question to the engine
ENDED = 5.0  # seconds that an owner whom nobody here can see has for what has ended
GRACE = ALONE + 5.0  # seconds; after ALONE the server inside has given up


class Reaper:
    """Remembers which sandboxes it has found without an owner, to leave an heir some time."""

    def __init__(self, grace: float = GRACE, ended: float = ENDED) -> None:
        """`grace`: seconds that an heir gets from the moment when a sandbox is found without its owner.

        `ended`: those that an owner gets of whom nobody here can say whether it lives, once a sandbox has ended.
        """
        self._grace = grace
        self._ended = ended
        self._orphans: dict[str, float] = {}

    async def reap(self, engine: Engine) -> int:
        """Remove what nobody can want any more. How many."""
        reaped = 0
        spared: set[str] = set()
        found = await engine.containers(OWNER)
        self._orphans = {each.id: self._orphans.get(each.id, time.monotonic()) for each in found}
        for each in found:
            if self._is_spared(each):
                spared.add(each.labels.get(PLACE, ""))
                continue
            await engine.remove(each.id)
            reaped += 1
        await asyncio.to_thread(place.sweep, frozenset(spared))
        return reaped

    def _is_spared(self, each: Container) -> bool:
        deadline, owner = each.labels.get(DEADLINE, ""), owner_now(each.labels)
        if deadline.isdigit() and int(deadline) < time.time():
            return False
        orphaned = time.monotonic() - self._orphans[each.id]
        if each.ended and not lease.is_alive(owner):
            # Also where it cannot be known, as of a worker in a container that is gone: who lives removes what ended.
            return not lease.is_dead(owner) and orphaned < self._ended
        if not lease.is_dead(owner):
            self._orphans[each.id] = time.monotonic()
            return True
        return each.labels.get(KEPT) == "yes" and each.running and orphaned < self._grace


def owner_now(labels: Mapping[str, str]) -> str:
    """Who owns a container: whoever has its place, else whoever made it."""
    heir = place.Place.find(labels.get(PLACE, ""))
    return heir.owner if heir is not None else labels.get(OWNER, "")


async def again_and_again(sweep: Callable[[], Awaitable[object]], every: float = EVERY) -> None:
    """Sweep until cancelled; an engine that does not answer is asked again the next time."""
    while True:
        await asyncio.sleep(every)
        try:
            await sweep()
        except SandboxError as error:
            log.warning("sandboxes not swept", extra={"error": str(error)[:500]})
