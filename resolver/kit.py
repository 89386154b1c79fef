"""What a run needs from outside, as values: picked once, in bot/compose.py."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from resolver.domain import Job, Repo
from resolver.events import Told, Trajectory
from resolver.llm.model import Model
from resolver.llm.router import Models
from resolver.log import Listener, Log, Logs
from resolver.sandbox.lending import Source
from resolver.sandbox.senses import Hearing
from resolver.secrets import Secrets
from resolver.settings.settings import Settings
from resolver.workspace import Workspaces
from runtime.sandbox import Sandboxes

Reporting = Callable[[Job, Log], AbstractAsyncContextManager[None]]
"""Keeps people informed while a run goes on."""


def nothing_lent(repo: Repo) -> Mapping[str, Source]:
    """No repository has a secret."""
    return {}


async def no_news(job: Job, trajectory: Trajectory) -> tuple[Told, ...]:
    """Nobody says anything."""
    return ()


@dataclass(frozen=True)
class Kit:
    """Everything a run needs from outside."""

    settings: Settings
    model: Model
    sandboxes: Sandboxes
    workspaces: Workspaces
    logs: Logs
    secrets: Secrets
    listeners: tuple[Listener, ...] = ()
    """Hear every entry of the log as it is written."""
    purposes: Models | None = None
    """None: `model` does everything."""
    choose: Callable[[str], Models] | None = None
    """The models of a run whose agent is to be this one. None: nobody may choose."""
    hearing: Hearing | None = None
    """Writes recordings down. None: nobody does."""
    lent: Callable[[Repo], Mapping[str, Source]] = nothing_lent
    """A repository's own secrets, by name."""
    news: Callable[[Job, Trajectory], Awaitable[tuple[Told, ...]]] = no_news
    """What people say to a job while it is done, and is not in its log yet; hears what is in it by being asked."""

    @property
    def models(self) -> Models:
        """By what they are for."""
        return self.purposes or Models.of(self.model, {})
