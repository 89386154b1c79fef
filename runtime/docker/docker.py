"""Sandboxes in Docker containers: no network of its own, no capabilities, no root, limited, and never left behind."""

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Literal

from runtime.actions import RunShell
from runtime.docker import headroom, machine
from runtime.docker.alone import alone
from runtime.docker.engine import Engine
from runtime.docker.layers import ready_layer
from runtime.docker.machine import Machine, Recipe, Transport
from runtime.docker.pool import Pool
from runtime.docker.reaper import Reaper
from runtime.docker.repository_layer import fill_layer, layer_tag
from runtime.egress.egress import Ledger, Network, Visit
from runtime.egress.proxy import Egress
from runtime.errors import EngineStopped, EngineUnavailable, SandboxLost
from runtime.plugins import Plugin
from runtime.sandbox import Sandbox, SandboxSpec

log = logging.getLogger(__name__)

FIRST_DIAL = 20.0  # seconds for a server to come by a shared socket, as long as none ever came
REFILL = 0.25  # seconds that a warm sandbox has for itself before the next one is started


class DockerSandboxes:
    """Opens sandboxes as containers of one engine, from the runtime layer on one base image."""

    kind: Literal["docker", "local"] = "docker"

    def __init__(
        self,
        spec: SandboxSpec,
        *,
        engine_url: str | None = None,
        ca_bundle: Path | None = None,
        package_index: str | None = None,
        notice: Callable[[str], object] | None = None,
        logs: Path | None = None,
        proxy: str | None = None,
        egress: Egress | None = None,
        transport: Literal["auto", "socket", "exec"] = "auto",
        warm: int = 0,
        whose: str = "",
        plugins: tuple[Plugin, ...] = (),
    ) -> None:
        """`engine_url` None: the engine that DOCKER_HOST names, or the local one.

        `ca_bundle` and `package_index` reach the build of the layer and the commands in the sandbox;
        `notice` hears that an image is built, and that a plugin is made or left out, and `logs` is a directory for
        the lines of a build that failed, by which only one process at a time makes images.
        `proxy` is that of the operator's network, for the one build that goes out.
        `egress`: how a sandbox that is opened online gets out; None: it does not.
        `transport`: by a shared socket, or by `docker exec`; auto: by the socket where it can be shared.
        `warm`: how many sandboxes are started ahead.
        `whose`: tells sandboxes of the same name apart, and who may adopt them: one text for each place in
        which runs are kept.
        `plugins`: what they have beside shell and editor, less what cannot be made.
        """
        self.plugins = plugins
        self._spec = spec
        self._engine_url = engine_url
        self._whose = whose
        self._ca_bundle = ca_bundle
        self._package_index = package_index
        self._notice = notice
        self._logs = logs
        self._proxy = proxy
        self._egress = egress
        self._transport: Transport | None = None if transport == "auto" else transport
        self._reaper = Reaper()
        self._pool = Pool(warm, self._start_ahead, pause=REFILL)
        self._ledgers: dict[str, Ledger] = {}
        self._ready: tuple[Engine, str] | None = None
        self._is_whole = True  # else it borrows the engine of another, and its image cannot be made again
        self._getting_ready = asyncio.Lock()
        self._storage: Path | None = None

    @property
    def network(self) -> Network:
        return self._egress.policy.network if self._egress else "none"

    @asynccontextmanager
    async def open(self, name: str, *, online: bool = False, kept: bool = False) -> AsyncIterator[Sandbox]:
        warm = await self._pool.take() if online or self.network == "none" else None
        if warm is None:
            opened = await self._start(name, online=online, kept=kept)
        else:
            opened = warm
            try:
                await opened.rename(name)
            except BaseException:
                await opened.end()
                raise
        async with self._using(name, opened) as sandbox:
            yield sandbox

    @asynccontextmanager
    async def adopt(self, name: str) -> AsyncIterator[Sandbox | None]:
        engine, image = await self.prepare()
        adopted = await machine.adopt(engine, self._recipe(image), name)
        if adopted is None:
            yield None
            return
        async with self._using(name, adopted) as sandbox:
            yield sandbox

    async def derived(
        self, name: str, repository: str, key: str, fill: Callable[[Sandbox], Awaitable[None]]
    ) -> "DockerSandboxes":
        engine, image = await self.prepare()
        tag = layer_tag(image, key)
        if await engine.image(tag) is None:
            opened = await self._start(name, online=True, kept=False, root=True)
            async with self._using(name, opened):
                await fill_layer(opened, tag, repository, fill)
        return self._beginning_with(engine, tag, self.plugins)

    async def on(self, image: str) -> "DockerSandboxes":
        if image == self._spec.image:
            return self
        engine, _ = await self.prepare()
        tag, plugins = await self._layer(engine, image)  # other runs need not wait while it is pulled
        return self._beginning_with(engine, tag, plugins)

    async def contents(self) -> str | None:
        engine, tag = await self.prepare()
        found = await engine.image(tag)  # by its id: what a set-up brings may differ under the same tag
        return found.id if found else None

    def visits(self, name: str) -> tuple[Visit, ...]:
        return self._ledgers[name].take() if name in self._ledgers else ()

    async def sweep(self) -> None:
        engine, _ = await self.prepare()
        await self._reaper.reap(engine)

    async def prepare(self) -> tuple[Engine, str]:
        """Reach the engine, remove what dead owners left, and make sure of the layer; once. Engine and image.

        Raises EngineUnavailable or ImageUnavailable.
        """
        async with self._getting_ready:
            if self._ready is not None and self._is_whole and not await self._ready[0].image(self._ready[1]):
                await self._forget()
            if self._ready is None:
                engine = await Engine.connect(self._engine_url)
                try:
                    await self._reaper.reap(engine)
                    async with alone(self._logs, self._wait) if self._logs else nullcontext():
                        image, self.plugins = await self._layer(engine, self._spec.image)
                    self._ready = engine, image
                except BaseException:
                    await engine.close()
                    raise
                if self._transport is None and not engine.is_here:
                    self._transport = "exec"
                self._pool.fill()
            return self._ready

    async def close(self) -> None:
        """End what was started ahead, and let go of the engine. Other containers end with their own contexts."""
        await self._pool.close()
        await self._forget()

    def _wait(self) -> None:
        if self._notice is not None:
            self._notice("Waiting for the sandbox's images: another process makes them ...")

    async def _layer(self, engine: Engine, base: str) -> tuple[str, tuple[Plugin, ...]]:
        building = iter((f"Building the sandbox's image on {base} (once) ...",))

        def progress(_: str) -> None:
            if self._notice is not None and (line := next(building, None)):
                self._notice(line)

        return await ready_layer(
            engine,
            base,
            ca_bundle=self._ca_bundle,
            package_index=self._package_index,
            plugins=self.plugins,
            progress=progress,
            notice=self._notice,
            logs=self._logs,
            proxy=self._proxy,
        )

    def _beginning_with(self, engine: Engine, tag: str, plugins: tuple[Plugin, ...]) -> "DockerSandboxes":
        """The same on another image, by the same engine."""
        made = DockerSandboxes(self._spec, egress=self._egress, whose=self._whose, plugins=plugins)
        made._transport, made._ready, made._is_whole = self._transport, (engine, tag), False
        return made

    async def _forget(self) -> None:
        """Start anew with the next sandbox: the engine is let go, or another process has superseded our image."""
        if self._ready is not None:
            engine, self._ready = self._ready[0], None
            await engine.close()

    @asynccontextmanager
    async def _using(self, name: str, opened: Machine) -> AsyncIterator[Sandbox]:
        try:
            if opened.ledger is not None:
                self._ledgers[name] = opened.ledger
            yield opened.sandbox
        finally:
            self._ledgers.pop(name, None)
            await opened.end()

    def _recipe(self, image: str) -> Recipe:
        return Recipe(self._spec, image, self._egress, self._transport or "socket", self._whose)

    async def _start(self, name: str, *, online: bool, kept: bool, root: bool = False) -> Machine:
        engine, image = await self.prepare()
        if engine.is_here:
            self._storage = self._storage or Path((await engine.info())["DockerRootDir"])
            headroom.check(self._spec.free_memory_mb, self._spec.free_disk_mb, self._storage)
        recipe = replace(self._recipe(image), root=root)
        if self._transport is not None:
            return await machine.start(engine, recipe, name, online=online, kept=kept)
        try:
            socket = replace(recipe, patience=FIRST_DIAL)
            started = await machine.start(engine, socket, name, online=online, kept=kept)
        except EngineStopped:
            raise
        except (SandboxLost, EngineUnavailable) as failed:
            # Perhaps our directories are not the engine's: it runs in a VM, or we in a container.
            try:
                started = await machine.start(
                    engine, replace(recipe, transport="exec"), name, online=online, kept=kept
                )
            except (SandboxLost, EngineUnavailable):
                raise failed from None
            log.warning(
                "no socket can be shared with the engine, so exec is used",
                extra={"error": str(failed).splitlines()[0]},  # what follows is the server's own traceback
            )
            self._transport = "exec"
        else:
            self._transport = "socket"
        return started

    async def _start_ahead(self) -> Machine:
        name = f"warm-{os.getpid()}-{secrets.token_hex(4)}"
        started = await self._start(name, online=True, kept=True)
        try:
            await started.sandbox.act(RunShell(command=":"))  # its shell runs already when somebody comes
        except BaseException:
            await started.end()
            raise
        return started
