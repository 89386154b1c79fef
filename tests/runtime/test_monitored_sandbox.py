"""Disk limits and pauses, in a container and with a simulated one."""

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import cast

import pytest

from patchwright.runtime.actions import BrowseLinks, RunShell, SandboxAction, UseBrowser
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.sandbox_container import container_name
from patchwright.runtime.egress_policy import ConnectionLog
from patchwright.runtime.errors import EngineUnavailable, SandboxDiskFull, SandboxLost
from patchwright.runtime.monitored_sandbox import ContainerMonitor, ContainerUsage, MonitoredSandbox
from patchwright.runtime.observations import ActionFailure, Observation, ShellResult
from patchwright.runtime.remote_sandbox import RemoteSandbox
from patchwright.runtime.sandbox import Sandbox, WrapperSandbox

NAME = f"disk-{os.getpid()}"
Make = Callable[..., DockerSandboxes]
FILL = "for n in $(seq 8); do head -c 10000000 /dev/zero > /workspace/$n; done; sleep {}; echo still here"


@pytest.mark.slow
@pytest.mark.docker
async def test_a_sandbox_over_its_disk_limit_is_stopped_with_the_reason(docker_sandboxes: Make) -> None:
    async with docker_sandboxes(disk_mb=40).open(NAME) as sandbox:
        with pytest.raises(
            SandboxDiskFull, match=r"76 MiB of files, more than `disk_mb` \(40\), and was stopped"
        ) as full:
            await sandbox.act(RunShell(command=FILL.format(30)))
        assert not full.value.retryable
        with pytest.raises(SandboxDiskFull):
            await sandbox.act(RunShell(command="echo again"))


@pytest.mark.docker
@pytest.mark.slow
async def test_the_same_files_fit_where_the_limit_is_larger(docker_sandboxes: Make) -> None:
    """Control of the case above; files in scratch are memory and do not count."""
    async with docker_sandboxes(disk_mb=200).open(NAME) as sandbox:
        ran = await sandbox.act(
            RunShell(command=FILL.format(5) + "; head -c 150000000 /dev/zero > /tmp/more")
        )
        assert isinstance(ran, ShellResult) and ran.output == "still here\n"
        engine = await Engine.connect()
        found = await engine.inspect(container_name(NAME))
        assert found is not None
        usage = await engine.usage(found["Id"])
        assert usage is not None and 80_000_000 <= usage.size < 90_000_000
        await engine.close()


async def test_a_short_outage_of_the_engine_stops_nothing() -> None:
    sizes = iter([EngineUnavailable("away"), 30 << 20, 50 << 20])
    ended: list[bool] = []

    async def size() -> ContainerUsage | None:
        found = next(sizes)
        if isinstance(found, EngineUnavailable):
            raise found
        return ContainerUsage(found, is_paused=False)

    async def end() -> None:
        ended.append(True)

    disk = ContainerMonitor(40, size, end, interval=0.01)
    async with disk.monitor() as watch:
        await watch
    assert ended == [True]
    assert str(disk.error).startswith("the sandbox wrote 50 MiB of files, more than `disk_mb` (40)")


async def test_monitoring_stops_when_the_container_is_gone() -> None:
    async def size() -> ContainerUsage | None:
        return None

    async def end() -> None:
        raise AssertionError("there is nothing to end")

    disk = ContainerMonitor(40, size, end, interval=0.01)
    async with disk.monitor() as watch:
        await watch
    assert disk.error is None


async def test_a_pause_ends_only_an_action_that_waits_for_its_result() -> None:
    # The first pause is short, and no action waits during the second one.
    paused = [True, False, True, True, False, True, True]
    calls, ended = iter(range(len(paused))), list[bool]()

    async def usage() -> ContainerUsage | None:
        call = next(calls)
        if call == 2:
            waiting.close()
        elif call == 4:
            waiting.enter_context(monitor.expect_response())
        return ContainerUsage(0, is_paused=paused[call])

    async def end() -> None:
        ended.append(True)

    monitor = ContainerMonitor(40, usage, end, interval=0.01)
    with ExitStack() as waiting:
        waiting.enter_context(monitor.expect_response())
        async with monitor.monitor() as watch:
            await watch
    assert (next(calls, None), ended, str(monitor.error)) == (None, [True], "the container was paused")


class FakeNetwork:
    """Records when linked hosts are allowed."""

    def __init__(self) -> None:
        self.connection_log = ConnectionLog()
        self.links = self
        self.allowed: tuple[str, ...] = ()

    def allow(self, hosts: Iterable[str]) -> str:
        self.allowed = tuple(hosts)
        return "key"

    def deny(self) -> None:
        self.allowed = ()


async def test_linked_hosts_are_allowed_only_during_the_action_that_may_read_them() -> None:
    network, seen = FakeNetwork(), list[tuple[str, tuple[str, ...]]]()

    class Remote(WrapperSandbox):
        async def act(self, action: SandboxAction) -> Observation:
            seen.append((action.key if isinstance(action, BrowseLinks) else "", network.allowed))
            if len(seen) == 3:
                raise SandboxLost("gone")
            return ActionFailure(reason="io", message="no browser")

    async def measure() -> ContainerUsage | None:
        return None

    async def stop() -> None: ...

    remote = cast("RemoteSandbox", Remote(cast("Sandbox", None)))
    sandbox = MonitoredSandbox(remote, network, ContainerMonitor(40, measure, stop))
    links = BrowseLinks(browser=UseBrowser(), hosts=("linked.test",))
    await sandbox.act(links)
    await sandbox.act(UseBrowser())
    with pytest.raises(SandboxLost):
        await sandbox.act(links)
    assert seen == [("key", ("linked.test",)), ("", ()), ("key", ("linked.test",))]
    assert network.allowed == ()
