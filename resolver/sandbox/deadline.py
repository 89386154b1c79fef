"""Limits the timeout of each command to the remaining time of the run."""

import math
from collections.abc import Callable
from datetime import UTC, datetime

from patchwright.resolver.events import Trajectory
from patchwright.runtime.actions import RunPython, RunShell, SandboxAction, SendInput
from patchwright.runtime.observations import Observation
from patchwright.runtime.sandbox import Sandbox, WrapperSandbox


class DeadlineSandbox(WrapperSandbox):
    """A sandbox whose commands time out after at most `get_remaining()` seconds."""

    def __init__(self, sandbox: Sandbox, get_remaining: Callable[[], float]) -> None:
        super().__init__(sandbox)
        self._get_remaining = get_remaining

    async def act(self, action: SandboxAction) -> Observation:
        if isinstance(action, RunShell | RunPython | SendInput):
            max_timeout = max(1, math.ceil(self._get_remaining()))
            if max_timeout < action.timeout:
                action = action.model_copy(update={"timeout": max_timeout})
        return await self._sandbox.act(action)


def get_remaining_seconds(trajectory: Trajectory, limit: float) -> float:
    """Returns the remaining seconds of a run that may take `limit` seconds."""
    idle_seconds = (datetime.now(UTC) - trajectory.entries[-1].timestamp).total_seconds()
    return limit - trajectory.usage_since_resume().seconds - idle_seconds
