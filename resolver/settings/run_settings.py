"""Settings for runs: limits, verification, and the agent's tools. Part of `Settings`."""

from decimal import Decimal
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from patchwright.resolver.settings.mcp_server import McpServer
from patchwright.runtime.frozen_model import FrozenModel

SearchProvider = Literal["tavily", "exa", "brave"]


class RunSettings(FrozenModel):
    """Limits of one run, and how its result is verified."""

    max_steps: int = Field(default=100, ge=1)
    """Maximum number of model replies."""
    max_browsing_steps: int = Field(default=30, ge=1)
    """Maximum number of model replies for one browsing task; they also count toward `max_steps`."""
    max_subagent_steps: int = Field(default=20, ge=0)
    """Maximum number of model replies for one question to an investigator subagent; they also count toward
    `max_steps`. 0 turns investigators off.
    """
    max_usd: Decimal = Field(default=Decimal("2.00"), gt=0)
    """Maximum cost in dollars. Without a known price, this limit cannot be enforced, and the run says so."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Maximum number of tokens in all prompts (cached ones included) and replies. It also applies without a
    known price. None: no limit.
    """
    timeout: int = Field(default=3600, ge=10)
    """Seconds for the agent's work. A command that is still running after that is stopped."""
    test_timeout: int = Field(default=900, ge=1, le=1800)
    """Seconds for one test run."""
    max_repairs: int = Field(default=2, ge=0, le=20)
    """How many times a patch goes back to the agent because it breaks tests or because its own tests fail."""
    max_attempts: int = Field(default=1, ge=1, le=10)
    """Maximum number of attempts at an issue. Each one starts from the base commit. A proven attempt is the
    last one. The best attempt is published. All attempts share the limits.
    """
    patch_review: bool = False
    """Asks a second model (`review_model`) to review the patch. Its review never changes the verdict."""
    planning_interval: int = Field(default=10, ge=0)
    """Number of replies between two requests to the model to review its plan; 0: no requests."""
    max_instruction_tokens: int = Field(default=8_000, ge=0)
    """Maximum tokens of the repository's own instructions in the first message. 0: only file names are
    listed.
    """
    max_context_tokens: int | None = Field(default=None, ge=2_000)
    """Maximum tokens of a conversation before it is condensed. If a model rejects a shorter conversation as
    too long, later requests are kept shorter. None: 100,000, but at most 70% of the model's context window.
    """

    risk_threshold: Literal["medium", "high", "never"] = "high"
    """Calls with this risk rating or a higher one are rejected."""
    model_rates_risk: bool = False
    """Also asks the model to rate each of its calls. This can only raise the rating by the rules."""
    risk_analyzers: tuple[str, ...] = ()
    """Your own risk analyzers, in addition to the rules: names of entry points in `patchwright.analyzers`."""
    risk_policy: str | None = None
    """Your own risk policy instead of `risk_threshold`: the name of an entry point in `patchwright.policies`.
    """
    mcp_servers: dict[str, McpServer] = Field(default_factory=dict)
    """MCP servers, by name. The agent gets their tools."""
    secrets_file: Path | None = None
    """A TOML file with secrets that commands in a repository's sandbox may use. Its mode must be 0600."""
    search_api_key: SecretStr | None = None
    """API key of the search provider. Without it, the agent cannot search the web."""
    search_provider: SearchProvider = "tavily"
    """The search provider that the key belongs to."""
    search_base_url: str | None = None
    """Base URL of the search provider's API, or of a gateway for it. None: the provider's own URL."""
    max_searches: int = Field(default=20, ge=1)
    """Maximum number of web searches in one run."""
    templates: Path | None = None
    """A directory of templates that replace the built-in ones with the same names in `templates/`, such as
    `prompts/system.md.j2` or `replies/pull_body.md.j2`.
    """
