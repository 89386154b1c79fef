"""What the page needs from outside, as values, and what every part of it knows of its visitor."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.page.gate import Gate
from bot.page.live import Live
from bot.page.people import People
from bot.redis.engines import Engines
from bot.redis.inbox import Inbox
from bot.redis.lookout import Lookout
from bot.redis.presence import Presence
from bot.redis.queue import ArqQueue
from bot.redis.runs import Runs
from bot.redis.sessions import Sessions
from runtime.frozen import Frozen


class Part(Frozen):
    """How a part of the server does."""

    name: str
    works: bool
    figures: str
    """For the operator."""


@dataclass(frozen=True)
class Kit:
    """Everything the page needs."""

    runs: Runs
    sessions: Sessions
    queue: ArqQueue
    inbox: Inbox
    presence: Presence
    engines: Engines
    lookout: Lookout
    live: Live
    gate: Gate
    people: People | None
    """None: nobody logs in by GitHub."""
    operator_token: str
    """"": nobody logs in as the operator."""
    public_url: str
    """Where people reach us, without a slash at its end; "": wherever they say that they do."""
    deliveries: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By what became of them, since this process began."""
