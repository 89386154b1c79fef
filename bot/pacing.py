"""Whose turn it is to write to GitHub: writes keep their distance, and what somebody waits for goes first.

GitHub counts what an installation or a token does, whatever process does it: `bot/redis/pacing.py` is one line for
all of them. What is here is the line of one process.
"""

import asyncio
import contextlib
import itertools
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

from bot.errors import Crowded
from resolver.domain import Repo, User
from resolver.errors import RateLimited
from resolver.forge import Permission

if TYPE_CHECKING:  # it is made with what needs this module
    from bot.desk import Speaker

SOON = 0.05  # seconds in which the first in the line takes its turn
ALONE_SECONDS = 30.0  # no longer than a dead worker's jobs wait for another
LOOK_AGAIN = 1.0  # seconds, at most: whoever waits shows that it lives


class Urgency(IntEnum):
    """Why something is written; the least goes first."""

    ACKNOWLEDGEMENT = 0
    """Somebody looks whether they were heard."""
    WORK = 1
    PROGRESS = 2
    """Worth something now or never: it goes when nobody else has anything to write, and never lines up."""


_urgency: ContextVar[Urgency] = ContextVar("urgency", default=Urgency.WORK)


@contextlib.contextmanager
def writing(urgency: Urgency) -> Iterator[None]:
    """What is written in the block is so urgent."""
    before = _urgency.set(urgency)
    try:
        yield
    finally:
        _urgency.reset(before)


def urgency_now() -> Urgency:
    """How urgent what is written here is."""
    return _urgency.get()


class Line(Protocol):
    """Where writes wait for their turn, one line for each installation or token (`whose`). No method raises."""

    async def claim(self, whose: str, ticket: str, urgency: Urgency, gap: float) -> float:
        """Seconds after which to ask again; 0: it is this ticket's turn, and nobody else's for `gap` seconds.

        A ticket has its place in the line from its first claim on, unless it is for progress.
        """

    async def leave(self, whose: str, ticket: str) -> None:
        """It does not wait any more."""

    async def hold(self, whose: str, seconds: float) -> None:
        """GitHub wants to be left alone for so long."""

    async def held(self, whose: str) -> float:
        """Seconds for which GitHub wants to be left alone; 0: it does not."""

    def alone(self, what: str) -> AbstractAsyncContextManager[None]:
        """A block of which, by this name, no other process that shares the line is inside: for what looks, then makes.

        A process that dies in it is in nobody's way for longer than ALONE_SECONDS.
        """


async def check(line: Line, whose: str) -> None:
    """Raises RateLimited while GitHub wants to be left alone."""
    if (held := await line.held(whose)) > 0:
        raise RateLimited("GitHub has asked us to wait", datetime.now(UTC) + timedelta(seconds=held))


async def turn(line: Line, whose: str, gap: float) -> None:
    """Wait until something may be written. Raises RateLimited, and Crowded for progress that has to stand back."""
    urgency, ticket = urgency_now(), token_hex(8)
    try:
        while (wait := await line.claim(whose, ticket, urgency, gap)) > 0:
            if urgency is Urgency.PROGRESS:
                raise Crowded(wait)
            await check(line, whose)
            await asyncio.sleep(min(wait, LOOK_AGAIN))
    finally:
        await line.leave(whose, ticket)


class OwnLine:
    """The line of this process."""

    def __init__(self) -> None:
        self._free: dict[str, float] = {}
        self._held: dict[str, float] = {}
        self._waiting: defaultdict[str, dict[str, tuple[Urgency, int]]] = defaultdict(dict)
        self._places = itertools.count()

    async def claim(self, whose: str, ticket: str, urgency: Urgency, gap: float) -> float:
        now, waiting = time.monotonic(), self._waiting[whose]
        wait = max(self._free.get(whose, 0.0), self._held.get(whose, 0.0)) - now
        if urgency is Urgency.PROGRESS:
            is_first = not waiting
        else:
            waiting.setdefault(ticket, (urgency, next(self._places)))
            is_first = min(waiting, key=waiting.__getitem__) == ticket
        if wait > 0:
            return wait
        if not is_first:
            return SOON
        waiting.pop(ticket, None)
        self._free[whose] = now + gap
        return 0.0

    async def leave(self, whose: str, ticket: str) -> None:
        self._waiting[whose].pop(ticket, None)

    async def hold(self, whose: str, seconds: float) -> None:
        self._held[whose] = max(self._held.get(whose, 0.0), time.monotonic() + seconds)

    async def held(self, whose: str) -> float:
        return max(self._held.get(whose, 0.0) - time.monotonic(), 0.0)

    def alone(self, what: str) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()


class Prompt:
    """Whatever it says is an acknowledgement: people wait for it."""

    def __init__(self, speaker: "Speaker") -> None:
        self._speaker = speaker

    async def permission(self, repo: Repo, user: User) -> Permission:
        return await self._speaker.permission(repo, user)

    async def say(self, repo: Repo, number: int, tag: str, body: str) -> str:
        with writing(Urgency.ACKNOWLEDGEMENT):
            return await self._speaker.say(repo, number, tag, body)

    async def notice(self, repo: Repo, place: tuple[str, ...]) -> None:
        with writing(Urgency.ACKNOWLEDGEMENT):
            await self._speaker.notice(repo, place)
