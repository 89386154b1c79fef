"""What an operator says about runs: their limits, their proof, and what the agent has at hand. Part of `Settings`."""

from decimal import Decimal
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from resolver.settings.mcp_server import McpServer
from runtime.frozen import Frozen

SearchProvider = Literal["tavily", "exa", "brave"]


class RunSettings(Frozen):
    """How far one run may go, and how it is judged."""

    max_steps: int = Field(default=100, ge=1)
    """Replies of the model."""
    browse_steps: int = Field(default=30, ge=1)
    """Of them, at most for one task that is handed to the browsing agent."""
    delegate_steps: int = Field(default=20, ge=0)
    """Of them, at most for each question that is handed to an investigator; 0: none is."""
    max_usd: Decimal = Field(default=Decimal("2.00"), gt=0)
    """Dollars; where the model's price is unknown it cannot be held, and the run says so."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens of all prompts, cached ones too, and replies: a cap that holds where the price is unknown. None: as many
    as it takes."""
    timeout: int = Field(default=3600, ge=10)
    """Seconds for the agent's work; a command that runs then is stopped."""
    test_timeout: int = Field(default=900, ge=1, le=1800)
    """Seconds for one test run."""
    repairs: int = Field(default=2, ge=0, le=20)
    """Times that a patch goes back to the agent because it breaks tests, or fails those that it brings."""
    candidates: int = Field(default=1, ge=1, le=10)
    """Attempts at an issue, each from the untouched code, until one is proven; the best is delivered. All of them count
    towards the limits."""
    second_opinion: bool = False
    """Ask a second model (`model_judge`) what it thinks of issue and patch; its words never change the verdict."""
    plan_every: int = Field(default=10, ge=0)
    """Replies after which the model is asked to look back and ahead; 0: never."""
    instructions_tokens: int = Field(default=8_000, ge=0)
    """Tokens of the repository's own instructions in the first message; 0: they are only named."""
    context_tokens: int | None = Field(default=None, ge=2_000)
    """Tokens of a conversation, above which it is condensed; a model that refuses a shorter one as too long is sent
    less from then on. None: 100,000, or seven tenths of what the model takes."""

    refuse_risk: Literal["medium", "high", "never"] = "high"
    """Calls that are rated so risky, or more, are refused."""
    model_rates_risk: bool = False
    """Ask the model to rate each of its calls too; it can only raise the rating by rule."""
    risk_analyzers: tuple[str, ...] = ()
    """Analyzers of your own that rate calls beside the rules: names of entry points of `patchwright.analyzers`."""
    risk_policy: str | None = None
    """A policy of your own in place of `refuse_risk`: the name of an entry point of `patchwright.policies`."""
    mcp_servers: dict[str, McpServer] = Field(default_factory=dict)
    """MCP servers whose tools the agent gets, by name."""
    secrets_file: Path | None = None
    """A TOML file, mode 0600, of secrets that commands in a repository's sandbox may use."""
    search_api_key: SecretStr | None = None
    """The key of a search provider; without it, the agent cannot search the web."""
    search_provider: SearchProvider = "tavily"
    """Whose key it is."""
    search_base_url: str | None = None
    """Where that provider's API is, or a gateway before it. None: where it says."""
    max_searches: int = Field(default=20, ge=1)
    """Searches of the web in one run."""
    templates: Path | None = None
    """A directory of texts that take the place of ours of the same names in `templates/`, such as
    `prompts/system.md.j2` or `replies/pull_body.md.j2`."""
