"""What may be asked for in a day is limited, what has begun goes on, and everything is counted once."""

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from bot.embedded import embedded_redis
from bot.limits import limited
from bot.redis.ledger import Ledger
from resolver.domain import Job, JobId, Outcome, Refused, Spent, User
from resolver.errors import Forbidden
from resolver.forge import Permission
from resolver.settings.settings import Settings
from tests.bot.jobs import DONE, job

pytestmark = pytest.mark.redis


@pytest.fixture
async def ledger(short_tmp: Path) -> AsyncIterator[Ledger]:
    async with embedded_redis(short_tmp) as url:
        made = Ledger(url)
        yield made
        await made.close()


class Said:
    """A forge of which only the words are wanted."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.strangers: set[int] = set()
        self.locked = False

    async def permission(self, repo: object, user: User) -> Permission:
        return "read" if user.id in self.strangers else "write"

    async def say(self, repo: object, number: int, tag: str, body: str) -> str:
        if self.locked:
            raise Forbidden("the conversation is locked")
        self.words.append(body)
        return "url"


class Asked:
    """What gets through the limits, and what it costs."""

    def __init__(self, ledger: Ledger, settings: Settings) -> None:
        self.said, self.done = Said(), list[JobId]()
        self.costs: dict[JobId, Spent] = {}
        self.comes_to: Outcome = DONE
        self.ask = limited(self._resolve, ledger, self.said, settings, self._spent)  # type: ignore[arg-type]

    async def _resolve(self, asked: Job) -> Outcome:
        self.done.append(asked.id)
        if self.comes_to == DONE:
            self.costs[asked.id] = Spent(usd=Decimal("0.60"), steps=3)
        return self.comes_to

    def _spent(self, run: JobId) -> Spent:
        return self.costs.get(run, Spent())


def named(number: int, **but: object) -> Job:
    return job(f"acme-sample-{number}-00000000000{number}", number=number, **but)


async def test_who_cannot_be_told_in_a_locked_thread_is_refused_all_the_same(
    ledger: Ledger, tmp_path: Path
) -> None:
    asked = Asked(ledger, Settings(data=tmp_path, user_runs_per_day=1))
    assert await asked.ask(named(1)) == DONE
    asked.said.locked = True
    assert isinstance(await asked.ask(named(2)), Refused)
    assert (asked.said.words, len(asked.done)) == ([], 1)


async def test_a_person_may_ask_so_often_in_a_day_and_is_told_when_it_is_enough(
    ledger: Ledger, tmp_path: Path
) -> None:
    asked = Asked(ledger, Settings(data=tmp_path, user_runs_per_day=2))
    for number in (1, 2):
        assert await asked.ask(named(number)) == DONE
    assert await asked.ask(named(2)) == DONE  # the same one again, as after a kill
    refused = await asked.ask(named(3))
    assert isinstance(refused, Refused)
    assert await asked.ask(named(4, requester=User(id=6, login="other"))) == DONE
    assert asked.said.words == [
        "I did not start on this: you have asked for 2 runs today, which is the limit (setting "
        "`user_runs_per_day`). Ask again after midnight (UTC), or ask whoever runs me for more.\n"
    ]


async def test_what_nobody_asked_for_counts_for_the_repository_alone(ledger: Ledger, tmp_path: Path) -> None:
    asked = Asked(ledger, Settings(data=tmp_path, user_runs_per_day=1, repository_runs_per_day=3))
    for number in range(1, 5):
        outcome = await asked.ask(named(number, requester=None, checks="a" * 40))
        assert (outcome == DONE) == (number <= 3)


async def test_a_repository_has_a_limit_of_its_own(ledger: Ledger, tmp_path: Path) -> None:
    asked = Asked(ledger, Settings(data=tmp_path, repository_runs_per_day=1))
    assert await asked.ask(named(1)) == DONE
    refused = await asked.ask(named(2, requester=User(id=6, login="other")))
    assert isinstance(refused, Refused)
    assert "1 run was asked for in this repository today, which is the limit" in refused.explanation


async def test_what_was_refused_uses_up_nobodys_day(ledger: Ledger, tmp_path: Path) -> None:
    asked = Asked(ledger, Settings(data=tmp_path, repository_runs_per_day=1, user_runs_per_day=1))
    asked.comes_to = Refused(explanation="stranger may not write to this repository.")
    for number in (1, 2, 3):
        assert await asked.ask(named(number)) == asked.comes_to
    asked.comes_to = DONE
    assert await asked.ask(named(4)) == DONE


@pytest.mark.parametrize(("listed", "done"), [((), 1), (("ACME/*",), 1), (("acme/other", "x/*"), 0)])
async def test_only_the_repositories_that_the_operator_lists_are_worked_for(
    ledger: Ledger, tmp_path: Path, listed: tuple[str, ...], done: int
) -> None:
    asked = Asked(ledger, Settings(data=tmp_path, only_repositories=listed))
    outcome = await asked.ask(named(1))
    assert len(asked.done) == done
    if not done:
        assert isinstance(outcome, Refused)
        assert outcome.explanation == (
            "whoever runs me has not listed acme/sample among the repositories that I work for (setting "
            "`only_repositories`)."
        )


async def test_a_stranger_hears_of_no_limit_and_is_refused_as_one_by_the_work(
    ledger: Ledger, tmp_path: Path
) -> None:
    asked = Asked(ledger, Settings(data=tmp_path, only_repositories=("elsewhere/*",)))
    asked.said.strangers, asked.comes_to = {6}, Refused(explanation="may not write")
    assert await asked.ask(named(1, requester=User(id=6, login="stranger"))) == asked.comes_to
    assert asked.said.words == []
    assert isinstance(await asked.ask(named(2)), Refused)
    assert len(asked.said.words) == 1


async def test_the_days_dollars_are_a_limit_and_what_has_begun_goes_on(
    ledger: Ledger, tmp_path: Path
) -> None:
    asked = Asked(ledger, Settings(data=tmp_path, usd_per_day=Decimal("1.00")))
    assert [await asked.ask(named(number)) for number in (1, 2)] == [DONE, DONE]  # 0.60, then 1.20
    refused = await asked.ask(named(3))
    assert isinstance(refused, Refused)
    assert refused.explanation.startswith(
        "the $1.00 that I may spend in a day are spent (setting `usd_per_day`)."
    )
    assert await asked.ask(named(2)) == DONE
