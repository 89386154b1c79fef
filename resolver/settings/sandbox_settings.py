"""Settings for sandboxes: their type, limits and network access. They are part of the operator's `Settings`."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from patchwright.resolver.runner_names import Language
from patchwright.runtime.egress_policy import (
    NetworkMode,
    UpstreamProxy,
    is_host_pattern,
    parse_mirror_network,
)
from patchwright.runtime.features import ALL_FEATURES, SandboxFeature
from patchwright.runtime.frozen_model import FrozenModel


class SandboxSettings(FrozenModel):
    """The operator's settings for the sandboxes of all runs. Only the base image can depend on the
    repository's language.
    """

    sandbox: Literal["docker", "local", "auto"] = "auto"
    """Where the agent works. `local` runs commands on this machine without isolation. `docker` and `auto` use
    Docker. If no Docker engine responds, the program stops with an error. There is one exception: with `auto`,
    `patchwright resolve --repo PATH` asks you at a terminal whether to continue without isolation.
    """
    image: str = "debian:bookworm-slim"
    """Base image of the sandboxes. You can use any image that the Docker engine can run. Tests run with the
    Python and the language tools of this image, so the image must contain what your tests need.
    """
    language_images: dict[Language, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """Base images for single languages. If the repository's tests are in one of these languages, its base image
    replaces `image`.
    """
    sandbox_features: tuple[SandboxFeature, ...] = ALL_FEATURES
    """Features of a sandbox in addition to the shell and the editor. To turn all of them off, set the
    environment variable to `none`.
    """
    memory_mb: int = Field(default=4096, ge=64)
    """Maximum memory of a sandbox in MiB, including swap."""
    cpus: float = Field(default=2.0, gt=0)
    """Number of CPUs that a sandbox can use."""
    disk_mb: int = Field(default=10_240, ge=16)
    """Maximum disk space in MiB for a sandbox's files outside `/tmp`. A sandbox that exceeds this limit is
    stopped.
    """
    sandbox_transport: Literal["auto", "socket", "exec"] = "auto"
    """How the host connects to Patchwright's server in the sandbox. `socket` uses a socket in a shared
    directory. `exec` uses `docker exec`, which also works for an engine on another machine or in a VM. `auto`
    uses the socket if the directory can be shared.
    """

    network: NetworkMode = "allowlist"
    """What the agent's sandbox can reach. `none` allows no host. `allowlist` allows package indexes, language
    registries and `allowed_hosts`. `open` allows every public host. Sandboxes that verify a patch have no
    network.
    """
    allowed_hosts: tuple[str, ...] = ()
    """Hosts that the sandbox can reach in addition to the built-in allowlist. `*.example.org` allows all
    subdomains.
    """
    allowed_addresses: tuple[str, ...] = ()
    """Private networks, such as `10.1.0.0/16`, that sandboxes may reach like public ones. Set this in a
    closed network in which the names of public hosts resolve to internal mirrors.
    """
    max_upload_mb: int = Field(default=10, ge=0)
    """Maximum upload in megabytes. The limit applies to each sandbox, and to the data that the host sends to
    each MCP server during a run.
    """
    proxy: SecretStr | None = None
    """URL of your network's outbound proxy, as `http://[user:password@]host:port`. By default, Patchwright
    uses the variable `HTTPS_PROXY`.
    """
    ca_bundle: Path | None = None
    """Path of a file with CA certificates (PEM) for closed networks. They apply to Patchwright's own
    requests, image builds, and programs in the sandbox, including Chromium. By default, Patchwright uses the
    variable `SSL_CERT_FILE`.
    """
    package_index: str | None = None
    """URL of the Python package index for image builds and sandboxes. By default, Patchwright uses the
    variable `PIP_INDEX_URL`.
    """

    @field_validator("sandbox_features", mode="before")
    @classmethod
    def _parse_none(cls, features: object) -> object:
        return () if features == ("none",) else features

    @field_validator("allowed_hosts")
    @classmethod
    def _validate_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not is_host_pattern(host):
                raise ValueError(f"{host} is not a host name such as example.org or *.example.org")
        return hosts

    @field_validator("allowed_addresses")
    @classmethod
    def _parse_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(parse_mirror_network, networks))

    @field_validator("proxy")
    @classmethod
    def _validate_proxy(cls, proxy: SecretStr | None) -> SecretStr | None:
        if proxy is not None:
            UpstreamProxy.from_url(proxy.get_secret_value())
        return proxy
