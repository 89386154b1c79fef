"""Where all that people ask of us arrives, however it was learnt: work is queued, and a command carried out."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from bot.ci.watch import CiWatch
from bot.jobs import Answered, Queue, Record, meant_by
from bot.lifecycle import Lifecycle, Talker, has_begun
from bot.pressed import Pressed
from bot.queued import HoldsHere, Waiting
from bot.webhooks.delivery import Checked, Closed, Delivery, Reach, Unlabelled
from bot.webhooks.triggers import Triggers, Wish, names_of, wish_for
from bot.words import helped, queued, stopped
from resolver import prose
from resolver.domain import Job, JobId, Refused, Repo, User
from resolver.errors import Forbidden, ForgeError, NotFound
from resolver.forge import MAY_TRIGGER, Permission
from resolver.request import planning_prose

log = logging.getLogger(__name__)

LATE = timedelta(hours=1)  # after which nobody waits to hear that there was nothing to stop
NOTICE_SECONDS = 60.0  # after which a reaction would come too late to be one


class Speaker(Talker, Protocol):
    """It reacts, too."""

    async def notice(self, repo: Repo, place: tuple[str, ...]) -> None:
        """React to what stands there, once however often it is done. `place`: its path below the repository's."""


class Mute:
    """Where there is no forge to speak on: work is queued, and nobody may command."""

    async def permission(self, repo: Repo, user: User) -> Permission:
        raise Forbidden("there is no forge to ask")

    async def say(self, repo: Repo, number: int, tag: str, body: str) -> str:
        return ""

    async def notice(self, repo: Repo, place: tuple[str, ...]) -> None:
        return


class Desk:
    """Deals with one wish at a time, and with the same one once."""

    def __init__(
        self,
        queue: Queue,
        rules: Triggers,
        speaker: Speaker,
        lifecycle: Lifecycle | None = None,
        waiting: Waiting | None = None,
        checks: CiWatch | None = None,
    ) -> None:
        """`lifecycle`: where runs end whose thread or label goes away; None: one that knows queue and speaker alone.

        `waiting`: says that a job waits; None: as where all work is done in this process. `checks`:
        finds those that fail on our pull requests; None: nobody does.
        """
        self.rules = rules
        self._queue = queue
        self._speaker = speaker
        self._lifecycle = lifecycle or Lifecycle(queue, rules.label, speaker)
        self._waiting = waiting or Waiting(queue, HoldsHere(), speaker, rules.mention)
        self.checks = checks
        self._noticing: set[asyncio.Task[None]] = set()

    async def take(self, told: Delivery, ours: Mapping[str, str] | None = None) -> JobId | None:
        """Do what this asks for, unless that was done; the job that is new in the queue, if one is.

        `ours`: the text of our own comments in the thread, by tag, where this was found at the forge later on; None:
        a delivery told it. Raises QueueDown, and ForgeError for a command: then it is to be taken again.
        """
        if isinstance(told, Unlabelled | Closed | Reach):
            await self._lifecycle.take(told)
            return None
        if isinstance(told, Checked):
            return await self.checks.take(told) if self.checks else None
        if (wish := wish_for(told, self.rules)) is None:
            return None
        for name in names_of(told, wish.job):
            known = await self._queue.state(name)
            if known is not None and (known.state == "ended" or name != wish.job.id):
                return None
            if ours is not None and (said := ours.get(name)) is not None:
                if not is_under_way(said):
                    return None  # GitHub shows that it was dealt with
                wish = wish._replace(job=wish.job.model_copy(update={"id": name}))
        return await self._do(wish, found=ours is not None)

    async def at_work(self, repo: Repo) -> tuple[Job, ...]:
        """The jobs that wait or run there. Raises QueueDown."""
        return tuple(one.job for one in await self._queue.everywhere() if one.job.repo == repo)

    async def press(self, pressed: Pressed) -> JobId | None:
        """Do what a button of a run's page asks for, as if a comment did, but for that run alone; else as `take`."""
        wish = pressed.wish()
        if pressed.verb == "retry":
            return await self._do(wish, found=False)
        if not await self._may(wish.job):
            await self._refuse(wish.job, prose.refusal("permission", wish.job))
            return None
        record = await self._queue.state(pressed.run)
        if record is not None and record.state != "ended":
            await self._drop((record,))
        await self._queue.settle(wish.job, Answered())
        return None

    async def _do(self, wish: Wish, *, found: bool) -> JobId | None:
        if wish.asked.verb == "stop":
            await self._stop(wish, found=found)
        elif wish.asked.verb == "help":
            await self._answer(wish.job, helped(self.rules.mention, self.rules.label))
        elif wish.asked.unclear:
            may = await self._may(wish.job)
            slip = planning_prose.unclear(wish.asked.unclear)
            await self._refuse(wish.job, slip if may else prose.refusal("permission", wish.job))
        else:
            return await self._line_up(wish)
        return None

    async def _line_up(self, wish: Wish) -> JobId | None:
        job = wish.job
        try:
            may = await self._may(job)
        except ForgeError as exc:  # no reason to lose it: it is asked again when its turn comes
            log.warning("permission not asked", extra={"job": job.id, "reason": str(exc)})
            may = None
        if may is False and await self._queue.state(job.id) is None:
            await self._refuse(job, prose.refusal("permission", job))
        elif await self._queue.put(job, asked=wish.at):
            if may:
                self._notice(wish)
            self._beside(self._waiting.tell(job))
            return job.id
        return None

    async def _stop(self, wish: Wish, *, found: bool) -> None:
        job = wish.job
        if not await self._may(job):
            await self._refuse(job, prose.refusal("permission", job))
            return
        at = wish.at or datetime.now(UTC)
        meant = meant_by(await self._queue.open(job.repo, job.number), at, "all")
        if meant:
            await self._queue.take_up(job)  # so that whoever reads it again knows that something was stopped
        await self._drop(meant)
        await self._queue.stop(job.repo, job.number, at)
        unread = bool(await self._queue.unread(job.repo, job.number))
        old = found and datetime.now(UTC) - at > LATE  # found where Redis was wiped: it was dealt with
        if not unread and (old or await self._queue.state(job.id) is not None):
            self._notice(wish)  # the comment of each says what became of it
            await self._queue.settle(job, Answered())
        else:
            await self._answer(job, stopped(self.rules.mention, unread=unread))

    async def _drop(self, meant: Sequence[Record]) -> None:
        """Say it first, so that whoever reads this again finds it still to be said; what runs stops in any case."""
        try:
            await self._lifecycle.say_dropped(meant, "asked")
        finally:
            for one in filter(has_begun, meant):
                await self._queue.cancel(one.job.id)
        for one in meant:
            await self._queue.cancel(one.job.id)

    async def _refuse(self, job: Job, explanation: str) -> None:
        await self._say(job, prose.refused(explanation))
        await self._queue.settle(job, Refused(explanation=explanation))

    async def _answer(self, job: Job, text: str) -> None:
        await self._say(job, text)
        await self._queue.settle(job, Answered())

    async def _say(self, job: Job, text: str) -> None:
        if await self._permission(job) == "none":  # they cannot see it, wherever not everybody can
            log.warning("refused without a word", extra={"job": job.id, "reason": text.strip()})
            return
        try:
            await self._speaker.say(job.repo, job.number, job.id, text)
        except (Forbidden, NotFound) as exc:  # it is locked, or gone altogether: no later time is better
            log.warning("answered without a word", extra={"job": job.id, "reason": str(exc)})

    async def _may(self, job: Job) -> bool:
        return await self._permission(job) in MAY_TRIGGER

    async def _permission(self, job: Job) -> Permission:
        if job.requester is None:  # the operator, at the page
            return "admin"
        return await self._speaker.permission(job.repo, job.requester)

    def _notice(self, wish: Wish) -> None:
        """React to it, without keeping anybody waiting; nothing is lost where that fails."""

        async def react() -> None:
            try:
                async with asyncio.timeout(NOTICE_SECONDS):
                    await self._speaker.notice(wish.job.repo, wish.place)
            except (ForgeError, TimeoutError) as exc:
                log.warning("not noticed", extra={"job": wish.job.id, "reason": str(exc)})

        if wish.place:
            self._beside(react())

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._noticing.add(task)
        task.add_done_callback(self._noticing.discard)

    async def close(self) -> None:
        """What is still to be reacted to is left."""
        for task in self._noticing:
            task.cancel()
        await asyncio.gather(*self._noticing, return_exceptions=True)


def is_under_way(status: str) -> bool:
    """Whether this comment of ours is of a run that has not ended."""
    begins = (prose.working().partition(".")[0], queued(0, "", here=True).partition(",")[0])
    return status.startswith(begins)
