"""A run of one worker continues on another, on another disk, and a worker that was considered dead cannot
write.
"""

from pathlib import Path

import pytest

from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.shared_run_log import SharedLogStore, stream_key
from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import Message
from patchwright.resolver.run_log import FileLogStore

pytestmark = pytest.mark.redis

RUN = RunId("o-r-7")


def message(text: str) -> Message:
    return Message(text=text, source="program")


def open_store(
    url: str, directory: Path, lease_seconds: float = 0.6, lease_wait: float = 5
) -> SharedLogStore:
    return SharedLogStore(FileLogStore(directory), url, lease_seconds=lease_seconds, lease_wait=lease_wait)


async def test_a_run_continues_on_another_disk(url: str, tmp_path: Path) -> None:
    one, other = open_store(url, tmp_path / "one"), open_store(url, tmp_path / "other")
    async with one.open(RUN) as log:
        await log.append(message("here"))
    async with other.open(RUN) as log:
        assert list(log.trajectory) == [message("here")]
        await log.append(message("there"))
    async with one.open(RUN) as log:
        assert list(log.trajectory) == [message("here"), message("there")]
    assert one.read(RUN).entries == other.read(RUN).entries


async def test_a_live_writer_keeps_its_run_and_a_dead_one_is_replaced(url: str, tmp_path: Path) -> None:
    one, other = (
        open_store(url, tmp_path / "one", lease_seconds=3),
        open_store(url, tmp_path / "other", lease_wait=1),
    )
    redis = redis_client(url)
    async with one.open(RUN) as log:
        await log.append(message("here"))
        with pytest.raises(LogError, match="Another process is working on the run"):
            async with other.open(RUN):
                pass
        # as if the writer had been stopped for longer than its lease
        await redis.delete(f"patchwright:writer:{RUN}")
        async with other.open(RUN) as successor:
            await successor.append(message("there"))
            with pytest.raises(LogError, match="Another worker has taken over the run"):
                await log.append(message("a ghost"))
            assert list(successor.trajectory) == [message("here"), message("there")]
    # Not the equally long file with the ghost.
    assert list(one.read(RUN)) == [message("here"), message("there")]
    async with one.open(RUN) as log:
        assert list(log.trajectory) == [message("here"), message("there")]
    await redis.aclose()


async def test_a_run_continues_after_redis_is_wiped(url: str, tmp_path: Path) -> None:
    one, other = open_store(url, tmp_path / "one"), open_store(url, tmp_path / "other")
    redis = redis_client(url)
    async with one.open(RUN) as log:
        await log.append(message("before"))
        await redis.flushall()
        await log.append(message("after"))
        assert await redis.xlen(stream_key(RUN)) == 2
    await redis.flushall()
    async with one.open(RUN) as log:
        assert list(log.trajectory) == [message("before"), message("after")]
    async with other.open(RUN) as log:
        assert list(log.trajectory) == [message("before"), message("after")]
    await redis.aclose()


async def test_a_run_continues_while_redis_is_down_and_catches_up(short_tmp: Path) -> None:
    async with run_embedded_redis(short_tmp) as url:
        one = open_store(url, short_tmp / "runs")
        async with one.open(RUN) as log:
            await log.append(message("with"))
    nobody = open_store(f"unix://{short_tmp}/nobody.sock", short_tmp / "runs")
    async with nobody.open(RUN) as log:
        await log.append(message("without"))
    async with run_embedded_redis(short_tmp) as url:
        again = open_store(url, short_tmp / "runs")
        async with again.open(RUN) as log:
            await log.append(message("with again"))
        other = open_store(url, short_tmp / "elsewhere")
        async with other.open(RUN) as log:
            assert list(log.trajectory) == [message("with"), message("without"), message("with again")]


async def test_a_run_of_another_machine_can_be_read(url: str, tmp_path: Path) -> None:
    one, other = open_store(url, tmp_path / "one"), open_store(url, tmp_path / "other")
    with pytest.raises(LogError, match="There is no run"):
        other.read(RUN)
    async with one.open(RUN) as log:
        await log.append(message("here"))
    assert list(other.read(RUN)) == [message("here")]
    async with other.open(RUN) as log:
        await log.append(message("there"))
    assert list(one.read(RUN)) == [message("here"), message("there")]
    nobody = open_store("unix:///nowhere.sock", tmp_path / "one")
    assert list(nobody.read(RUN)) == [message("here")]  # without Redis, the local disk is read
    for store in (one, other, nobody):
        await store.close()


async def test_a_line_of_another_version_raises_an_error(url: str, tmp_path: Path) -> None:
    here, redis = open_store(url, tmp_path), redis_client(url)
    await redis.xadd(
        stream_key(RUN), {"entry": '{"seq": 0, "timestamp": "2026-01-01", "event": {"kind": "of tomorrow"}}'}
    )
    for broken in (here.read, lambda run: here.open(run).__aenter__()):
        with pytest.raises(LogError, match="The log in Redis contains a line that this version cannot read"):
            found = broken(RUN)
            await found
    await here.close()
    await redis.aclose()
