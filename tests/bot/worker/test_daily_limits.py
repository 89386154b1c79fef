"""Daily limits reject new runs but not started ones, and every job is counted once."""

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.quotas import Quotas
from patchwright.bot.worker.daily_limits import with_daily_limits
from patchwright.resolver.authorization import Permission
from patchwright.resolver.domain import Job, JobId, Outcome, Rejected, Repo, Usage, User
from patchwright.resolver.errors import Forbidden
from patchwright.resolver.settings.settings import Settings
from tests.bot.jobs import DONE, job

pytestmark = pytest.mark.redis


@pytest.fixture
async def quotas(short_tmp: Path) -> AsyncIterator[Quotas]:
    async with run_embedded_redis(short_tmp) as url:
        made = Quotas(url)
        yield made
        await made.close()


class RecordingForge:
    """A forge that records comments."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.strangers: set[int] = set()
        self.locked = False

    async def get_permission(self, repo: object, user: User) -> Permission:
        return "read" if user.id in self.strangers else "write"

    async def upsert_comment(
        self, repo: object, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> str:
        if self.locked:
            raise Forbidden("the conversation is locked")
        self.bodies.append(body)
        return "url"


class LimitedJobs:
    """Runs jobs through the limits, and counts those that pass."""

    def __init__(self, quotas: Quotas, settings: Settings) -> None:
        self.forge, self.done = RecordingForge(), list[JobId]()
        self.costs: dict[JobId, Usage] = {}
        self.outcome: Outcome = DONE
        self.ask = with_daily_limits(self._resolve, quotas, self.forge, settings, self._spent)  # type: ignore[arg-type]

    async def _resolve(self, limited: Job) -> Outcome:
        self.done.append(limited.id)
        if self.outcome == DONE:
            self.costs[limited.id] = Usage(usd=Decimal("0.60"), steps=3)
        return self.outcome

    def _spent(self, run: JobId) -> Usage:
        return self.costs.get(run, Usage())


def named(number: int, **but: object) -> Job:
    return job(f"acme-sample-{number}-00000000000{number}", number=number, **but)


async def test_a_request_in_a_locked_thread_is_rejected_without_a_comment(
    quotas: Quotas, tmp_path: Path
) -> None:
    limited = LimitedJobs(quotas, Settings(data=tmp_path, runs_per_day=1))
    assert await limited.ask(named(1)) == DONE
    limited.forge.locked = True
    assert isinstance(await limited.ask(named(2)), Rejected)
    assert (limited.forge.bodies, len(limited.done)) == ([], 1)


async def test_a_user_has_a_daily_limit_and_is_told_when_it_is_reached(
    quotas: Quotas, tmp_path: Path
) -> None:
    limited = LimitedJobs(quotas, Settings(data=tmp_path, runs_per_day=2))
    for number in (1, 2):
        assert await limited.ask(named(number)) == DONE
    assert await limited.ask(named(2)) == DONE  # The same job again, as after a kill.
    refused = await limited.ask(named(3))
    assert isinstance(refused, Rejected)
    elsewhere = Repo(owner="acme", name="other")
    assert await limited.ask(named(4, requester=User(id=6, login="other"), repo=elsewhere)) == DONE
    assert limited.forge.bodies == [
        "You reached your daily limit of 2 runs (setting "
        "`runs_per_day`). Try again after midnight UTC, or ask the operator to raise the limit.\n"
    ]


async def test_a_job_without_a_requester_counts_only_for_the_repository(
    quotas: Quotas, tmp_path: Path
) -> None:
    limited = LimitedJobs(quotas, Settings(data=tmp_path, runs_per_day=3))
    for number in range(1, 5):
        outcome = await limited.ask(named(number, requester=None, checks="a" * 40))
        assert (outcome == DONE) == (number <= 3)


async def test_a_repository_has_its_own_daily_limit(quotas: Quotas, tmp_path: Path) -> None:
    limited = LimitedJobs(quotas, Settings(data=tmp_path, runs_per_day=1))
    assert await limited.ask(named(1)) == DONE
    refused = await limited.ask(named(2, requester=User(id=6, login="other")))
    assert isinstance(refused, Rejected)
    assert "This repository reached its daily limit of 1 run" in refused.explanation


async def test_rejected_jobs_do_not_count_towards_daily_limits(quotas: Quotas, tmp_path: Path) -> None:
    limited = LimitedJobs(quotas, Settings(data=tmp_path, runs_per_day=1))
    limited.outcome = Rejected(explanation="stranger may not write to this repository.")
    for number in (1, 2, 3):
        assert await limited.ask(named(number)) == limited.outcome
    limited.outcome = DONE
    assert await limited.ask(named(4)) == DONE


@pytest.mark.parametrize(("listed", "done"), [((), 1), (("ACME/*",), 1), (("acme/other", "x/*"), 0)])
async def test_only_allowed_repositories_are_handled(
    quotas: Quotas, tmp_path: Path, listed: tuple[str, ...], done: int
) -> None:
    limited = LimitedJobs(quotas, Settings(data=tmp_path, allowed_repositories=listed))
    outcome = await limited.ask(named(1))
    assert len(limited.done) == done
    if not done:
        assert isinstance(outcome, Rejected)
        assert outcome.explanation == (
            "the operator has not allowed acme/sample (setting `allowed_repositories`)."
        )


async def test_a_stranger_is_rejected_for_permission_and_not_for_a_limit(
    quotas: Quotas, tmp_path: Path
) -> None:
    limited = LimitedJobs(quotas, Settings(data=tmp_path, allowed_repositories=("elsewhere/*",)))
    limited.forge.strangers, limited.outcome = {6}, Rejected(explanation="may not write")
    assert await limited.ask(named(1, requester=User(id=6, login="stranger"))) == limited.outcome
    assert limited.forge.bodies == []
    assert isinstance(await limited.ask(named(2)), Rejected)
    assert len(limited.forge.bodies) == 1


async def test_a_daily_budget_blocks_new_runs_but_not_started_ones(quotas: Quotas, tmp_path: Path) -> None:
    limited = LimitedJobs(quotas, Settings(data=tmp_path, usd_per_day=Decimal("1.00")))
    assert [await limited.ask(named(number)) for number in (1, 2)] == [DONE, DONE]  # $0.60, then $1.20.
    refused = await limited.ask(named(3))
    assert isinstance(refused, Rejected)
    assert refused.explanation.startswith("The daily budget of $1.00 is used up (setting `usd_per_day`).")
    assert await limited.ask(named(2)) == DONE


async def test_refusals_are_counted_per_thread_by_all_workers(quotas: Quotas) -> None:
    repo = Repo(owner="acme", name="sample")
    allowed = [
        await quotas.allow_refusal(repo, 1, JobId(name)) for name in ("a", "a", "b", "c", "d", "a", "d")
    ]
    assert allowed == [True, True, True, True, False, True, False]
    assert await quotas.allow_refusal(repo, 2, JobId("d"))
