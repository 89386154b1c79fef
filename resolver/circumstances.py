"""Events about what a run stands on: its settings, the repository's set-up, the network. Part of `Event`."""

from decimal import Decimal
from typing import Literal

from pydantic import JsonValue

from resolver.suites.kind import Language
from runtime.egress.egress import Visit
from runtime.frozen import Frozen


class Configured(Frozen):
    """The run goes on, or begins, under these settings. None of them is secret."""

    kind: Literal["configured"] = "configured"
    version: str
    """Of Patchwright."""
    models: dict[str, str]
    """Names by what they are for."""
    steps: int
    """Replies of the model that the run may use; so many seconds and dollars."""
    seconds: float
    usd: Decimal
    settings: dict[str, JsonValue]
    """The operator's others, as they hold: also those that nobody set."""
    repository: dict[str, JsonValue]
    """The repository's own."""


class Chosen(Frozen):
    """A base image that the operator names for a language."""

    language: Language
    image: str
    problem: str | None = None
    """Why it could not be had, so that the usual one stands in."""


class Prepared(Frozen):
    """The repository's own set-up was done, found done, or failed; or another base image was chosen."""

    kind: Literal["prepared"] = "prepared"
    commands: tuple[str, ...]
    """None where it needs no set-up."""
    warm: bool
    """An earlier run had done it."""
    seconds: float
    skipped: tuple[str, ...] = ()
    """Programs that the image lacks, so that their part was left out."""
    missed: tuple[str, ...] = ()
    """Why something is not there that it can do without."""
    problem: str | None = None
    """Why the run goes on without it."""
    chosen: Chosen | None = None
    """None: it is the usual image."""


class Connected(Frozen):
    """The agent's sandbox went, or tried to go, by the network since the last entry of this kind."""

    kind: Literal["connected"] = "connected"
    visits: tuple[Visit, ...]
    by: Literal["sandbox", "host"] = "sandbox"
    """host: it called MCP servers for the agent."""
