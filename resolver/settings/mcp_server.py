"""The operator's configuration of an MCP server."""

from pydantic import Field, SecretStr, model_validator

from patchwright.runtime.egress_policy import Origin
from patchwright.runtime.frozen_model import FrozenModel


class McpServer(FrozenModel):
    """An MCP server. It is a command that runs in the sandbox, or a URL to which the host connects. The
    sandbox's network policy also applies to the URL.
    """

    command: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the command. The agent can read them, because the command runs in its sandbox.
    """
    url: str | None = None
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """HTTP headers of requests to the URL."""
    tools: tuple[str, ...] | None = None
    """Names of the tools that the model gets. If it is None, the model gets all tools of the server."""

    @model_validator(mode="after")
    def _validate_transport(self) -> "McpServer":
        if bool(self.command) == bool(self.url):
            raise ValueError("set either `command` or `url`, and not both")
        if self.url:
            Origin.from_url(self.url)
        return self
