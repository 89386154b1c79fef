"""How the engines of the workers' machines do, as each worker has found its own last."""

import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from pydantic import ValidationError

from bot.errors import QueueDown
from bot.redis.client import redis_client, redis_errors
from runtime.errors import SandboxError
from runtime.frozen import Frozen

ENGINES = "patchwright:engines"  # hash: machine -> what was found there, and when
GONE_SECONDS = 180.0  # of a machine that has not been heard of for so long nothing is told
MOST_TEXT = 300  # characters of a problem


class Told(Frozen):
    """What was found on a machine."""

    problem: str
    """"": it answers."""
    at: float
    """Seconds since 1970."""


class Engines:
    """What workers tell on a Redis."""

    def __init__(self, url: str, machine: str = "") -> None:
        """`machine`: this one's name among all. Raises SettingsError for what is no URL of a Redis."""
        self._redis = redis_client(url)
        self._machine = machine or socket.gethostname()

    async def tell(self, problem: str = "") -> None:
        """What was found here now; never raises."""
        told = Told(problem=problem[:MOST_TEXT], at=time.time()).model_dump_json()
        with contextlib.suppress(QueueDown), redis_errors():
            await cast("Any", self._redis.hset(ENGINES, self._machine, told))

    async def told(self) -> dict[str, Told]:
        """Of each machine that was heard of lately. Raises QueueDown."""
        with redis_errors():
            stored = await cast("Any", self._redis.hgetall(ENGINES))
        found: dict[str, Told] = {}
        for machine, value in stored.items():
            with contextlib.suppress(ValidationError):  # of another version
                told = Told.model_validate_json(value)
                if told.at > time.time() - GONE_SECONDS:
                    found[machine.decode(errors="replace")] = told
        return found

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)


def telling(sweep: Callable[[], Awaitable[object]], engines: Engines) -> Callable[[], Awaitable[None]]:
    """`sweep`, which asks the engine, and what that showed of it told."""

    async def swept() -> None:
        try:
            await sweep()
        except SandboxError as exc:
            await engines.tell(str(exc) or type(exc).__name__)
            raise
        await engines.tell()

    return swept
