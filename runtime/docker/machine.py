"""One container with a server in it, from its start, or its adoption, to its end."""

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

from runtime import lease
from runtime.actions import MAX_SECONDS, Execute, Interrupt
from runtime.bridge import NAME
from runtime.docker.confinement import DOOR, dropped, host_config, ineffective, user
from runtime.docker.egress_bridges import bridging
from runtime.docker.engine import Engine
from runtime.docker.exec_transport import BRIDGE, BRIDGE_USER, ExecDoor
from runtime.docker.image import APP, OURS, PYTHON, ROOT, SCRATCH
from runtime.docker.place import Place
from runtime.docker.reaper import DEADLINE, KEPT, OWNER, PLACE, RUN
from runtime.egress.egress import Ledger
from runtime.egress.proxy import Egress, Proxy
from runtime.errors import EngineUnavailable, OutOfMemory, SandboxError, SandboxLost
from runtime.forward import BRIDGES, EGRESS, ENVIRONMENT
from runtime.observations import Noted
from runtime.remote import Door, Entrance, RemoteSandbox
from runtime.sandbox import SandboxSpec
from runtime.server import BOOT
from runtime.watched import Disk, Watched
from runtime.wire import KEY, SOCKET

log = logging.getLogger(__name__)

Transport = Literal["socket", "exec"]
DIAL_IN = 60.0  # seconds from the start of a container to its first word; 0.3 on an idle machine
IN_FLIGHT = 3.0  # seconds for what is no agent's call and still runs when the process that asked is gone
ALIVE = 5.0  # seconds for an idle server to answer
HEIR = 10.0  # seconds for a server to come back to a process that takes over; then it is started anew


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the containers of one operator are made of."""

    spec: SandboxSpec
    image: str
    egress: Egress | None
    """How one that is online gets out; None: it does not."""
    transport: Transport
    whose: str = ""
    """Whose sandboxes they are; those of others have other names, whatever their runs are called."""
    patience: float = DIAL_IN
    """Seconds from the start of a container to its first word."""
    root: bool = False
    """They are for a set-up, which is root in them."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A running container, ready to act. Whoever has it must `end` it."""

    engine: Engine
    container: str
    whose: str
    sandbox: Watched
    ledger: Ledger | None
    """None: it is not online."""
    _ending: AsyncExitStack

    async def rename(self, name: str) -> None:
        """Make it the sandbox of this name, in place of one that has it."""
        await self.engine.rename(self.container, container_name(name, self.whose), (OWNER, RUN))

    async def alive(self) -> bool:
        try:
            # Of an idle sandbox this asks nothing but an answer; to start a program would take 5 ms.
            async with asyncio.timeout(ALIVE):
                return isinstance(await self.sandbox.act(Interrupt()), Noted)
        except (SandboxError, TimeoutError):
            return False

    async def end(self) -> None:
        """Remove the container and all that belongs to it."""
        await self._ending.aclose()


async def start(engine: Engine, recipe: Recipe, name: str, *, online: bool, kept: bool) -> Machine:
    """A new container, in place of one of this name.

    `kept`: if this process is killed, the next one may adopt it. Raises EngineUnavailable or SandboxLost.
    """
    async with AsyncExitStack() as stack:
        place = Place.make()
        stack.callback(place.remove)
        online = online and recipe.egress is not None
        config = _config(recipe, name, place, online=online, kept=kept)
        shared: Door | None = None
        if recipe.transport == "socket":
            shared = await stack.enter_async_context(Door.open(place.door))
            place.keep_key(shared.key)
        container = await engine.create(container_name(name, recipe.whose), **config)
        stack.push_async_callback(_remove, engine, container)
        await engine.start(container)
        door = shared or _dialling(engine, container, stack)
        checking = asyncio.create_task(_check(engine, recipe, container))  # while the server starts
        try:
            await _dialled_in(engine, recipe, container, door)
            await checking
        finally:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)
        sandbox = RemoteSandbox(door, ROOT, SCRATCH, fate=lambda: fate(engine, recipe.spec, container))
        _look_inside(recipe, door)
        ledger = await _way_out(engine, recipe, place, container, stack) if online else None
        return await _machine(engine, recipe, container, sandbox, ledger, stack)


async def adopt(engine: Engine, recipe: Recipe, name: str) -> Machine | None:
    """The container of this name that a process of this host left when it died, its shell alive.

    What it still did then is finished first. None: there is none that can be used any more; it is removed.
    """
    found = await engine.inspect(container_name(name, recipe.whose))
    labels = found["Config"]["Labels"] or {} if found else {}
    left = Place.find(labels.get(PLACE, ""))
    if found is None or labels.get(KEPT) != "yes" or left is None or (place := left.inherit()) is None:
        return None
    container = str(found["Id"])
    async with AsyncExitStack() as stack:
        stack.callback(place.remove)
        stack.push_async_callback(_remove, engine, container)
        fits = found["Config"]["Image"] == recipe.image and not dropped(found, recipe.spec)
        if not fits or not found["State"]["Running"] or found["State"]["Paused"]:
            return None
        door: Entrance
        if any(mount["Destination"] == DOOR for mount in found["Mounts"]):
            if (key := place.key()) is None:
                return None
            door = await stack.enter_async_context(Door.open(place.door, key))
        else:
            door = _dialling(engine, container, stack)
        online = "--egress" in found["Config"]["Cmd"]
        ledger = await _way_out(engine, recipe, place, container, stack) if online else None
        try:
            await door.line(HEIR)
            sandbox = RemoteSandbox(
                door,
                *(ROOT, SCRATCH),
                fate=lambda: fate(engine, recipe.spec, container),
                left=door.hello,
            )
            awaited = door.hello.called == door.hello.last  # else nobody will ask what is in flight came to
            await _freed(sandbox, MAX_SECONDS if awaited else IN_FLIGHT)
        except (TimeoutError, SandboxError) as error:
            log.warning("sandbox not adopted", extra={"container": container, "error": str(error)[:500]})
            return None
        return await _machine(engine, recipe, container, sandbox, ledger, stack)


async def _freed(sandbox: RemoteSandbox, patience: float) -> None:
    """Wait until what was in flight has ended. What takes longer is interrupted: nobody will hear its answer."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience):
            await sandbox.act(Execute(argv=("true",), timeout=MAX_SECONDS))
            return
    await sandbox.act(Interrupt())
    await sandbox.act(Execute(argv=("true",), timeout=10))


def container_name(name: str, whose: str = "") -> str:
    """The container of a sandbox's name, always the same one, and nobody else's on a shared engine.

    Who could not adopt it does not get the name: another machine or user, or another of their data directories.
    """
    identity = "\0".join((lease.machine(), str(os.getuid()), whose, name))
    readable = re.sub("[^A-Za-z0-9_.-]+", "-", name)[:80]
    return f"patchwright-{readable}-{sha256(identity.encode()).hexdigest()[:12]}"


async def fate(engine: Engine, spec: SandboxSpec, container: str) -> SandboxLost | None:
    """What became of a container that runs no more."""
    found = await engine.inspect(container)
    if found is None:
        return SandboxLost("the container was removed")
    state = found["State"]
    if state["Running"] and not state["Paused"]:
        return None
    # The engine has it from the cgroup's own event; a status of 137 alone would say no more than SIGKILL.
    if state["OOMKilled"] and state["ExitCode"] == 137:
        return OutOfMemory(
            f"the sandbox ran out of memory, of which `memory_mb` allows {spec.memory_mb:,} MiB"
        )
    return SandboxLost(f"the container is {state['Status']} (exit status {state['ExitCode']})")


async def _machine(
    engine: Engine,
    recipe: Recipe,
    container: str,
    sandbox: RemoteSandbox,
    ledger: Ledger | None,
    stack: AsyncExitStack,
) -> Machine:
    disk = Disk(recipe.spec.disk_mb, size=lambda: engine.size(container), end=lambda: engine.kill(container))
    await stack.enter_async_context(disk.watching())
    return Machine(engine, container, recipe.whose, Watched(sandbox, ledger, disk), ledger, stack.pop_all())


def _config(recipe: Recipe, name: str, place: Place, *, online: bool, kept: bool) -> dict[str, Any]:
    way = (
        ["--socket", f"{DOOR}/{SOCKET}", "--key", f"{DOOR}/{KEY}"]
        if recipe.transport == "socket"
        else ["--listen", NAME, "--host", BRIDGE_USER]
    )
    out = f"{DOOR}/{EGRESS}" if recipe.transport == "socket" else f"@{BRIDGES}"
    where = ["--root", ROOT, "--scratch", SCRATCH, "--plugins", OURS, *(["--egress", out] if online else [])]
    return {
        "image": recipe.image,
        "entrypoint": [PYTHON],
        "command": ["-I", "-c", BOOT, APP, *way, *where],
        "healthcheck": {"test": ["NONE"]},
        "hostname": "sandbox",
        "user": user(root=recipe.root),
        "working_dir": ROOT,
        # What a set-up leaves is kept with its environment, so its commands get theirs one by one.
        "environment": ENVIRONMENT if online and not recipe.root else {},
        "labels": {
            OWNER: lease.owner(),
            RUN: name,
            DEADLINE: str(int(time.time()) + recipe.spec.lifetime),
            PLACE: place.name,
            KEPT: "yes" if kept else "no",
        },
        "host": host_config(
            recipe.spec, place.door if recipe.transport == "socket" else None, root=recipe.root
        ),
    }


async def _way_out(
    engine: Engine, recipe: Recipe, place: Place, container: str, stack: AsyncExitStack
) -> Ledger | None:
    """Answer at the end of the container's way out, as long as the stack lasts."""
    if recipe.egress is None:
        return None
    proxy = Proxy(recipe.egress)
    if recipe.transport == "socket":
        await stack.enter_async_context(proxy.listening(place.door / EGRESS))
    else:
        stack.callback(proxy.close)
        bridge = (*BRIDGE, BRIDGES)
        attach = partial(engine.attach, container, bridge, BRIDGE_USER)
        await stack.enter_async_context(bridging(proxy, attach))
    return proxy.ledger


def _dialling(engine: Engine, container: str, stack: AsyncExitStack) -> ExecDoor:
    door = ExecDoor(lambda: engine.attach(container, BRIDGE, BRIDGE_USER))
    stack.callback(door.hang_up)
    return door


async def _remove(engine: Engine, container: str) -> None:
    try:
        await engine.remove(container)
    except EngineUnavailable as error:  # it must not hide what the run came to; the reaper tries again
        log.warning("container not removed", extra={"container": container, "error": str(error)[:500]})


async def _check(engine: Engine, recipe: Recipe, container: str) -> None:
    """Read back what the engine made of it: a limit that it dropped in silence is an error."""
    found = await engine.inspect(container)
    if found is None:
        raise SandboxLost("the container was removed while it started")
    if lost := dropped(found, recipe.spec, root=recipe.root):
        raise EngineUnavailable(
            f"the Docker engine does not enforce: {', '.join(lost)}; "
            "a rootless one needs cgroup v2, with the controllers delegated to it"
        )


def _look_inside(recipe: Recipe, door: Entrance) -> None:
    """Ask the kernel the same: what the server said of itself when it came, before any command could make it lie."""
    if lost := ineffective(door.hello.limits, recipe.spec, root=recipe.root):
        raise EngineUnavailable(f"the sandbox is not held to: {', '.join(lost)}")


async def _dialled_in(engine: Engine, recipe: Recipe, container: str, door: Entrance) -> None:
    deadline = time.monotonic() + recipe.patience
    while True:
        try:
            await door.line(timeout=1 if isinstance(door, Door) else 10)
        except TimeoutError:
            ended = await fate(engine, recipe.spec, container)
            if ended is None and time.monotonic() < deadline:
                continue
            said = await engine.logs(container)
            raise SandboxLost(f"the sandbox did not start ({ended or 'no word from it'}): {said}") from None
        else:
            return
