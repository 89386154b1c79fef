"""What a run's log says of its work, as figures: what each model used, and how it went."""

from collections import Counter
from collections.abc import Callable

from bot.redis.ledger import Account
from resolver.domain import RunId
from resolver.errors import LogError
from resolver.events import Consulted, Decided, Told, Trajectory, Usage

MOST_NAME = 100  # characters of a model's name


def account_of(run: RunId, read: Callable[[RunId], Trajectory]) -> Account:
    """Of a run as `read` has it, which may raise LogError; nothing where it was not begun. Blocks."""
    trajectory = _read(run, read)
    used: Counter[tuple[str, str]] = Counter()
    for usage in _usages(trajectory, read, {run}):
        name = usage.model[:MOST_NAME]
        used["prompt", name] += usage.prompt_tokens
        used["cached", name] += usage.cached_tokens
        used["completion", name] += usage.completion_tokens
    ended = trajectory.ended
    return Account(
        spent=trajectory.spent(),
        tokens=+used,
        repairs=sum(isinstance(event, Told) and event.source == "proof" for event in trajectory),
        mends_checks=trajectory.started is not None and bool(trajectory.started.job.checks),
        provider_failed=ended is not None and ended.reason == "error",
    )


def _usages(trajectory: Trajectory, read: Callable[[RunId], Trajectory], seen: set[RunId]) -> list[Usage]:
    found = [event.usage for event in trajectory if isinstance(event, Decided | Consulted)]
    for asked, _ in trajectory.delegations():
        if asked.run not in seen:
            seen.add(asked.run)
            found += _usages(_read(asked.run, read), read, seen)
    return found


def _read(run: RunId, read: Callable[[RunId], Trajectory]) -> Trajectory:
    try:
        return read(run)
    except LogError:  # it has not begun, or its log is gone
        return Trajectory()
