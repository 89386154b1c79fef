"""Runs sandboxes in Docker containers, which have resource limits and no network interface.

Every container is removed after its use. Only the setup of a repository runs as root, with a few capabilities.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from patchwright.runtime.docker import capacity, sandbox_container
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.file_lock import file_lock
from patchwright.runtime.docker.reaper import Reaper
from patchwright.runtime.docker.repository_layer import (
    build_repository_layer,
    read_layer_note,
    repository_layer_tag,
)
from patchwright.runtime.docker.runtime_layer import BuildSettings, ensure_runtime_layer
from patchwright.runtime.docker.sandbox_container import ContainerSpec, SandboxContainer, TransportKind
from patchwright.runtime.egress.proxy import EgressConfig
from patchwright.runtime.egress_policy import ConnectionLog, ConnectionSummary, NetworkMode
from patchwright.runtime.errors import EngineStopped, EngineUnavailable, SandboxLost
from patchwright.runtime.features import SandboxFeature
from patchwright.runtime.sandbox import LayerNote, LayerSetup, Sandbox, SandboxSpec

log = logging.getLogger(__name__)

FIRST_CONNECT_TIMEOUT = 20.0  # seconds that the first server may take to connect through a shared socket


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where the Docker engine is, and how this process connects to the servers in the engine's containers."""

    url: str | None = None
    """None means the engine in DOCKER_HOST. If DOCKER_HOST is not set, the local engine is used."""
    transport: Literal["auto", "socket", "exec"] = "auto"
    """`socket` is a shared socket, and `exec` is `docker exec`. `auto` uses a socket if the engine can share one
    with this process.
    """


class DockerSandboxes:
    """Opens sandboxes as containers of one engine. All of them use one image: a base image, and on top of it the
    runtime layer with Patchwright's own programs.
    """

    kind: Literal["docker", "local"] = "docker"

    def __init__(
        self,
        spec: SandboxSpec,
        build: BuildSettings,
        *,
        engine: EngineAddress = EngineAddress(),
        egress: EgressConfig | None = None,
        namespace: str = "",
    ) -> None:
        """`egress` configures the network access of online sandboxes. If it is None, they have no network.

        `namespace` distinguishes sandboxes with the same name. A process takes over only sandboxes of its own
        namespace. Each data directory has its own namespace.
        """
        self._spec = spec
        self._build = build
        self._engine_url = engine.url
        self._transport: TransportKind | None = None if engine.transport == "auto" else engine.transport
        self._egress = egress
        self._namespace = namespace
        self._reaper = Reaper()
        self._connection_logs: dict[str, ConnectionLog] = {}
        self._ready: tuple[Engine, str] | None = None
        # If False, another object created the engine and closes it, and this object cannot build its image again.
        self._owns_engine = True
        self._prepare_lock = asyncio.Lock()
        self._docker_root: Path | None = None

    @property
    def features(self) -> tuple[SandboxFeature, ...]:
        return self._build.features

    @property
    def network(self) -> NetworkMode:
        return self._egress.policy.network if self._egress else "none"

    @asynccontextmanager
    async def open(
        self, name: str, *, online: bool = False, adoptable: bool = False
    ) -> AsyncIterator[Sandbox]:
        container = await self._start_container(name, online=online, adoptable=adoptable)
        async with self._use_container(name, container) as sandbox:
            yield sandbox

    @asynccontextmanager
    async def adopt(self, name: str) -> AsyncIterator[Sandbox | None]:
        engine, image = await self.prepare()
        container = await sandbox_container.adopt_container(engine, self._container_spec(image), name)
        if container is None:
            yield None
            return
        async with self._use_container(name, container) as sandbox:
            yield sandbox

    async def with_layer(
        self, name: str, repository: str, key: str, setup: LayerSetup
    ) -> "tuple[DockerSandboxes, LayerNote]":
        engine, image = await self.prepare()
        tag = repository_layer_tag(image, key, self._egress.policy.fingerprint() if self._egress else "")
        note = read_layer_note(await engine.find_image(tag))
        if note is None:
            container = await self._start_container(name, online=True, adoptable=False, as_root=True)
            async with self._use_container(name, container):
                note = await build_repository_layer(container, tag, repository, setup)
        return self._copy_with_image(engine, tag, self.features), note

    async def with_image(self, image: str) -> "DockerSandboxes":
        if image == self._spec.image:
            return self
        engine, _ = await self.prepare()
        # This call does not hold the lock, so that other runs need not wait for the pull.
        tag, features = await self._ensure_layer(engine, image)
        return self._copy_with_image(engine, tag, features)

    async def content_digest(self) -> str | None:
        engine, tag = await self.prepare()
        # This is the id and not the tag, because another setup may have stored different content under this tag.
        image = await engine.find_image(tag)
        return image.id if image else None

    def take_connections(self, name: str) -> tuple[ConnectionSummary, ...]:
        return self._connection_logs[name].take() if name in self._connection_logs else ()

    async def sweep(self) -> None:
        engine, _ = await self.prepare()
        await self._reaper.reap(engine)

    async def prepare(self) -> tuple[Engine, str]:
        """Connect to the engine, remove orphaned containers, and build the image if it is missing. Return the
        engine and the image.

        Later calls return the same values without doing this work again, unless the image was removed. Raises
        EngineUnavailable or ImageUnavailable.
        """
        async with self._prepare_lock:
            if (
                self._ready is not None
                and self._owns_engine
                and not await self._ready[0].find_image(self._ready[1])
            ):
                await self._disconnect()
            if self._ready is None:
                engine = await Engine.connect(self._engine_url)
                try:
                    await self._reaper.reap(engine)
                    log_dir = self._build.log_dir
                    async with file_lock(log_dir, self._notify_waiting) if log_dir else nullcontext():
                        image, features = await self._ensure_layer(engine, self._spec.image)
                    self._build = replace(self._build, features=features)
                    self._ready = engine, image
                except BaseException:
                    await engine.close()
                    raise
                if self._transport is None and not engine.is_local:
                    self._transport = "exec"
            return self._ready

    async def close(self) -> None:
        """Close the engine. Sandboxes in use are removed when their context managers exit."""
        await self._disconnect()

    def _notify_waiting(self) -> None:
        self._build.on_notice("Waiting for another process that is building the sandbox images ...")

    async def _ensure_layer(self, engine: Engine, base: str) -> tuple[str, tuple[SandboxFeature, ...]]:
        messages = iter((f"Building the sandbox image on {base} (once) ...",))

        def announce_build() -> None:
            if message := next(messages, None):
                self._build.on_notice(message)

        return await ensure_runtime_layer(engine, base, self._build, announce_build)

    def _copy_with_image(
        self, engine: Engine, tag: str, features: tuple[SandboxFeature, ...]
    ) -> "DockerSandboxes":
        """Return a copy of this object that uses the same engine, but opens sandboxes from another image."""
        build = replace(self._build, features=features)
        copy = DockerSandboxes(self._spec, build, egress=self._egress, namespace=self._namespace)
        copy._transport, copy._ready, copy._owns_engine = self._transport, (engine, tag), False
        return copy

    async def _disconnect(self) -> None:
        """Close the connection to the engine. The next sandbox then connects again, and builds the image if
        it is missing.
        """
        if self._ready is not None:
            engine, self._ready = self._ready[0], None
            await engine.close()

    @asynccontextmanager
    async def _use_container(self, name: str, container: SandboxContainer) -> AsyncIterator[Sandbox]:
        try:
            if container.connection_log is not None:
                self._connection_logs[name] = container.connection_log
            yield container.sandbox
        finally:
            self._connection_logs.pop(name, None)
            await container.close()

    def _container_spec(self, image: str) -> ContainerSpec:
        return ContainerSpec(self._spec, image, self._egress, self._transport or "socket", self._namespace)

    async def _start_container(
        self, name: str, *, online: bool, adoptable: bool, as_root: bool = False
    ) -> SandboxContainer:
        engine, image = await self.prepare()
        if engine.is_local:
            self._docker_root = self._docker_root or Path((await engine.info())["DockerRootDir"])
            capacity.check_capacity(self._docker_root)
        spec = replace(self._container_spec(image), as_root=as_root)
        if self._transport is not None:
            return await sandbox_container.start_container(
                engine, spec, name, online=online, adoptable=adoptable
            )
        try:
            socket_spec = replace(spec, startup_timeout=FIRST_CONNECT_TIMEOUT)
            container = await sandbox_container.start_container(
                engine, socket_spec, name, online=online, adoptable=adoptable
            )
        except EngineStopped:
            raise
        except (SandboxLost, EngineUnavailable) as error:
            # The engine may not see our directories if it runs in a VM, or if this process runs in a
            # container.
            try:
                container = await sandbox_container.start_container(
                    engine, replace(spec, transport="exec"), name, online=online, adoptable=adoptable
                )
            except (SandboxLost, EngineUnavailable):
                raise error from None
            log.warning(
                "socket transport unavailable, using exec",
                # only the first line, because the server's traceback follows
                extra={"error": str(error).splitlines()[0]},
            )
            self._transport = "exec"
        else:
            self._transport = "socket"
        return container
