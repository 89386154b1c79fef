"""A run that one worker began goes on in another, on another disk; and whoever was thought dead writes no more."""

from pathlib import Path

import pytest

from bot.embedded import embedded_redis
from bot.redis.client import redis_client
from bot.redis.log import SharedLogs, stream_of
from resolver.domain import RunId
from resolver.errors import LogError
from resolver.events import Told
from resolver.log import FileLogs

pytestmark = pytest.mark.redis

RUN = RunId("o-r-7")


def told(text: str) -> Told:
    return Told(text=text, source="program")


def logs(url: str, directory: Path, lease: float = 0.6, patience: float = 5) -> SharedLogs:
    return SharedLogs(FileLogs(directory), url, lease=lease, patience=patience)


async def test_a_run_goes_on_on_another_disk(url: str, tmp_path: Path) -> None:
    one, other = logs(url, tmp_path / "one"), logs(url, tmp_path / "other")
    async with one.open(RUN) as log:
        await log.append(told("here"))
    async with other.open(RUN) as log:
        assert list(log.trajectory) == [told("here")]
        await log.append(told("there"))
    async with one.open(RUN) as log:
        assert list(log.trajectory) == [told("here"), told("there")]
    assert one.read(RUN).entries == other.read(RUN).entries


async def test_a_living_writer_is_not_disturbed_and_a_dead_one_is_succeeded(url: str, tmp_path: Path) -> None:
    one, other = logs(url, tmp_path / "one", lease=3), logs(url, tmp_path / "other", patience=1)
    redis = redis_client(url)
    async with one.open(RUN) as log:
        await log.append(told("here"))
        with pytest.raises(LogError, match="Another process is working on the run"):
            async with other.open(RUN):
                pass
        await redis.delete(f"patchwright:writer:{RUN}")  # as if it had been stopped for longer than its lease
        async with other.open(RUN) as successor:
            await successor.append(told("there"))
            with pytest.raises(LogError, match="Another worker has gone on with the run"):
                await log.append(told("a ghost"))
            assert list(successor.trajectory) == [told("here"), told("there")]
    async with one.open(RUN) as log:
        assert list(log.trajectory) == [told("here"), told("there")]
    await redis.aclose()


async def test_redis_may_be_wiped_in_the_middle_of_a_run(url: str, tmp_path: Path) -> None:
    one, other = logs(url, tmp_path / "one"), logs(url, tmp_path / "other")
    redis = redis_client(url)
    async with one.open(RUN) as log:
        await log.append(told("before"))
        await redis.flushall()
        await log.append(told("after"))
        assert await redis.xlen(stream_of(RUN)) == 2
    await redis.flushall()
    async with one.open(RUN) as log:
        assert list(log.trajectory) == [told("before"), told("after")]
    async with other.open(RUN) as log:
        assert list(log.trajectory) == [told("before"), told("after")]
    await redis.aclose()


async def test_a_run_goes_on_while_redis_is_away_and_catches_up(short_tmp: Path) -> None:
    async with embedded_redis(short_tmp) as url:
        one = logs(url, short_tmp / "runs")
        async with one.open(RUN) as log:
            await log.append(told("with"))
    nobody = logs(f"unix://{short_tmp}/nobody.sock", short_tmp / "runs")
    async with nobody.open(RUN) as log:
        await log.append(told("without"))
    async with embedded_redis(short_tmp) as url:
        again = logs(url, short_tmp / "runs")
        async with again.open(RUN) as log:
            await log.append(told("with again"))
        other = logs(url, short_tmp / "elsewhere")
        async with other.open(RUN) as log:
            assert list(log.trajectory) == [told("with"), told("without"), told("with again")]


async def test_what_another_machine_has_done_can_be_read_here(url: str, tmp_path: Path) -> None:
    one, other = logs(url, tmp_path / "one"), logs(url, tmp_path / "other")
    with pytest.raises(LogError, match="There is no run"):
        other.read(RUN)
    async with one.open(RUN) as log:
        await log.append(told("here"))
    assert list(other.read(RUN)) == [told("here")]
    async with other.open(RUN) as log:
        await log.append(told("there"))
    assert list(one.read(RUN)) == [told("here"), told("there")]
    nobody = logs("unix:///nowhere.sock", tmp_path / "one")
    assert list(nobody.read(RUN)) == [told("here")]  # what is on this disk, while Redis is away
    for store in (one, other, nobody):
        await store.close()


async def test_a_line_of_another_version_is_an_error_in_one_sentence(url: str, tmp_path: Path) -> None:
    here, redis = logs(url, tmp_path), redis_client(url)
    await redis.xadd(
        stream_of(RUN), {"entry": '{"seq": 0, "at": "2026-01-01", "event": {"kind": "of tomorrow"}}'}
    )
    for broken in (here.read, lambda run: here.open(run).__aenter__()):
        with pytest.raises(LogError, match="Redis has a line that is not an event of this version"):
            found = broken(RUN)
            await found
    await here.close()
    await redis.aclose()
