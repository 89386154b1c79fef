"""Settings for runs: limits, verification, and the agent's tools. They are part of the operator's `Settings`."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from patchwright.runtime.browser.call_signature import CallSet
from patchwright.runtime.egress_policy import Origin
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import SnapshotPart

SEARCH_PROVIDERS = ("tavily", "exa", "brave")
ReadyVerdicts = Literal["none", "fixed", "conditional"]
CODEACT = "codeact"
"""Name of Patchwright's own agent."""


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


class RunSettings(FrozenModel):
    """The operator's settings for each run: its limits, the verification of its patch, and the agent's tools."""

    agent: str = CODEACT
    """Name of the agent that does the work: `codeact`, which is Patchwright's own, a micro agent, or an agent of an
    installed package (entry point group `patchwright.agents`). A repository and the requester can choose another one.
    """
    max_steps: int = Field(default=100, ge=1)
    """Maximum number of steps in one run. A step is a reply of the model with its tool calls."""
    browser_calls: tuple[CallSet, ...] = ("web",)
    """Sets of calls that an agent can make in the browser. `web` has the 16 calls that most tasks need. `elements`,
    `files`, `navigation`, `tabs`, `keyboard` and `coordinates` have all calls of one kind. Calls at a point of the
    screenshot are left out if the model gets no screenshot.
    """
    browser_observation: tuple[SnapshotPart, ...] = (
        "axtree",
        "screenshot",
        "marks",
        "flag_clickable",
        "flag_focused",
    )
    """What an agent sees of a web page. `axtree` is the accessibility tree, `html` the rendered elements as pruned
    HTML, and `dom` all elements; at least one of them is required. `screenshot` is a picture, for models that support
    images, and `marks` draws the elements' numbers on it. `viewport_only` leaves out what is not in view. The other
    values flag elements in the tree.
    """
    browse_links: bool = True
    """Whether the browsing agent may read the hosts that people with write access linked in the thread, in addition to
    the allowlist. Only this agent can read these hosts, and it can only read them (GET and HEAD).
    """
    agent_uses_browser: bool = False
    """Whether the main agent can also use the browser itself, with the tool `use_browser`, if its model supports
    images. The pages are then part of its conversation.
    """
    max_subagent_steps: int = Field(default=0, ge=0)
    """Maximum number of steps for one question to an investigator or a micro agent, which are subagents. These
    steps also count toward `max_steps`. By default, the agent starts no subagent except the browsing agent.
    """
    max_usd: Decimal = Field(default=Decimal("2.00"), gt=0)
    """Maximum cost of one run in dollars. If the model's price is unknown, this limit cannot be enforced, and
    the cost is shown as unknown.
    """
    max_tokens: int | None = Field(default=None, ge=1)
    """Maximum number of tokens in all prompts and replies of one run. Cached prompt tokens count, too. The
    limit also applies if the model's price is unknown. By default, there is no limit.
    """
    timeout: int = Field(default=3600, ge=10)
    """Maximum number of seconds for the agent's work. When this time is over, a running command is stopped."""
    test_timeout: int = Field(default=900, ge=1, le=1800)
    """Maximum number of seconds for one test run."""
    max_repairs: int = Field(default=2, ge=0, le=20)
    """Maximum number of times that the agent is asked to repair its patch. A repair is needed if the patch breaks
    tests, or if the tests in the patch fail. With 0, the agent is also not told that its fix is unproven or
    conditional.
    """
    max_attempts: int = Field(default=1, ge=1, le=10)
    """Maximum number of attempts at an issue. Each attempt starts from the base commit. When the tests of an
    attempt prove the fix, the agent starts no further attempt. The best attempt is published. All attempts
    share the limits of one run.
    """
    ready_for_review: ReadyVerdicts = "fixed"
    """Which new pull requests are ready for review, and not drafts: those whose verdict is `fixed`, also those whose
    verdict is `conditional`, or `none`. A repository can override this setting.
    """
    commit_writer: bool = False
    """Whether the micro agent `commit-writer` reads the diff and writes the message of the commit (`condenser_model`).
    Otherwise, the message contains the issue's title and the agent's own description.
    """
    max_context_tokens: int | None = Field(default=None, ge=2_000)
    """Maximum number of tokens in a conversation. A longer conversation is shortened to a summary and its
    latest messages. If a model says that a conversation is too long although it is below this limit, later
    requests are kept shorter. By default, this is 100,000, but at most 70% of the model's context window.
    """

    risk_threshold: Literal["low", "medium", "high", "never"] = "high"
    """Tool calls with this risk rating or a higher one are refused, or need approval (`risk_response`). `low`
    includes every call. `never` turns this check off.
    """
    risk_response: Literal["refuse", "ask"] = "refuse"
    """What happens to calls from `risk_threshold` on: they are refused, or a person with write access has to approve
    each of them. In a workflow, they are refused.
    """
    risk_analyzers: tuple[str, ...] = ()
    """Names of risk analyzers, which are used in addition to Patchwright's rules: `model`, with which the model rates
    each of its tool calls, and entry points in the group `patchwright.analyzers`. An analyzer can raise the rating that
    the rules give, but cannot lower it.
    """
    risk_policy: str | None = None
    """Name of your own risk policy, which replaces `risk_threshold` and `risk_response`. The name is an entry
    point in the group `patchwright.policies`.
    """
    tools: tuple[str, ...] = ()
    """Names of installed tools that agents get, in addition to the built-in ones. Each name is an entry point in the
    group `patchwright.tools`. A repository can choose among them.
    """
    mcp_servers: dict[str, McpServer] = Field(default_factory=dict)
    """MCP servers whose tools the agent can use. The keys of the table are the servers' names."""
    secrets_file: Path | None = None
    """Path of a TOML file with secrets that commands in a repository's sandbox may use. The file's mode must
    be 0600.
    """
    search_api_key: SecretStr | None = None
    """API key of the web search provider. Without a key, the agent cannot search the web."""
    search_provider: str = "tavily"
    """The web search provider that issued `search_api_key`: `tavily`, `exa` or `brave`. If you use a gateway for the
    provider's API, add its URL: `exa=https://gateway.example.com`.
    """
    skills: Path | None = None
    """Path of a directory with your own skills and micro agents, which all repositories get. Those in its subdirectory
    `owners/OWNER` are only for the repositories of this owner.
    """
    demonstration: bool = False
    """Whether the first message begins with an example of a whole run. Weak models may work better with it."""
    templates: Path | None = None
    """Path of a directory with your own templates. They replace the built-in templates of the same names in
    `templates/`, such as `prompts/system.md.j2` or `replies/pull_body.md.j2`.
    """

    @field_validator("search_provider")
    @classmethod
    def _validate_provider(cls, provider: str) -> str:
        if not re.fullmatch(rf"({'|'.join(SEARCH_PROVIDERS)})(=https?://[^\s/]\S*)?", provider):
            # The message does not repeat the value, because a URL may contain a password.
            raise ValueError(
                "it must be tavily, exa or brave, such as exa or exa=https://gateway.example.com"
            )
        return provider

    @field_validator("browser_observation")
    @classmethod
    def _validate_observation(cls, parts: tuple[str, ...]) -> tuple[str, ...]:
        if not {"axtree", "html", "dom"}.intersection(parts):
            raise ValueError("it must contain axtree, html or dom")
        return parts
