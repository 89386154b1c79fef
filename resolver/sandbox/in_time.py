"""A sandbox in which no command lasts longer than the run may: it is stopped inside, as at its own timeout."""

import math
from collections.abc import Callable
from datetime import UTC, datetime

from resolver.events import Trajectory
from resolver.rules import used
from runtime.actions import RunPython, RunShell, SandboxAction, SendInput
from runtime.observations import Observation
from runtime.sandbox import Around, Sandbox


class InTime(Around):
    """A sandbox that is used for `left()` seconds at most."""

    def __init__(self, sandbox: Sandbox, left: Callable[[], float]) -> None:
        super().__init__(sandbox)
        self._left = left

    async def act(self, action: SandboxAction) -> Observation:
        if isinstance(action, RunShell | RunPython | SendInput):
            most = max(1, math.ceil(self._left()))
            if most < action.timeout:
                action = action.model_copy(update={"timeout": most})
        return await self._sandbox.act(action)


def left(trajectory: Trajectory, seconds: float) -> float:
    """How long a run may still work, of so many seconds in all."""
    since = (datetime.now(UTC) - trajectory.entries[-1].at).total_seconds()
    return seconds - used(trajectory).seconds - since
