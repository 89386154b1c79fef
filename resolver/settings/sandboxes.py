"""What an operator says about sandboxes: their kind, their limits, and what they reach. Part of `Settings`."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from resolver.suites.kind import Language
from runtime.egress.egress import Network, Upstream, is_host_pattern, network_of_mirrors
from runtime.frozen import Frozen
from runtime.plugins import PLUGINS, Plugin


class SandboxSettings(Frozen):
    """One kind of sandbox for all runs; its base image may differ by language."""

    sandbox: Literal["docker", "local", "auto"] = "auto"
    """Where the agent works. `auto`: in Docker when an engine answers; else local for `resolve --repo PATH`, and
    refused for text from a forge."""
    image: str = "debian:bookworm-slim"
    """Base image, any that the engine can run. Tests run on its own Python; without one, or without the tools of your
    language, those tests cannot be run."""
    images: dict[Language, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """Base images by what a repository's tests are written in, in place of `image`."""
    plugins: tuple[Plugin, ...] = PLUGINS
    """What a sandbox has beside shell and editor; in the environment also `none`."""
    memory_mb: int = Field(default=4096, ge=64)
    """Memory of a sandbox, MiB, swap included."""
    cpus: float = Field(default=2.0, gt=0)
    """Processors of a sandbox."""
    pids: int = Field(default=512, ge=16)
    """Processes in a sandbox."""
    disk_mb: int = Field(default=10_240, ge=16)
    """What files in a sandbox may take outside of `/tmp`, MiB; one that grows larger is ended."""
    warm_pool: int = Field(default=0, ge=0, le=16)
    """Sandboxes that are started ahead, so that a run begins at once; each holds its memory meanwhile."""
    transport: Literal["auto", "socket", "exec"] = "auto"
    """How the sandbox's server is reached: by a `socket` in a shared directory, or through `docker exec`, for an engine
    far away or in a VM. `auto`: by the socket where it can be shared."""
    setup_timeout: int = Field(default=1200, ge=1, le=1800)
    """Seconds of a repository's set-up."""

    network: Network = "allow-list"
    """What the agent's sandbox reaches: nothing, package indexes and language registries with `allow_hosts`, or every
    public host. The tests that judge a patch have no network."""
    allow_hosts: tuple[str, ...] = ()
    """More hosts for the list; `*.example.org` for all below it."""
    allow_addresses: tuple[str, ...] = ()
    """Networks such as `10.1.0.0/16` that count as public: for a closed network whose names lead to mirrors."""
    upload_mb: int = Field(default=10, ge=0)
    """What one sandbox may send in all, and the host to one MCP server in a run, MB."""
    proxy: SecretStr | None = None
    """The proxy by which your own network is left, `http://[user:password@]host:port`. None: `HTTPS_PROXY`."""
    ca_bundle: Path | None = None
    """CA certificates (PEM) for closed networks: our own requests, image builds, and programs in the sandbox, Chromium
    too. None: `SSL_CERT_FILE`."""
    package_index: str | None = None
    """Python package index for image builds and sandboxes. None: `PIP_INDEX_URL`."""

    @field_validator("plugins", mode="before")
    @classmethod
    def _named(cls, plugins: object) -> object:
        return () if plugins == ("none",) else plugins

    @field_validator("allow_hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not is_host_pattern(host):
                raise ValueError(f"{host} is not a host name such as example.org or *.example.org")
        return hosts

    @field_validator("allow_addresses")
    @classmethod
    def _networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(network_of_mirrors, networks))

    @field_validator("proxy")
    @classmethod
    def _usable(cls, proxy: SecretStr | None) -> SecretStr | None:
        if proxy is not None:
            Upstream.of(proxy.get_secret_value())
        return proxy
