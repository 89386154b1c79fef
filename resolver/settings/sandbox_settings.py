"""Settings for sandboxes: their type, limits and network access. Part of `Settings`."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from patchwright.resolver.suites.runner_names import Language
from patchwright.runtime.egress.policy import (
    NetworkMode,
    UpstreamProxy,
    is_host_pattern,
    parse_mirror_network,
)
from patchwright.runtime.features import ALL_FEATURES, SandboxFeature
from patchwright.runtime.frozen_model import FrozenModel


class SandboxSettings(FrozenModel):
    """Settings for the sandboxes of all runs; only the base image may differ by language."""

    sandbox: Literal["docker", "local", "auto"] = "auto"
    """Where the agent works. `auto` means Docker; if no engine responds, only `resolve --repo PATH` at a
    terminal asks whether the model may run commands on this machine. Everything else is rejected. `local`
    has no isolation.
    """
    image: str = "debian:bookworm-slim"
    """Base image; any image that the engine can run. Tests run with the Python and the language tools of this
    image, so it must contain what they need.
    """
    language_images: dict[Language, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """Base images by the language of the repository's tests, instead of `image`."""
    sandbox_features: tuple[SandboxFeature, ...] = ALL_FEATURES
    """Features of a sandbox in addition to shell and editor. The value `none` of the environment variable
    turns all of them off.
    """
    memory_mb: int = Field(default=4096, ge=64)
    """Memory of a sandbox in MiB, including swap."""
    cpus: float = Field(default=2.0, gt=0)
    """CPUs of a sandbox."""
    pids: int = Field(default=512, ge=16)
    """Maximum number of processes in a sandbox."""
    disk_mb: int = Field(default=10_240, ge=16)
    """Disk space in MiB for files outside `/tmp`. A sandbox that exceeds it is stopped."""
    warm_pool: int = Field(default=0, ge=0, le=16)
    """Number of sandboxes that are started in advance, so that runs start faster; each one reserves its
    memory.
    """
    sandbox_transport: Literal["auto", "socket", "exec"] = "auto"
    """How the host reaches the server in the sandbox: through a `socket` in a shared directory, or through
    `docker exec` for an engine on another machine or in a VM. `auto` uses the socket if it can be shared.
    """
    setup_timeout: int = Field(default=1200, ge=1, le=1800)
    """Seconds for the setup of a repository."""

    network: NetworkMode = "allowlist"
    """What the agent's sandbox can reach. `none`: nothing; `allowlist`: package indexes, language registries
    and `allowed_hosts`; `open`: every public host. Sandboxes that verify a patch have no network.
    """
    allowed_hosts: tuple[str, ...] = ()
    """Additional hosts for the allowlist; `*.example.org` allows all subdomains."""
    allowed_addresses: tuple[str, ...] = ()
    """Private networks such as `10.1.0.0/16` that sandboxes may reach like public ones. Set this in a closed
    network where host names resolve to mirrors.
    """
    max_upload_mb: int = Field(default=10, ge=0)
    """Upload limit in megabytes, for one sandbox in total and for the host to one MCP server per run."""
    proxy: SecretStr | None = None
    """Outbound proxy of your network, `http://[user:password@]host:port`. None: `HTTPS_PROXY`."""
    ca_bundle: Path | None = None
    """CA certificates (PEM) for closed networks. They apply to Patchwright's own requests, image builds, and
    programs in the sandbox, including Chromium. None: `SSL_CERT_FILE`.
    """
    package_index: str | None = None
    """Python package index for image builds and sandboxes. None: `PIP_INDEX_URL`."""

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
