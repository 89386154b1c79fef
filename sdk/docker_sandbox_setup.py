"""Builds the Docker sandboxes of workspaces and of `resolve_issue`."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from patchwright.runtime.features import ALL_FEATURES, SandboxFeature
from patchwright.sdk import environment

if TYPE_CHECKING:
    from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes

logger = logging.getLogger(__name__)

DEFAULT_IMAGE = "python:3.12-slim"
Network = Literal["none", "allowlist", "open"]


class DockerOptions(TypedDict, total=False):
    """Options of Docker sandboxes."""

    image: str
    """The base image, to which a layer with Patchwright's own programs is added. The first use of an image builds this
    layer, which takes up to some minutes. By default, `python:3.12-slim`.
    """
    network: Network
    """`none`, `allowlist` (the usual package indexes; the default) or `open`."""
    features: Sequence[SandboxFeature]
    """Parts of the sandbox in addition to shell and editor, such as `kernel` and `browser`. By default, all of them."""
    memory_mb: int
    """MiB of memory, including swap. By default, 4096."""
    on_notice: Callable[[str], object]
    """Called with a sentence when an image is built."""


def build_docker_sandboxes(options: DockerOptions) -> "DockerSandboxes":
    """Returns Docker sandboxes that are not prepared yet."""
    from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes, EngineAddress
    from patchwright.runtime.docker.runtime_layer import BuildSettings
    from patchwright.runtime.egress.proxy import EgressConfig
    from patchwright.runtime.egress_policy import build_policy
    from patchwright.runtime.sandbox import SandboxSpec

    policy = build_policy(options.get("network", "allowlist"), package_index=environment.package_index())
    return DockerSandboxes(
        SandboxSpec(image=options.get("image", DEFAULT_IMAGE), memory_mb=options.get("memory_mb", 4096)),
        BuildSettings(
            features=tuple(options.get("features", ALL_FEATURES)),
            ca_bundle=environment.ca_bundle(),
            package_index=environment.package_index(),
            log_dir=environment.data_directory() / "builds",
            on_notice=options.get("on_notice", logger.info),
        ),
        engine=EngineAddress(environment.docker_host()),
        egress=EgressConfig(policy, None) if policy else None,
        namespace=f"sdk {environment.data_directory()}",
    )
