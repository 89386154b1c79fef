"""Checks, done side by side, each within a time of its own; what each has found, as a value."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bot.errors import QueueDown
from resolver.errors import ResolverError
from runtime.errors import SandboxError
from runtime.frozen import Frozen

State = Literal["ok", "warning", "failed"]


class Finding(Frozen):
    """What was seen of one requirement."""

    name: str
    state: State
    seen: str
    mend: str = ""
    """What to do; "": nothing has to be done."""


@dataclass(frozen=True)
class Check:
    """One look at something; it changes nothing."""

    name: str
    look: Callable[[], Awaitable[Sequence[Finding]]]
    """May raise what the world around a run raises: then the check has failed."""
    mend: str
    """What to do when it has failed so, or came to no end."""
    seconds: float = 30.0


def ok(name: str, seen: str) -> Finding:
    return Finding(name=name, state="ok", seen=seen)


def warning(name: str, seen: str, mend: str) -> Finding:
    return Finding(name=name, state="warning", seen=seen, mend=mend)


def failed(name: str, seen: str, mend: str) -> Finding:
    return Finding(name=name, state="failed", seen=seen, mend=mend)


async def examined(checks: Sequence[Check]) -> AsyncGenerator[Finding, None]:
    """What each has found, in their order, as soon as those before it have."""
    tasks = [asyncio.create_task(_looked(check)) for check in checks]
    try:
        for task in tasks:
            for finding in await task:
                yield finding
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _looked(check: Check) -> Sequence[Finding]:
    """The check may sit in a thread that nothing can end; it is left there."""
    looking = asyncio.ensure_future(check.look())
    try:
        done, _ = await asyncio.wait((looking,), timeout=check.seconds)
        if not done:
            return (failed(check.name, f"no answer within {check.seconds:.0f} s", check.mend),)
        return looking.result()
    except (ResolverError, SandboxError, QueueDown, OSError) as exc:
        return (failed(check.name, str(exc).rstrip("."), check.mend),)
    finally:
        looking.cancel()
