"""A call that nobody approves in time is rejected by a job."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.waiting_calls import WaitingCalls
from patchwright.resolver.domain import InputRequired, JobId
from patchwright.resolver.events import ToolCall
from patchwright.resolver.run_log import FileLogStore
from tests.bot.jobs import DONE, job
from tests.resolver.test_confirmation import PUSH, decision, reply, waiting_for

pytestmark = pytest.mark.redis
CALL = ToolCall(id="a", action=PUSH)


async def test_a_call_is_rejected_once_when_its_time_is_over(short_tmp: Path) -> None:
    first_job = job()
    stopped = waiting_for(CALL)
    assert stopped.confirmation is not None
    logs = FileLogStore(short_tmp / "runs")
    async with logs.open(first_job.id) as log:
        await log.append(reply(CALL))
        await log.append(stopped)
    async with run_embedded_redis(short_tmp) as url:
        calls, queue = WaitingCalls(url), ArqQueue(url)

        async def add(expires_at: datetime | None) -> None:
            confirmation = stopped.confirmation.model_copy(update={"expires_at": expires_at})  # type: ignore[union-attr]
            await calls.add(first_job, InputRequired(url="", question="?", confirmation=confirmation))

        await calls.add(first_job, DONE)
        await calls.add(first_job, InputRequired(url="", question="?"))
        await add(None)
        await add(datetime.now(UTC) + timedelta(hours=1))
        await calls.reject_expired(queue, logs.read)
        assert await queue.all_active_jobs() == ()
        await add(datetime.now(UTC) - timedelta(seconds=1))
        await calls.reject_expired(queue, logs.read)
        await calls.reject_expired(queue, logs.read)
        (record,) = await queue.all_active_jobs()
        assert record.job.expired_call == stopped.confirmation.code
        assert (record.job.number, record.job.requester) == (first_job.number, first_job.requester)
        await queue.complete(record.job, DONE)

        await queue.cancel_thread(first_job.repo, 8, datetime.now(UTC))
        stopped_job = JobId("acme-sample-7-000000000003")
        confirmation = stopped.confirmation.model_copy(update={"expires_at": datetime.now(UTC)})
        ended = first_job.model_copy(update={"id": stopped_job, "number": 8})
        await calls.add(ended, InputRequired(url="", question="?", confirmation=confirmation))
        await calls.reject_expired(queue, lambda run: logs.read(first_job.id))
        assert await queue.all_active_jobs() == (), "a stop command ends a run that waits"

        async with logs.open(first_job.id) as log:
            await log.append(decision(CALL, approved=True))
        second = first_job.model_copy(update={"id": JobId("acme-sample-7-000000000002")})
        confirmation = stopped.confirmation.model_copy(update={"expires_at": datetime.now(UTC)})
        await calls.add(second, InputRequired(url="", question="?", confirmation=confirmation))
        await calls.reject_expired(queue, lambda run: logs.read(first_job.id))
        assert await queue.all_active_jobs() == (), "somebody has decided"
        await calls.close()
        await queue.close()
