"""The total budget of an evaluation."""

import asyncio
from decimal import Decimal

from patchwright.evaluation.budget import Budget


async def test_an_attempt_that_may_exceed_the_budget_does_not_start() -> None:
    budget = Budget(Decimal(5), spent=Decimal("3.50"))  # by an earlier call
    assert not await budget.reserve(Decimal(2))
    assert await budget.reserve(Decimal("1.50"))


async def test_an_attempt_waits_until_a_cheaper_one_has_ended() -> None:
    budget = Budget(Decimal(3), spent=Decimal(0))
    assert await budget.reserve(Decimal(2))
    waiting = asyncio.create_task(budget.reserve(Decimal(2)))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await budget.settle(Decimal(2), cost=Decimal("0.40"))
    assert await waiting
    assert budget.spent == Decimal("0.40")


async def test_without_a_limit_every_attempt_starts() -> None:
    budget = Budget(None, spent=Decimal(1000))
    assert await budget.reserve(Decimal(2)) and await budget.reserve(Decimal(2))
