"""How an MCP server is reached, as the operator says it."""

from pydantic import Field, SecretStr, model_validator

from runtime.egress.egress import Origin
from runtime.frozen import Frozen


class McpServer(Frozen):
    """One server: a command, run in the sandbox, or a URL, which the host calls through the sandbox's policy."""

    command: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    """For a command. The sandbox can read it: nothing in it is a secret from the agent."""
    url: str | None = None
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """For a URL."""
    tools: tuple[str, ...] | None = None
    """Names of its tools that are offered to the model. None: all."""

    @model_validator(mode="after")
    def _one_way(self) -> "McpServer":
        if bool(self.command) == bool(self.url):
            raise ValueError("a server has either a command or a url")
        if self.url:
            Origin.of(self.url)
        return self
