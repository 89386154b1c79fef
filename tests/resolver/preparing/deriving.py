"""A set-up that is run on this machine, in a directory of its own."""

from collections.abc import Awaitable, Callable
from typing import Self

from runtime.local import LocalSandboxes
from runtime.sandbox import Sandbox


class Deriving(LocalSandboxes):
    """Local sandboxes that run a set-up; what it leaves is not kept."""

    async def derived(
        self, name: str, repository: str, key: str, fill: Callable[[Sandbox], Awaitable[None]]
    ) -> Self:
        async with self.open(name) as sandbox:
            await fill(sandbox)
        return self
