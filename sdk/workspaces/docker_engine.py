"""Builds the Docker sandboxes of workspaces and of `resolve_issue`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from patchwright.runtime.features import SandboxFeature
from patchwright.sdk import environment

if TYPE_CHECKING:
    from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes

Network = Literal["none", "allowlist", "open"]


def build_docker_sandboxes(
    image: str,
    network: Network,
    features: Sequence[SandboxFeature],
    on_notice: Callable[[str], object],
    *,
    memory_mb: int = 4096,
) -> "DockerSandboxes":
    """Returns Docker sandboxes that are not prepared yet."""
    from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes, EngineAddress
    from patchwright.runtime.docker.runtime_layer import BuildSettings
    from patchwright.runtime.egress.proxy import EgressConfig
    from patchwright.runtime.egress_policy import build_policy
    from patchwright.runtime.sandbox import SandboxSpec

    policy = build_policy(network, package_index=environment.package_index())
    return DockerSandboxes(
        SandboxSpec(image=image, memory_mb=memory_mb),
        BuildSettings(
            features=tuple(features),
            ca_bundle=environment.ca_bundle(),
            package_index=environment.package_index(),
            log_dir=environment.data_directory() / "builds",
            on_notice=on_notice,
        ),
        engine=EngineAddress(environment.docker_host()),
        egress=EgressConfig(policy, None) if policy else None,
        namespace=f"sdk {environment.data_directory()}",
    )
