"""Measures what 200 Docker sandboxes, 20 at a time as in a busy worker, leave behind and use.

Each uses memory, writes to its disk, and leaves background processes. Of every ten, one fails during its
work, one loses its container, and one is abandoned during its start. Afterwards there must be no additional
container, volume, network, process, file, or open descriptor. The machine must always have had the memory and
disk that a sandbox needs to start (`runtime/docker/capacity.py`).

It takes some minutes: `script/bench long`.
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
from patchwright.runtime import ownership, processes
from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker import capacity
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.docker.sandbox_container import container_name
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.observations import ShellResult
from patchwright.runtime.sandbox import SandboxSpec

SANDBOXES, AT_ONCE = 200, 20
SPEC = SandboxSpec(
    memory_mb=256,
    cpus=0.5,
    pids=64,
    disk_mb=256,
)
# 64 MiB of memory and disk, and two processes that outlive the command, one in its own session.
WORK = "head -c 67108864 /dev/zero > file; cp file /tmp/file; (sleep 600 &); (setsid sleep 600 &); sleep 1; echo done"


OURS = f"many-{os.getpid()}-"  # start of the names of our sandboxes


class BrokenOff(Exception):
    """A deliberate failure during the work."""


@dataclass(frozen=True)
class Traces:
    """Everything of ours on the machine and the engine at one moment."""

    containers: frozenset[str]
    volumes: frozenset[str]
    networks: frozenset[str]
    processes: frozenset[int]
    files: frozenset[str]
    descriptors: int

    @classmethod
    def collect(cls) -> "Traces":
        client = docker.from_env()
        try:
            ours = client.containers.list(all=True, ignore_removed=True, filters={"name": OURS})
            return cls(
                frozenset(str(each.id) for each in ours),
                frozenset(str(each.id) for each in client.volumes.list()),
                frozenset(str(each.id) for each in client.networks.list()),
                frozenset(processes.descendant_pids(os.getpid())),
                frozenset(
                    path.name
                    for path in Path(tempfile.gettempdir()).glob(f"pw-{ownership.current_owner()}-*")
                ),
                len(os.listdir("/proc/self/fd")),
            )
        finally:
            client.close()

    def more_than(self, before: "Traces") -> dict[str, int]:
        """Returns how many of each kind are new."""
        names = ("containers", "volumes", "networks", "processes", "files")
        more = {name: len(getattr(self, name) - getattr(before, name)) for name in names}
        return more | {"descriptors": max(0, self.descriptors - before.descriptors)}


@dataclass
class Totals:
    """The results of all sandboxes."""

    done: int = 0
    broken: int = 0
    """Sandboxes that were ended early on purpose."""
    failed: list[str] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    memory: list[int] = field(default_factory=list)
    """MiB of free memory, from before the first sandbox to after the last."""
    disk: list[int] = field(default_factory=list)
    seconds: float = 0.0


async def many(count: int, at_once: int) -> Totals:
    """Opens this number of sandboxes, this many at a time, and returns what is left."""
    totals, semaphore = Totals(), asyncio.Semaphore(at_once)
    sandboxes = DockerSandboxes(SPEC, BuildSettings(ca_bundle=CA_BUNDLE))
    engine, _ = await sandboxes.prepare()
    storage = Path((await engine.info())["DockerRootDir"])
    # Creates everything that is created once: threads, and the client's connections to the engine.
    await asyncio.gather(*(_use(sandboxes, 10 * number, Totals()) for number in range(at_once)))
    before, started_at = await asyncio.to_thread(Traces.collect), time.monotonic()
    with _watching(totals, storage):

        async def one(number: int) -> None:
            async with semaphore:
                await _use(sandboxes, number, totals)

        await asyncio.gather(*(one(number) for number in range(count)))
        totals.seconds = time.monotonic() - started_at
    after = await asyncio.to_thread(Traces.collect)
    totals.left = after.more_than(before)
    await sandboxes.close()
    return totals


async def _use(sandboxes: DockerSandboxes, number: int, totals: Totals) -> None:
    name, fate = f"{OURS}{number}", number % 10
    try:
        async with asyncio.timeout(0.15 if fate == 3 else None), sandboxes.open(name) as sandbox:
            if fate == 2:
                await asyncio.to_thread(_remove, container_name(name))
            ran = await sandbox.act(RunShell(command=WORK, timeout=120))
            if fate == 1:
                raise BrokenOff
            if not isinstance(ran, ShellResult) or not ran.output.endswith("done\n"):
                totals.failed.append(f"{name}: {ran}")
        totals.done += 1
    except (BrokenOff, TimeoutError):
        totals.broken += 1
    except SandboxError as error:
        if fate == 2:
            totals.broken += 1
        else:
            totals.failed.append(f"{name}: {error}")


def _remove(container: str) -> None:
    client = docker.from_env()
    try:
        with contextlib.suppress(docker.errors.NotFound):
            client.containers.get(container).remove(force=True)
    finally:
        client.close()


@contextlib.contextmanager
def _watching(totals: Totals, storage: Path) -> Iterator[None]:
    """Records the free resources four times a second, and at both ends."""

    def look() -> None:
        totals.memory.append(capacity.available_memory_mb() or 0)
        totals.disk.append(capacity.available_disk_mb(storage) or 0)

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
    """Returns what was left behind, and the free resources in MiB."""
    totals = asyncio.run(many(SANDBOXES, AT_ONCE))
    for line in (*totals.failed, *(f"left: {kind}" for kind, count in totals.left.items() if count)):
        print(line)

    def result(name: str, value: float, target: float | None, unit: str = "") -> Result:
        return Result(name=f"many_{name}", value=round(value, 1), unit=unit, floor=None, target=target)

    def at_least(name: str, value: float, target: float, unit: str = "") -> Result:
        return result(name, value, target, unit).model_copy(update={"better": "higher"})

    return [
        at_least("sandboxes", totals.done + totals.broken, SANDBOXES),
        result("failed", len(totals.failed), 0),
        result("left_behind", sum(totals.left.values()), 0),
        at_least("memory_least", min(totals.memory), capacity.MIN_FREE_MEMORY_MB, "MiB"),
        at_least("disk_least", min(totals.disk), capacity.MIN_FREE_DISK_MB, "MiB"),
        result("memory_lost", max(0, totals.memory[0] - totals.memory[-1]), None, "MiB"),
        result("disk_lost", max(0, totals.disk[0] - totals.disk[-1]), None, "MiB"),
        result("seconds", totals.seconds, None, "s"),
    ]


if __name__ == "__main__":
    report(measure())
