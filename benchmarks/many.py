"""200 sandboxes in Docker, 20 at a time, as one busy worker opens them: what they leave behind, and what they take.

Each takes memory, writes to its disk and leaves processes in the background; of every ten, the work in one breaks
off, another one's container is removed under its hands, and a third is given up while it starts. Afterwards there must
be no container, volume, network, process, file or open descriptor more than before, and the machine must never have
had less memory and disk than a sandbox is started with (`free_memory_mb`, `free_disk_mb`). It takes some minutes:
`script/bench long`.
"""

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import docker
import docker.errors

from benchmarks.measure import Result, report
from benchmarks.sandbox import CA_BUNDLE
from resolver.settings.server import ServerSettings
from runtime import lease, processes
from runtime.actions import RunShell
from runtime.docker import headroom
from runtime.docker.docker import DockerSandboxes
from runtime.docker.machine import container_name
from runtime.errors import SandboxError
from runtime.observations import Ran
from runtime.sandbox import SandboxSpec

SANDBOXES, AT_ONCE = 200, 20
FLOORS = ServerSettings()
SPEC = SandboxSpec(
    memory_mb=256,
    cpus=0.5,
    pids=64,
    disk_mb=256,
    free_memory_mb=FLOORS.free_memory_mb,
    free_disk_mb=FLOORS.free_disk_mb,
)
# 64 MiB of memory and of disk, and two processes that outlive the command, one of them in a session of its own.
WORK = "head -c 67108864 /dev/zero > file; cp file /tmp/file; (sleep 600 &); (setsid sleep 600 &); sleep 1; echo done"


OURS = f"many-{os.getpid()}-"  # how the names of our sandboxes begin


class BrokenOff(Exception):
    """What goes wrong in the work on purpose."""


@dataclass(frozen=True)
class Traces:
    """What there is of ours, and on the engine, at one moment."""

    containers: frozenset[str]
    volumes: frozenset[str]
    networks: frozenset[str]
    processes: frozenset[int]
    files: frozenset[str]
    descriptors: int

    @classmethod
    def seen(cls) -> "Traces":
        client = docker.from_env()
        try:
            ours = client.containers.list(all=True, ignore_removed=True, filters={"name": OURS})
            return cls(
                frozenset(str(each.id) for each in ours),
                frozenset(str(each.id) for each in client.volumes.list()),
                frozenset(str(each.id) for each in client.networks.list()),
                frozenset(processes.descendants(os.getpid())),
                frozenset(path.name for path in Path(tempfile.gettempdir()).glob(f"pw-{lease.owner()}-*")),
                len(os.listdir("/proc/self/fd")),
            )
        finally:
            client.close()

    def more_than(self, before: "Traces") -> dict[str, int]:
        """How many of each kind are here that were not before."""
        names = ("containers", "volumes", "networks", "processes", "files")
        more = {name: len(getattr(self, name) - getattr(before, name)) for name in names}
        return more | {"descriptors": max(0, self.descriptors - before.descriptors)}


@dataclass
class Seen:
    """What came of all of them."""

    done: int = 0
    broken: int = 0
    """Ended on purpose before their time."""
    failed: list[str] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    memory: list[int] = field(default_factory=list)
    """MiB that the machine had left, from before the first to after the last."""
    disk: list[int] = field(default_factory=list)
    seconds: float = 0.0


async def many(count: int, at_once: int) -> Seen:
    """Open so many, so many at a time, and see what is left."""
    seen, gate = Seen(), asyncio.Semaphore(at_once)
    sandboxes = DockerSandboxes(SPEC, ca_bundle=CA_BUNDLE)
    engine, _ = await sandboxes.prepare()
    storage = Path((await engine.info())["DockerRootDir"])
    # Whatever is made once (threads, the client's connections to the engine) is made now.
    await asyncio.gather(*(_use(sandboxes, 10 * number, Seen()) for number in range(at_once)))
    before, begun = await asyncio.to_thread(Traces.seen), time.monotonic()
    with _watching(seen, storage):

        async def one(number: int) -> None:
            async with gate:
                await _use(sandboxes, number, seen)

        await asyncio.gather(*(one(number) for number in range(count)))
        seen.seconds = time.monotonic() - begun
    after = await asyncio.to_thread(Traces.seen)
    seen.left = after.more_than(before)
    await sandboxes.close()
    return seen


async def _use(sandboxes: DockerSandboxes, number: int, seen: Seen) -> None:
    name, fate = f"{OURS}{number}", number % 10
    try:
        async with asyncio.timeout(0.15 if fate == 3 else None), sandboxes.open(name) as sandbox:
            if fate == 2:
                await asyncio.to_thread(_remove, container_name(name))
            ran = await sandbox.act(RunShell(command=WORK, timeout=120))
            if fate == 1:
                raise BrokenOff
            if not isinstance(ran, Ran) or not ran.output.endswith("done\n"):
                seen.failed.append(f"{name}: {ran}")
        seen.done += 1
    except (BrokenOff, TimeoutError):
        seen.broken += 1
    except SandboxError as error:
        if fate == 2:
            seen.broken += 1
        else:
            seen.failed.append(f"{name}: {error}")


def _remove(container: str) -> None:
    client = docker.from_env()
    try:
        with contextlib.suppress(docker.errors.NotFound):
            client.containers.get(container).remove(force=True)
    finally:
        client.close()


@contextlib.contextmanager
def _watching(seen: Seen, storage: Path) -> Iterator[None]:
    """Look at what the machine has left, four times a second and at both ends."""

    def look() -> None:
        seen.memory.append(headroom.memory() or 0)
        seen.disk.append(headroom.disk(storage) or 0)

    async def again() -> None:
        while True:
            look()
            await asyncio.sleep(0.25)

    task = asyncio.create_task(again())
    try:
        yield
    finally:
        task.cancel()
        look()


def measure() -> list[Result]:
    """What was left behind, and what the machine had left, in MiB."""
    seen = asyncio.run(many(SANDBOXES, AT_ONCE))
    for line in (*seen.failed, *(f"left: {kind}" for kind, count in seen.left.items() if count)):
        print(line)

    def result(name: str, value: float, target: float | None, unit: str = "") -> Result:
        return Result(name=f"many_{name}", value=round(value, 1), unit=unit, floor=None, target=target)

    def at_least(name: str, value: float, target: float, unit: str = "") -> Result:
        return result(name, value, target, unit).model_copy(update={"better": "higher"})

    return [
        at_least("sandboxes", seen.done + seen.broken, SANDBOXES),
        result("failed", len(seen.failed), 0),
        result("left_behind", sum(seen.left.values()), 0),
        at_least("memory_least", min(seen.memory), FLOORS.free_memory_mb, "MiB"),
        at_least("disk_least", min(seen.disk), FLOORS.free_disk_mb, "MiB"),
        result("memory_lost", max(0, seen.memory[0] - seen.memory[-1]), None, "MiB"),
        result("disk_lost", max(0, seen.disk[0] - seen.disk[-1]), None, "MiB"),
        result("seconds", seen.seconds, None, "s"),
    ]


if __name__ == "__main__":
    report(measure())
