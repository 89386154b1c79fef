"""Events about the conditions of a run: its settings, environment, network access and subagents.

They are part of `Event` in `resolver/events.py`.
"""

from decimal import Decimal
from typing import Literal

from pydantic import Field, JsonValue

from patchwright.resolver.actions import OutputField
from patchwright.resolver.domain import RunId
from patchwright.resolver.suites.runner_names import Language
from patchwright.runtime.egress.policy import ConnectionSummary
from patchwright.runtime.frozen_model import FrozenModel


class RunConfigured(FrozenModel):
    """The settings under which a run started or was resumed. They contain no secret."""

    kind: Literal["run_configured"] = "run_configured"
    version: str
    """Version of Patchwright."""
    models: dict[str, str]
    """Model names by purpose."""
    steps: int
    """Maximum number of model replies. `seconds` limits the time, and `usd` limits the cost."""
    seconds: float
    usd: Decimal
    settings: dict[str, JsonValue]
    """The operator's other settings with the values in effect, defaults included."""
    repository: dict[str, JsonValue]
    """The repository's own settings."""


class BaseImageChoice(FrozenModel):
    """A base image that the operator configured for a language."""

    language: Language
    image: str
    problem: str | None = None
    """Why the image could not be pulled, so that the default image is used instead; None if the image is in
    use.
    """


class EnvironmentPrepared(FrozenModel):
    """The preparation of a repository's environment ended: it was set up, restored from the cache, or given
    another base image, or its setup failed.
    """

    kind: Literal["environment_prepared"] = "environment_prepared"
    commands: tuple[str, ...]
    """Setup commands; empty if the repository needs no setup."""
    was_cached: bool
    """True if the setup was restored from an earlier run."""
    seconds: float
    missing_programs: tuple[str, ...] = ()
    """Programs that the image lacks. The setup steps that need them were skipped."""
    warnings: tuple[str, ...] = ()
    """Reasons why optional parts of the setup are missing, one sentence each."""
    problem: str | None = None
    """Why the setup failed, so that the run continues without it; None if it succeeded."""
    base_image: BaseImageChoice | None = None
    """The base image that replaces the default one; None if the default is in use."""


class NetworkAccess(FrozenModel):
    """Connections that the agent's sandbox made or tried to make since the previous NetworkAccess event."""

    kind: Literal["network_access"] = "network_access"
    visits: tuple[ConnectionSummary, ...]
    origin: Literal["sandbox", "host"] = "sandbox"
    """"sandbox": the sandbox made the connections. "host": the host connected to MCP servers for the agent.
    """


class BaselinePending(FrozenModel):
    """The initial prompt was sent while the tests on the untouched code were still running.

    A `Message` with the source `baseline` follows when the tests have ended, unless the patch is verified
    first.
    """

    kind: Literal["baseline_pending"] = "baseline_pending"


SubagentRole = Literal["browse", "investigate"]
"""The kind of task that an agent delegates to a subagent."""


class SubagentStarted(FrozenModel):
    """A subagent's run started, with its task and its share of the parent's remaining budget."""

    kind: Literal["subagent_started"] = "subagent_started"
    parent: RunId
    call_id: str
    """Id of the parent's tool call. The subagent's result answers this call."""
    depth: int = Field(ge=2)
    """Nesting depth; a job's own run has depth 1."""
    role: SubagentRole = "browse"
    task: str
    model: str
    steps: int
    seconds: float
    usd: Decimal
    tokens: int | None = None
    concise: bool = False
    """True if the prompt shows how to answer with a single value."""
    fields: tuple[OutputField, ...] = ()
    """Fields that the answer must contain; empty for a free-form answer."""
    known_urls: tuple[str, ...] = ()
    """URLs that the parent run has read. Opening one of them does not count as guessing."""
    can_search: bool = False
    """True if the parent run can search the web."""


class SubagentSpawned(FrozenModel):
    """A tool call was delegated to a subagent. The subagent has its own log."""

    kind: Literal["subagent_spawned"] = "subagent_spawned"
    call_id: str
    """Id of the tool call. The call's observation is a SubagentResult, which may combine the results of
    several subagents.
    """
    run: RunId
    """Id of the subagent's run."""
    role: SubagentRole = "browse"
    task: str
