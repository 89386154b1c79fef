"""A model and sandboxes for the publish job. Both raise an error when they are used."""

from collections.abc import Sequence
from typing import Literal, NoReturn

from patchwright.resolver.llm.model import ChatMessage, Reply, ToolSpec
from patchwright.runtime.egress_policy import ConnectionSummary, NetworkMode
from patchwright.runtime.errors import SandboxesDisabled
from patchwright.runtime.features import SandboxFeature
from patchwright.runtime.sandbox import LayerNote, LayerSetup, Sandboxes


class NullModel:
    """A model for jobs that must not call a model. Every request raises an error."""

    name = "none"
    supports_vision = False
    context_window = None

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        raise _no_sandboxes_error()


class NullSandboxes:
    """Sandboxes for jobs that must not open a sandbox. Every attempt to open one raises an error."""

    kind: Literal["docker", "local"] = "docker"
    network: NetworkMode = "none"
    features: tuple[SandboxFeature, ...] = ()

    def open(self, name: str, *, online: bool = False, adoptable: bool = False) -> NoReturn:
        raise _no_sandboxes_error()

    def adopt(self, name: str) -> NoReturn:
        raise _no_sandboxes_error()

    async def with_layer(
        self, name: str, repository: str, key: str, setup: LayerSetup
    ) -> tuple[Sandboxes, LayerNote]:
        raise _no_sandboxes_error()

    async def with_image(self, image: str) -> Sandboxes:
        raise _no_sandboxes_error()

    async def prepare(self) -> None:
        raise _no_sandboxes_error()

    async def content_digest(self) -> str | None:
        raise _no_sandboxes_error()

    def take_connections(self, name: str) -> tuple[ConnectionSummary, ...]:
        return ()

    async def sweep(self) -> None:
        """Does nothing: there are no sandboxes."""

    async def close(self) -> None:
        """Does nothing: there are no resources."""


def _no_sandboxes_error() -> SandboxesDisabled:
    return SandboxesDisabled(
        "The publish job cannot run code, and the resolve job has not finished its work."
    )
