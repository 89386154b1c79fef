"""A server and a worker are killed while conversations and jobs are at work."""

import pytest

from benchmarks.conversation_kills import run_trial

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.redis]


@pytest.mark.timeout(1800)
async def test_a_server_and_a_worker_killed_at_work_lose_and_double_nothing() -> None:
    trial = await run_trial()
    assert (trial.lost, trial.doubled) == ([], [])
