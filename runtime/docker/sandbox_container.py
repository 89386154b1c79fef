"""Starts or adopts one container that runs an action server. Monitors the container, and removes it."""

import asyncio
import contextlib
import logging
import os
import re
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Literal

from patchwright.runtime import ownership
from patchwright.runtime.actions import MAX_TIMEOUT, Execute, Interrupt
from patchwright.runtime.docker.build_context import APP_DIR, INSTALL_DIR, PYTHON, SCRATCH_DIR, WORKSPACE_DIR
from patchwright.runtime.docker.egress_bridges import open_bridges
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.exec_transport import BRIDGE_COMMAND, BRIDGE_USER, ExecTransport
from patchwright.runtime.docker.hardening import (
    SOCKET_MOUNT,
    container_user,
    find_dropped_limits,
    find_ineffective_limits,
    host_config,
)
from patchwright.runtime.docker.reaper import (
    ADOPTABLE_LABEL,
    DEADLINE_LABEL,
    OWNER_LABEL,
    RUN_LABEL,
    SOCKET_DIR_LABEL,
)
from patchwright.runtime.docker.socket_dir import SocketDir
from patchwright.runtime.egress.proxy import EgressConfig, EgressProxy
from patchwright.runtime.egress_forwarder import BRIDGE_SOCKET, EGRESS_SOCKET, PROXY_ENVIRONMENT
from patchwright.runtime.egress_policy import ConnectionLog
from patchwright.runtime.errors import EngineUnavailable, OutOfMemory, SandboxError, SandboxLost
from patchwright.runtime.execution.action_server import BOOTSTRAP_CODE
from patchwright.runtime.monitored_sandbox import ContainerMonitor, MonitoredSandbox
from patchwright.runtime.remote_sandbox import RemoteSandbox, SandboxTransport, SocketTransport
from patchwright.runtime.sandbox import SandboxSpec
from patchwright.runtime.stdio_relay import ABSTRACT_SOCKET
from patchwright.runtime.wire_protocol import KEY_FILE, SOCKET_NAME

log = logging.getLogger(__name__)

TransportKind = Literal["socket", "exec"]
# maximum seconds until the server in the container sends its hello message; on an idle machine, it takes 0.3
STARTUP_TIMEOUT = 60.0
# seconds to wait for the unfinished action of a process that was killed, if no tool call will ask for its
# result
IN_FLIGHT_TIMEOUT = 3.0
# seconds in which the server must connect to a process that adopts it; after that, a new container is started
RECONNECT_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Configuration of the containers of one operator."""

    spec: SandboxSpec
    image: str
    egress: EgressConfig | None
    """Network access of online containers. If it is None, they have no network."""
    transport: TransportKind
    namespace: str = ""
    """Identifies the data directory. It is part of the container names, so that different data directories
    use different names.
    """
    startup_timeout: float = STARTUP_TIMEOUT
    """Maximum seconds between the start of the container and the hello message of its server."""
    as_root: bool = False
    """True if the container runs the setup of a repository, as root."""


@dataclass(frozen=True, slots=True)
class SandboxContainer:
    """A running container that accepts actions. The caller of `start_container` must call `close`."""

    engine: Engine
    container_id: str
    namespace: str
    sandbox: MonitoredSandbox
    connection_log: ConnectionLog | None
    """The log of the container's connections. None if the container is offline."""
    _exit_stack: AsyncExitStack

    async def close(self) -> None:
        """Remove the container and everything that belongs to it."""
        await self._exit_stack.aclose()


async def start_container(
    engine: Engine, spec: ContainerSpec, name: str, *, online: bool, adoptable: bool
) -> SandboxContainer:
    """Start a container. If a container with the same name exists, replace it.

    If `adoptable` is True, another process may adopt the container after this process was killed. Raises
    EngineUnavailable or SandboxLost.
    """
    async with AsyncExitStack() as stack:
        socket_dir = SocketDir.create()
        stack.callback(socket_dir.remove)
        online = online and spec.egress is not None
        config = _container_config(spec, name, socket_dir, online=online, adoptable=adoptable)
        shared_transport: SocketTransport | None = None
        if spec.transport == "socket":
            shared_transport = await stack.enter_async_context(SocketTransport.listen(socket_dir.mounted_dir))
            socket_dir.save_key(shared_transport.key)
        container = await engine.create(container_name(name, spec.namespace), **config)
        stack.push_async_callback(_remove_container, engine, container)
        await engine.start(container)
        transport = shared_transport or _open_exec_transport(engine, container, stack)
        # These limits are checked while the server starts.
        limit_check = asyncio.create_task(_check_engine_limits(engine, spec, container))
        try:
            await _wait_for_server(engine, spec, container, transport)
            await limit_check
        finally:
            limit_check.cancel()
            await asyncio.gather(limit_check, return_exceptions=True)
        sandbox = RemoteSandbox(
            transport,
            WORKSPACE_DIR,
            SCRATCH_DIR,
            find_failure=lambda: find_failure(engine, spec.spec, container),
        )
        _check_kernel_limits(spec, transport)
        proxy = await _start_egress(engine, spec, socket_dir, container, stack) if online else None
        return await _monitor_container(engine, spec, container, sandbox, proxy, stack)


async def adopt_container(engine: Engine, spec: ContainerSpec, name: str) -> SandboxContainer | None:
    """Take over the container with this name, whose former process on this host was killed. The shell in the
    container is still running.

    Waits for the unfinished action in the container. Returns None if there is no container to adopt. If a
    container exists but can no longer be used, removes it and returns None.
    """
    inspected = await engine.inspect(container_name(name, spec.namespace))
    labels = inspected["Config"]["Labels"] or {} if inspected else {}
    left_dir = SocketDir.find(labels.get(SOCKET_DIR_LABEL, ""))
    if (
        inspected is None
        or labels.get(ADOPTABLE_LABEL) != "yes"
        or left_dir is None
        or (socket_dir := left_dir.claim()) is None
    ):
        return None
    container = str(inspected["Id"])
    async with AsyncExitStack() as stack:
        stack.callback(socket_dir.remove)
        stack.push_async_callback(_remove_container, engine, container)
        is_compatible = inspected["Config"]["Image"] == spec.image and not find_dropped_limits(
            inspected, spec.spec
        )
        if not is_compatible or not inspected["State"]["Running"] or inspected["State"]["Paused"]:
            return None
        transport: SandboxTransport
        if any(mount["Destination"] == SOCKET_MOUNT for mount in inspected["Mounts"]):
            if (key := socket_dir.read_key()) is None:
                return None
            transport = await stack.enter_async_context(SocketTransport.listen(socket_dir.mounted_dir, key))
        else:
            transport = _open_exec_transport(engine, container, stack)
        online = "--egress" in inspected["Config"]["Cmd"]
        proxy = await _start_egress(engine, spec, socket_dir, container, stack) if online else None
        try:
            await transport.get_connection(RECONNECT_TIMEOUT)
            sandbox = RemoteSandbox(
                transport,
                *(WORKSPACE_DIR, SCRATCH_DIR),
                find_failure=lambda: find_failure(engine, spec.spec, container),
                previous=transport.hello,
            )
            # If False, no tool call will ask for the result of the unfinished action.
            has_waiting_call = transport.hello.call_request_id == transport.hello.last_request_id
            await _wait_until_idle(sandbox, MAX_TIMEOUT if has_waiting_call else IN_FLIGHT_TIMEOUT)
        except (TimeoutError, SandboxError) as error:
            log.warning("sandbox not adopted", extra={"container": container, "error": str(error)[:500]})
            return None
        return await _monitor_container(engine, spec, container, sandbox, proxy, stack)


async def _wait_until_idle(sandbox: RemoteSandbox, timeout: float) -> None:
    """Wait for the unfinished action. Interrupt the action if it takes longer than `timeout` seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await sandbox.act(Execute(argv=("true",), timeout=MAX_TIMEOUT))
            return
    await sandbox.act(Interrupt())
    await sandbox.act(Execute(argv=("true",), timeout=10))


def container_name(name: str, namespace: str = "") -> str:
    """Return the name of a sandbox's container. The name stays the same if another process adopts the sandbox.

    The name also depends on the machine, the user and the data directory. Processes that differ in one of them
    cannot adopt each other's containers, even if they share an engine.
    """
    identity = "\0".join((ownership.host_id(), str(os.getuid()), namespace, name))
    readable = re.sub("[^A-Za-z0-9_.-]+", "-", name)[:80]
    return f"patchwright-{readable}-{sha256(identity.encode()).hexdigest()[:12]}"


async def find_failure(engine: Engine, spec: SandboxSpec, container: str) -> SandboxLost | None:
    """Return the reason why a container is not running, or None if it is running."""
    inspected = await engine.inspect(container)
    if inspected is None:
        return SandboxLost("the container was removed")
    state = inspected["State"]
    if state["Running"] and not state["Paused"]:
        return None
    # The engine sets OOMKilled because of an event of the cgroup. Exit status 137 alone proves nothing,
    # because any SIGKILL leads to it.
    if state["OOMKilled"] and state["ExitCode"] == 137:
        return OutOfMemory(f"the sandbox ran out of memory (`memory_mb` is {spec.memory_mb:,} MiB)")
    return SandboxLost(f"the container is {state['Status']} (exit status {state['ExitCode']})")


async def _monitor_container(
    engine: Engine,
    spec: ContainerSpec,
    container: str,
    sandbox: RemoteSandbox,
    proxy: EgressProxy | None,
    stack: AsyncExitStack,
) -> SandboxContainer:
    monitor = ContainerMonitor(
        spec.spec.disk_mb, measure=lambda: engine.usage(container), stop=lambda: engine.kill(container)
    )
    await stack.enter_async_context(monitor.monitor())
    return SandboxContainer(
        engine,
        container,
        spec.namespace,
        MonitoredSandbox(sandbox, proxy, monitor),
        proxy.connection_log if proxy else None,
        stack.pop_all(),
    )


def _container_config(
    spec: ContainerSpec, name: str, socket_dir: SocketDir, *, online: bool, adoptable: bool
) -> dict[str, Any]:
    server_arguments = (
        ["--socket", f"{SOCKET_MOUNT}/{SOCKET_NAME}", "--key", f"{SOCKET_MOUNT}/{KEY_FILE}"]
        if spec.transport == "socket"
        else ["--listen", ABSTRACT_SOCKET, "--host", BRIDGE_USER]
    )
    egress = f"{SOCKET_MOUNT}/{EGRESS_SOCKET}" if spec.transport == "socket" else f"@{BRIDGE_SOCKET}"
    arguments = [
        "--root",
        WORKSPACE_DIR,
        "--scratch",
        SCRATCH_DIR,
        "--features",
        INSTALL_DIR,
        *(["--egress", egress] if online else []),
    ]
    return {
        "image": spec.image,
        "entrypoint": [PYTHON],
        "command": ["-I", "-c", BOOTSTRAP_CODE, APP_DIR, *server_arguments, *arguments],
        "healthcheck": {"test": ["NONE"]},
        "hostname": "sandbox",
        "user": container_user(as_root=spec.as_root),
        "working_dir": WORKSPACE_DIR,
        # The engine would store the container's environment in the image. A setup's container therefore has
        # no proxy variables; each command of the setup gets them separately.
        "environment": PROXY_ENVIRONMENT if online and not spec.as_root else {},
        "labels": {
            OWNER_LABEL: ownership.current_owner(),
            RUN_LABEL: name,
            DEADLINE_LABEL: str(int(time.time()) + spec.spec.lifetime),
            SOCKET_DIR_LABEL: socket_dir.id,
            ADOPTABLE_LABEL: "yes" if adoptable else "no",
        },
        "host": host_config(
            spec.spec, socket_dir.mounted_dir if spec.transport == "socket" else None, as_root=spec.as_root
        ),
    }


async def _start_egress(
    engine: Engine, spec: ContainerSpec, socket_dir: SocketDir, container: str, stack: AsyncExitStack
) -> EgressProxy | None:
    """Serve the network connections of the container until the stack is closed."""
    if spec.egress is None:
        return None
    proxy = EgressProxy(spec.egress)
    if spec.transport == "socket":
        await stack.enter_async_context(proxy.listen(socket_dir.mounted_dir / EGRESS_SOCKET))
    else:
        stack.callback(proxy.close)
        bridge = (*BRIDGE_COMMAND, BRIDGE_SOCKET)
        attach = partial(engine.attach, container, bridge, BRIDGE_USER)
        await stack.enter_async_context(open_bridges(proxy, attach))
    return proxy


def _open_exec_transport(engine: Engine, container: str, stack: AsyncExitStack) -> ExecTransport:
    transport = ExecTransport(lambda: engine.attach(container, BRIDGE_COMMAND, BRIDGE_USER))
    stack.callback(transport.disconnect)
    return transport


async def _remove_container(engine: Engine, container: str) -> None:
    try:
        await engine.remove(container)
    # this error must not replace the result of the run; the reaper will remove the container
    except EngineUnavailable as error:
        log.warning("container not removed", extra={"container": container, "error": str(error)[:500]})


async def _check_engine_limits(engine: Engine, spec: ContainerSpec, container: str) -> None:
    """Raise EngineUnavailable if the engine has ignored a limit."""
    inspected = await engine.inspect(container)
    if inspected is None:
        raise SandboxLost("the container was removed while it started")
    if missing := find_dropped_limits(inspected, spec.spec, as_root=spec.as_root):
        raise EngineUnavailable(
            f"the Docker engine does not enforce these limits: {', '.join(missing)}; "
            "a rootless engine needs cgroup v2 with delegated controllers"
        )


def _check_kernel_limits(spec: ContainerSpec, transport: SandboxTransport) -> None:
    """Raise EngineUnavailable if the kernel does not enforce a limit.

    The server in the container read the limits before the first command ran, so no command could falsify the values.
    """
    if missing := find_ineffective_limits(transport.hello.process_limits, spec.spec, as_root=spec.as_root):
        raise EngineUnavailable(f"the kernel does not enforce these limits: {', '.join(missing)}")


async def _wait_for_server(
    engine: Engine, spec: ContainerSpec, container: str, transport: SandboxTransport
) -> None:
    deadline = time.monotonic() + spec.startup_timeout
    while True:
        try:
            await transport.get_connection(timeout=1 if isinstance(transport, SocketTransport) else 10)
        except TimeoutError:
            failure = await find_failure(engine, spec.spec, container)
            if failure is None and time.monotonic() < deadline:
                continue
            output = await engine.logs(container)
            raise SandboxLost(f"the sandbox did not start ({failure or 'no response'}): {output}") from None
        else:
            return
