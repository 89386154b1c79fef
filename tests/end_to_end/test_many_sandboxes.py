"""Many concurrent sandboxes, some of them aborted, leave nothing behind. `benchmarks/many.py` opens 200."""

import asyncio

import pytest

from benchmarks.many import OURS, SPEC, Traces, many
from benchmarks.sandbox import CA_BUNDLE
from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker import capacity
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.runtime_layer import BuildSettings

pytestmark = [pytest.mark.docker, pytest.mark.slow]

KINDS = ("containers", "volumes", "networks", "processes", "files", "descriptors")


async def test_twenty_sandboxes_leave_nothing_behind() -> None:
    totals = await many(20, 5)
    assert totals.failed == []
    assert (totals.done, totals.broken) == (14, 6)
    assert totals.left == dict.fromkeys(KINDS, 0)
    assert min(totals.memory) > capacity.MIN_FREE_MEMORY_MB and min(totals.disk) > capacity.MIN_FREE_DISK_MB


async def test_an_open_sandbox_is_detected() -> None:
    before = await asyncio.to_thread(Traces.collect)
    sandboxes = DockerSandboxes(SPEC, BuildSettings(ca_bundle=CA_BUNDLE))
    async with sandboxes.open(f"{OURS}open") as sandbox:
        await sandbox.act(RunShell(command=":"))
        left = (await asyncio.to_thread(Traces.collect)).more_than(before)
    await sandboxes.close()
    assert (left["containers"], left["files"]) == (1, 1)
    assert left["descriptors"] > 0
