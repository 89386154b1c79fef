"""The interfaces of sandboxes: `Sandbox` runs actions, and `Sandboxes` opens a sandbox."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol

from pydantic import Field

from patchwright.runtime.actions import SandboxAction
from patchwright.runtime.egress_policy import ConnectionSummary, NetworkMode
from patchwright.runtime.features import SandboxFeature
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import Observation
from patchwright.runtime.tool_action import ToolAction

CA_VARIABLES = tuple(
    "SSL_CERT_FILE PIP_CERT REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO "
    "CARGO_HTTP_CAINFO".split()
)
"""Environment variables that tell programs where the trusted TLS certificates are."""
INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX")
"""Environment variables that name the Python package index."""

current_call_id: ContextVar[str] = ContextVar("call", default="")
"""Id of the agent's tool call to which the current action belongs; empty if it belongs to no tool call."""


class SandboxSpec(FrozenModel):
    """Image and resource limits for a sandbox."""

    image: str = "debian:bookworm-slim"
    """Name of the base image, to which Patchwright adds a layer with its own programs. The local sandbox uses no
    image.
    """
    memory_mb: int = Field(default=4096, ge=64)
    """MiB of memory, including swap."""
    cpus: float = Field(default=2.0, gt=0)
    pids: int = Field(default=512, ge=16)
    disk_mb: int = Field(default=10_240, ge=16)
    """Maximum MiB of all files outside the scratch directory. Also the maximum size of a single file."""
    lifetime: int = Field(default=6 * 3600, ge=60)
    """Seconds after which the sandbox may be removed, even if its owner is alive."""


class Sandbox(Protocol):
    """One machine with one work tree and one persistent shell.

    `act` returns an observation even if a command fails. It raises SandboxError only if the machine itself
    fails. The actions of one sandbox run one after the other, in the order of the calls.
    """

    @property
    def root(self) -> str:
        """Absolute path of the work tree, as the sandbox sees it."""

    @property
    def scratch(self) -> str:
        """Absolute path of a directory for temporary files, outside the work tree."""

    async def act(self, action: SandboxAction) -> Observation: ...


@contextmanager
def call_context(call_id: str) -> Iterator[None]:
    """Assign the sandbox actions in this context to one tool call of the agent.

    Each of these actions runs only once. If another process adopts the sandbox and repeats the call, that
    process gets the first result.
    """
    token = current_call_id.set(call_id)
    try:
        yield
    finally:
        current_call_id.reset(token)


class SandboxTool(ToolAction):
    """Base class of the tools that need only the sandbox, but that the sandbox cannot execute as one action."""

    @abstractmethod
    async def run(self, sandbox: Sandbox) -> Observation:
        """Executes the call with actions of the sandbox."""


class LayerNote(FrozenModel):
    """What a setup remarks about the layer that it creates. The note is stored with the layer."""

    text: str = ""
    """Any text that the setup understands."""
    is_incomplete: bool = False
    """True if a part of the setup failed that may succeed later."""


LayerSetup = Callable[[Sandbox], Awaitable[LayerNote]]


class WrapperSandbox:
    """Base class for wrappers of a sandbox. A wrapper has the same paths as the sandbox that it wraps, but
    its own `act`.
    """

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
    def network(self) -> NetworkMode:
        """The network access of sandboxes that are opened with `online=True`."""

    @property
    def features(self) -> tuple[SandboxFeature, ...]:
        """The features that every sandbox has in addition to shell and editor."""

    def open(
        self, name: str, *, online: bool = False, adoptable: bool = False
    ) -> AbstractAsyncContextManager[Sandbox]:
        """Open a new, empty sandbox. It is removed when the context ends for any reason.

        `name` consists of the run and the role of the sandbox. If a sandbox with this name already exists, the
        new one replaces it. With `online`, the sandbox gets the network that the operator allows; otherwise it
        gets none. With `adoptable`, the sandbox stays for a while if this process is killed, so that another
        process can adopt it. Raises EngineUnavailable or ImageUnavailable before any work is done.
        """

    def adopt(self, name: str) -> AbstractAsyncContextManager[Sandbox | None]:
        """Take over the sandbox of this name from a killed process of this machine. Its shell is still running.

        Yields None if there is no such sandbox; the caller then opens a new one. Raises EngineUnavailable or
        ImageUnavailable.
        """

    async def with_layer(
        self, name: str, repository: str, key: str, setup: LayerSetup
    ) -> "tuple[Sandboxes, LayerNote]":
        """Return sandboxes that start with the files that `setup` has created, and what `setup` returned.

        For each key and network policy, `setup` runs once, as root, in an online sandbox with the name `name`. It
        runs again if its note says so and an hour has passed. The files that it creates are stored as an image
        layer. Only the newest layers of a `repository` are kept. Raises LayerRejected if nothing can be stored.
        Also raises SandboxError, and any error that `setup` raises.
        """

    async def with_image(self, image: str) -> "Sandboxes":
        """Return a factory for the same kind of sandboxes with another base image. Return `self` if this factory
        uses no image, or already uses this image.

        Raises EngineUnavailable or ImageUnavailable.
        """

    async def prepare(self) -> object:
        """Build or pull everything that the first sandbox needs. Raises EngineUnavailable or ImageUnavailable."""

    async def content_digest(self) -> str | None:
        """Return a digest of the contents of a new sandbox, or None if the contents are unknown. Equal
        digests mean equal contents.

        Raises EngineUnavailable or ImageUnavailable.
        """

    def take_connections(self, name: str) -> tuple[ConnectionSummary, ...]:
        """Return the connections that an open sandbox of this name made since the last call."""

    async def sweep(self) -> None:
        """Remove sandboxes whose processes are dead or whose lifetimes are over. Raises EngineUnavailable."""

    async def close(self) -> None:
        """Release the resources that are reserved for future sandboxes."""
