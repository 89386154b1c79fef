"""The seam to the machine: `Sandbox` acts, `Sandboxes` opens one."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol

from pydantic import Field

from runtime.actions import SandboxAction
from runtime.egress.egress import Network, Visit
from runtime.frozen import Frozen
from runtime.observations import Observation
from runtime.plugins import Plugin

CA_VARIABLES = (
    "SSL_CERT_FILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
)
"""How programs are told whose TLS certificates count."""
INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX")
"""How they are told where Python packages come from."""

call: ContextVar[str] = ContextVar("call", default="")
"""For which call of an agent a sandbox is asked; empty: for none."""


class SandboxSpec(Frozen):
    """What a sandbox is made of and what it may use."""

    image: str = "debian:bookworm-slim"
    """Base image; our runtime layer is built on it. Not used by the local sandbox."""
    memory_mb: int = Field(default=4096, ge=64)
    """MiB, swap included."""
    cpus: float = Field(default=2.0, gt=0)
    pids: int = Field(default=512, ge=16)
    disk_mb: int = Field(default=10_240, ge=16)
    """MiB that files outside of the scratch directory may take; no single file may be larger either."""
    free_memory_mb: int = Field(default=0, ge=0)
    """MiB that the machine of the engine must have left, else none is started; so many of disk, too."""
    free_disk_mb: int = Field(default=0, ge=0)
    lifetime: int = Field(default=6 * 3600, ge=60)
    """Seconds after which the reaper may remove the sandbox whatever its owner does."""


class Sandbox(Protocol):
    """One machine with one work tree and one persistent shell.

    `act` never raises for what a command does: it returns an observation. It raises SandboxError when the
    machine itself fails. Actions of one sandbox run one after the other, in the order they were asked for.
    """

    @property
    def root(self) -> str:
        """Absolute path of the work tree, as the sandbox sees it."""

    @property
    def scratch(self) -> str:
        """Absolute path of a directory for temporary files, outside the work tree."""

    async def act(self, action: SandboxAction) -> Observation: ...


@contextmanager
def on_behalf_of(id: str) -> Iterator[None]:
    """What a sandbox does now is for this call of the agent: it runs once, also when the agent of a process that
    has adopted the sandbox asks for it again, and is answered with what it came to.
    """
    token = call.set(id)
    try:
        yield
    finally:
        call.reset(token)


class Around:
    """What every wrapper of a sandbox is: in the same places, with another `act`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    @property
    def root(self) -> str:
        return self._sandbox.root

    @property
    def scratch(self) -> str:
        return self._sandbox.scratch


class Sandboxes(Protocol):
    """Opens sandboxes of one kind."""

    @property
    def kind(self) -> Literal["docker", "local"]: ...

    @property
    def network(self) -> Network:
        """What network a sandbox has that is opened online."""

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """What every sandbox has beside shell and editor."""

    def open(
        self, name: str, *, online: bool = False, kept: bool = False
    ) -> AbstractAsyncContextManager[Sandbox]:
        """A new, empty sandbox; gone when the context ends, however it ends.

        `name` tells what it is for (run and role); the same name in use is replaced, not shared.
        `online`: it gets what network the operator allows; else it has none.
        `kept`: if this process is killed, the next one may adopt it for a while.
        Raises EngineUnavailable or ImageUnavailable before any work is done.
        """

    def adopt(self, name: str) -> AbstractAsyncContextManager[Sandbox | None]:
        """The sandbox of this name that a process of this machine left when it was killed, its shell alive.

        None: there is none; open a new one. Raises EngineUnavailable or ImageUnavailable.
        """

    async def derived(
        self, name: str, repository: str, key: str, fill: Callable[[Sandbox], Awaitable[None]]
    ) -> "Sandboxes":
        """Sandboxes that begin with what `fill` leaves in one of these: filled once for each key, then kept.

        `fill` works as root in a sandbox `name` that is online; `repository` tells whose layers supersede each
        other. Raises LayerRefused where nothing can be kept, SandboxError, and what `fill` raises.
        """

    async def on(self, image: str) -> "Sandboxes":
        """The same on another base image; these where a base image is nothing to them, or is that one.

        Raises EngineUnavailable or ImageUnavailable.
        """

    async def prepare(self) -> object:
        """Make sure now of what the first sandbox would wait for. Raises EngineUnavailable or ImageUnavailable."""

    async def contents(self) -> str | None:
        """Names what a new sandbox begins with: equal names are equal contents. None: nobody can tell.

        Raises EngineUnavailable or ImageUnavailable.
        """

    def visits(self, name: str) -> tuple[Visit, ...]:
        """What an open sandbox of this name did by the network since the last time this was asked."""

    async def sweep(self) -> None:
        """Remove what dead processes left, and what is past its time. Raises EngineUnavailable."""

    async def close(self) -> None:
        """Let go of what is held for sandboxes to come."""
