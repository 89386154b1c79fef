"""What becomes of runs when that goes away which they work for: their label, their thread, our way to it."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Protocol, TypeAlias, assert_never

from bot.jobs import Queue, Record, Why
from bot.mail import has_heard
from bot.webhooks.delivery import Closed, Reach, Unlabelled
from bot.webhooks.triggers import is_label
from bot.words import dropped
from resolver import prose
from resolver.domain import Job, Repo, User
from resolver.errors import Forbidden, NotFound
from resolver.forge import MAY_TRIGGER, Permission

log = logging.getLogger(__name__)

Gone: TypeAlias = Unlabelled | Closed | Reach


class Talker(Protocol):
    """How people are met on the forge. Every method may raise ForgeError."""

    async def permission(self, repo: Repo, user: User) -> Permission: ...

    async def say(self, repo: Repo, number: int, tag: str, body: str) -> str: ...


class Pulls(Protocol):
    """What becomes of pull requests. Every method may raise ForgeError or QueueDown."""

    async def has_closed(self, issue: Closed) -> bool:
        """Whether it was one of ours that closed this issue, by being merged."""

    async def ended(self, pull: Closed) -> None:
        """Count what this pull request came to, once, if it is ours."""


class Grants(Protocol):
    """Where an App may act. Every method may raise ForgeError or QueueDown."""

    async def reaches(self, repo: Repo) -> bool: ...

    async def changed(self, reach: Reach) -> None:
        """What it lacks is to be said anew."""


class Lifecycle:
    """Stops what nobody wants any more. To take the same thing again changes nothing."""

    def __init__(
        self,
        queue: Queue,
        label: str,
        speaker: Talker,
        pulls: Pulls | None = None,
        grants: Grants | None = None,
    ) -> None:
        """`label`: the one that starts a run."""
        self._queue = queue
        self._label = label
        self._speaker = speaker
        self._pulls = pulls
        self._grants = grants

    async def take(self, told: Gone) -> None:
        """Stop what this is the end of. Raises QueueDown and ForgeError: then it is to be taken again."""
        match told:
            case Unlabelled():
                await self._unlabelled(told)
            case Closed():
                await self._closed(told)
            case Reach():
                await self._reached(told)
            case _:
                assert_never(told)

    async def _unlabelled(self, told: Unlabelled) -> None:
        """Who may not write takes back what they asked for themselves, and nothing else; nor does a bot."""
        if not is_label(told.label, self._label) or told.sender.bot:
            return
        if await self._speaker.permission(told.repo, told.sender) in MAY_TRIGGER:
            await self._stop(told, "unlabelled")
            return
        at = time_of(told.at)
        for record in await self._queue.open(told.repo, told.number):
            job = record.job
            if job.label and record.is_before(at) and job.requester and job.requester.id == told.sender.id:
                await self.say_dropped((record,), "unlabelled")
                await self._queue.cancel(job.id, "unlabelled")

    async def _closed(self, told: Closed) -> None:
        """Whoever closed it: the forge has let them, and nothing may be proposed there any more."""
        ours = told.branch is None and any(map(has_begun, await self._queue.open(told.repo, told.number)))
        if ours and self._pulls and await self._pulls.has_closed(told):
            return  # the run that proposed it is saying so just now
        await self._stop(told, "closed")
        if told.branch is not None and self._pulls:
            await self._pulls.ended(told)

    async def _stop(self, told: Unlabelled | Closed, why: Why) -> None:
        at = time_of(told.at)
        meant = [one for one in await self._queue.open(told.repo, told.number) if one.is_before(at)]
        if why == "unlabelled":
            meant = [one for one in meant if one.job.label]
        await self.say_dropped(meant, why)  # first, so that it is said although we die between the two
        await self._queue.stop(told.repo, told.number, at, why)
        if meant:
            log.info("stopped", extra={"repo": str(told.repo), "number": told.number, "why": why})

    async def say_dropped(self, meant: Iterable[Record], why: Why) -> None:
        """What had not begun is told in the thread; a run that had tells it itself, in its own comment."""
        meant = tuple(meant)
        begun = [one.job for one in meant if has_begun(one)]
        for record in meant:
            if has_begun(record) or any(has_heard(run, record) for run in begun):
                continue
            await self._tell(record.job, prose.refused(dropped(why)))

    async def _tell(self, job: Job, text: str) -> None:
        try:
            await self._speaker.say(job.repo, job.number, job.id, text)
        except (Forbidden, NotFound) as exc:  # it is locked, or gone altogether
            log.warning("thread not told", extra={"job": job.id, "reason": str(exc)})

    async def _reached(self, told: Reach) -> None:
        if self._grants is None:
            return
        await self._grants.changed(told)
        if not told.lost:
            return
        jobs = [
            one.job for one in await self._queue.everywhere() if one.job.installation == told.installation
        ]
        for repo in {job.repo for job in jobs if not told.repositories or job.repo in told.repositories}:
            if await self._grants.reaches(repo):
                continue  # it was given back since: what is told may be old
            for job in jobs:
                if job.repo == repo:
                    await self._queue.cancel(job.id, "out_of_reach")


def has_begun(record: Record) -> bool:
    """Whether it runs, or did and waits for its next try."""
    return record.state == "running" or record.tries > 0


def time_of(stamp: str) -> datetime:
    """A time as GitHub writes it; now, for what is none."""
    try:
        return datetime.fromisoformat(stamp).astimezone(UTC)
    except ValueError:
        return datetime.now(UTC)
