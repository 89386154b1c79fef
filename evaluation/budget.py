"""Keeps the cost of an evaluation below a limit."""

import asyncio
from decimal import Decimal


class Budget:
    """Starts an attempt only if its own limit still fits into the budget, so that no attempt gets less than others."""

    def __init__(self, limit: Decimal | None, spent: Decimal) -> None:
        self._limit = limit
        self._reserved = Decimal(0)
        self._changed = asyncio.Condition()
        self.spent = spent
        """Dollars that attempts have cost so far, including earlier calls of the command."""

    async def reserve(self, usd: Decimal) -> bool:
        """Waits until the amount fits. Returns False if it can no longer fit."""
        async with self._changed:
            while self._limit is not None and self.spent + self._reserved + usd > self._limit:
                if not self._reserved:
                    return False
                await self._changed.wait()
            self._reserved += usd
            return True

    async def reserve_running(self, usd: Decimal) -> None:
        """Reserves the amount for attempts that an earlier call started, even if it does not fit."""
        async with self._changed:
            self._reserved += usd

    async def settle(self, reserved: Decimal, cost: Decimal) -> None:
        """Replaces a reserved amount by the actual cost."""
        async with self._changed:
            self._reserved -= reserved
            self.spent += cost
            self._changed.notify_all()
