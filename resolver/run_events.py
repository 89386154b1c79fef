"""Defines the events about a run's settings, environment, network access, subagents and condensations.

They are part of `Event` in `resolver/events.py`.
"""

from decimal import Decimal
from typing import Literal

from pydantic import Field, JsonValue

from patchwright.resolver.domain import JobId, RunId
from patchwright.resolver.runner_names import Language
from patchwright.resolver.tool_actions.subagent_actions import OutputField
from patchwright.runtime.egress_policy import ConnectionSummary
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import SnapshotOptions


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
    """The operator's other settings with their effective values, including default values."""
    repository: dict[str, JsonValue]
    """The repository's own settings."""


class BaseImageChoice(FrozenModel):
    """A base image that the operator configured for a language."""

    language: Language
    image: str
    problem: str | None = None
    """Why this image could not be pulled; None if it was pulled. After a failure, the default image is used."""


class EnvironmentPrepared(FrozenModel):
    """The preparation of a repository's environment ended. The fields describe the setup commands, the base
    image, and what failed.
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
    """One sentence for each optional step of the setup that failed, with the reason."""
    problem: str | None = None
    """Why the setup failed. In that case, the run continues without the setup. None if the setup succeeded.
    """
    base_image: BaseImageChoice | None = None
    """The operator's choice of another base image; None if no image is configured for the language."""


class NetworkAccess(FrozenModel):
    """Connections that the agent's sandbox made or tried to make since the previous NetworkAccess event."""

    kind: Literal["network_access"] = "network_access"
    visits: tuple[ConnectionSummary, ...]
    origin: Literal["sandbox", "host"] = "sandbox"
    """Which side made the connections: the "sandbox", or the "host", which connects to MCP servers for the
    agent.
    """


class BaselinePending(FrozenModel):
    """The initial prompt was sent while the tests on the untouched code were still running.

    When the tests have ended, a `Message` with the source `baseline` follows. If the patch is verified before
    the tests have ended, this message is not sent.
    """

    kind: Literal["baseline_pending"] = "baseline_pending"


SubagentRole = Literal["browse", "investigate", "edit"]
"""The kind of task that an agent delegates to a subagent."""


class BrowserOptions(FrozenModel):
    """What an agent can do in the browser, and what it sees of a page."""

    calls: tuple[str, ...] = ()
    """Names of the calls that the prompt describes."""
    snapshot: SnapshotOptions = SnapshotOptions()
    pages: int = 1
    """Number of recent pages in the prompt. Source: arXiv:2506.03011, appendix B. All experiments there use 1."""
    reads_links: bool = False
    """True if the agent can read the hosts that people with write access linked."""


class SubagentStarted(FrozenModel):
    """A subagent's run started. The event contains the task, and the share of the parent's remaining budget
    that the subagent may use.
    """

    kind: Literal["subagent_started"] = "subagent_started"
    parent: RunId
    call_id: str
    """Id of the parent run's tool call. The subagent's result is the result of this call."""
    depth: int = Field(ge=2)
    """Nesting depth. The run of a job has depth 1, and its subagents have depth 2."""
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
    """URLs that the parent run has seen. If the subagent opens them, they do not count as guessed."""
    can_search: bool = False
    """True if the parent run can search the web."""
    browser: BrowserOptions = BrowserOptions()
    """The options of a browsing agent."""


class SubagentSpawned(FrozenModel):
    """A tool call was delegated to a subagent. The subagent has its own log."""

    kind: Literal["subagent_spawned"] = "subagent_spawned"
    call_id: str
    """Id of the tool call. The result of this call is a SubagentResult, which may combine the results of
    several subagents.
    """
    run: RunId
    """Id of the subagent's run."""
    role: SubagentRole = "browse"
    task: str


class Paused(FrozenModel):
    """A program paused the conversation between two steps. The next event continues it."""

    kind: Literal["paused"] = "paused"


class Condensation(FrozenModel):
    """From this event on, the model gets a shorter conversation. The log still contains the whole conversation.

    Condensations accumulate: a message that an earlier condensation left out is never sent again.
    """

    kind: Literal["condensation"] = "condensation"
    cause: Literal["length", "overflow"] = "length"
    """Why the conversation was shortened. "overflow" means that the provider rejected the prompt as too long."""
    masked_calls: tuple[str, ...] = ()
    """Ids of calls. From this event on, the model gets one line for each of these calls instead of its result."""
    forgotten_replies: int = 0
    """Number of replies at the start of the run that are left out with their results. `summary` replaces them."""
    summary: str = ""
    """The text that replaces the dropped replies; empty if `forgotten_replies` is 0."""
    tokens_before: int = 0
    """Estimated tokens of the conversation before the condensation."""
    tokens_after: int = 0
    """Estimated tokens of the conversation after the condensation."""


class RunResumed(FrozenModel):
    """This job continues an earlier run. The earlier run's log contains the work. This log contains only the
    outcome of the job.
    """

    kind: Literal["run_resumed"] = "run_resumed"
    run: JobId
