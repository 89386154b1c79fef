"""Rejects the calls that nobody approved in time, so that their runs continue."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from patchwright.bot.errors import QueueDown
from patchwright.bot.jobs import JobQueue, JobResult
from patchwright.bot.redis.connection import RedisStore, parse_stored
from patchwright.resolver.domain import InputRequired, Job, JobId
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import AgentStopped, Trajectory
from patchwright.resolver.run_calls import get_confirmation

log = logging.getLogger(__name__)

WAITING_CALLS_KEY = (
    "patchwright:waiting_calls"  # sorted set: job that rejects the call -> time when it is due
)
CHECK_SECONDS = 30.0


class WaitingCalls(RedisStore):
    """The calls of all runs that wait for approval, with the times when they expire."""

    async def add(self, job: Job, result: JobResult) -> None:
        """Stores the call that a job waits for, if there is one. May raise QueueDown."""
        request = result.confirmation if isinstance(result, InputRequired) else None
        if request is None or request.expires_at is None:
            return
        rejection = Job(
            id=JobId(f"{job.id[:150]}-expired-{request.code}"),
            repo=job.repo,
            number=job.number,
            requester=job.requester,
            installation_id=job.installation_id,
            command=f"reject {request.code}",
            retry_of=job.id,
            expired_call=request.code,
        )
        due = {rejection.model_dump_json(): request.expires_at.timestamp()}
        await self._redis.zadd(WAITING_CALLS_KEY, due)

    async def reject_expired(self, queue: JobQueue, read_log: Callable[[JobId], Trajectory]) -> None:
        """Queues a job for each call that is due and still waits. May raise QueueDown."""
        due = await self._redis.zrangebyscore(WAITING_CALLS_KEY, "-inf", datetime.now(UTC).timestamp())
        for text in due:
            if (job := parse_stored(Job, text)) is None:  # another version wrote it, and rejects the call
                continue
            assert job.retry_of is not None
            since = await asyncio.to_thread(_find_start_of_wait, job.retry_of, job.expired_call, read_log)
            if since is not None:
                log.info("call expired", extra={"job": job.retry_of, "code": job.expired_call})
                # A stop command, or the end of the issue, since then ends the run.
                await queue.put(job, urgent=False, requested_at=since)
            await self._redis.zrem(WAITING_CALLS_KEY, text)

    async def keep_rejecting(self, queue: JobQueue, read_log: Callable[[JobId], Trajectory]) -> None:
        """Calls `reject_expired` again and again until canceled."""
        while True:
            try:
                await self.reject_expired(queue, read_log)
            except QueueDown as exc:
                log.warning("expired calls not rejected", extra={"reason": str(exc)})
            await asyncio.sleep(CHECK_SECONDS)


def _find_start_of_wait(job: JobId, code: str, read_log: Callable[[JobId], Trajectory]) -> datetime | None:
    """Returns since when the run of this job waits for a decision about the call; None if it does not. Blocks."""
    try:
        work = read_log(job)
        work = read_log(work.run_resumed.run) if work.run_resumed else work
    except LogError:  # The log was removed.
        return None
    waiting = get_confirmation(work)
    if waiting is None or waiting.code != code:
        return None
    return max(entry.timestamp for entry in work.entries if isinstance(entry.event, AgentStopped))
