"""Runs the checks in parallel, each with its own timeout."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from patchwright.bot.errors import QueueDown
from patchwright.resolver.errors import ResolverError
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.errors import SandboxError
from patchwright.runtime.frozen_model import FrozenModel

CheckState = Literal["ok", "warning", "failed"]


class CheckResult(FrozenModel):
    """Result of one check."""

    name: str
    state: CheckState
    detail: str
    fix: str = ""
    """How to fix the problem that the check found; "" if the check passed."""


@dataclass(frozen=True)
class DoctorCheck:
    """One check of `patchwright doctor`. It tests one requirement of a run and changes nothing."""

    name: str
    run: Callable[[], Awaitable[Sequence[CheckResult]]]
    """Runs the check. The check fails if this function raises ResolverError, SandboxError, QueueDown or
    OSError.
    """
    fix: str
    """The advice on how to fix the problem if the check raised an error or timed out."""
    timeout_seconds: float = 30.0


def ok(name: str, detail: str) -> CheckResult:
    return CheckResult(name=name, state="ok", detail=detail)


def warning(name: str, detail: str, fix: str) -> CheckResult:
    return CheckResult(name=name, state="warning", detail=detail, fix=fix)


def failed(name: str, detail: str, fix: str) -> CheckResult:
    return CheckResult(name=name, state="failed", detail=detail, fix=fix)


def is_server(settings: Settings) -> bool:
    """Returns True if the settings are those of a server. The command line needs neither a server nor Redis."""
    return bool(settings.app_id or settings.webhook_secret or settings.public_url or settings.poll)


async def run_checks(checks: Sequence[DoctorCheck]) -> AsyncGenerator[CheckResult, None]:
    """Runs all checks at the same time. Yields the results in the order of the checks. Yields a result as soon
    as this result and all earlier results are available.
    """
    tasks = [asyncio.create_task(_run_check(check)) for check in checks]
    try:
        for task in tasks:
            for result in await task:
                yield result
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run_check(check: DoctorCheck) -> Sequence[CheckResult]:
    """Runs one check with a timeout. A check that runs in a thread cannot be stopped, so its thread continues
    after the timeout.
    """
    running = asyncio.ensure_future(check.run())
    try:
        done, _ = await asyncio.wait((running,), timeout=check.timeout_seconds)
        if not done:
            return (failed(check.name, f"no response within {check.timeout_seconds:.0f} s", check.fix),)
        return running.result()
    except (ResolverError, SandboxError, QueueDown, OSError) as exc:
        return (failed(check.name, str(exc).rstrip("."), check.fix),)
    finally:
        running.cancel()
