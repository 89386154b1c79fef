"""Ended runs are archived on a disk or in S3 before Redis drops them, and can be read from there."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from patchwright.bot.errors import ArchiveDown
from patchwright.bot.observe.archive import Archive, Archiver, StoredRuns
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.shared_run_log import RETENTION_SECONDS, UNARCHIVED_KEY, SharedLogStore, stream_key
from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import LogError, SettingsError
from patchwright.resolver.events import Message, Trajectory
from patchwright.resolver.run_log import FileLogStore, parse_trajectory
from tests.bot.commands.test_inspect_commands import patchwright
from tests.resolver.sample_runs import started

RUN = RunId("acme-7")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Runs an S3 server over HTTP with the bucket `runs`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            try:
                if httpx.put(f"{address}/runs", headers={"authorization": S3_USER}).status_code == 200:
                    break
            except httpx.HTTPError:
                assert server.poll() is None, "the S3 server has not started"
            time.sleep(0.1)
        yield address
    finally:
        server.kill()
        server.wait()


S3_USER = (
    "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
)


@pytest.fixture(params=["file", "s3"])
def archive(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    if request.param == "file":
        return Archive(f"file://{tmp_path}/archive")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", request.getfixturevalue("s3"))
    return Archive(f"s3://runs/{tmp_path.name}")


def message(text: str) -> Message:
    return Message(text=text, source="program")


async def write_run(logs: SharedLogStore, *words: str) -> None:
    async with logs.open(RUN) as log:
        for word in words:
            await log.append(message(word))


@pytest.mark.slow
async def test_an_ended_run_is_archived_and_can_continue_from_the_archive(
    archive: Archive, url: str, tmp_path: Path
) -> None:
    local_logs = FileLogStore(tmp_path / "one")
    logs, redis = SharedLogStore(local_logs, url, archive.read), redis_client(url)
    archiver = Archiver(logs, local_logs, archive, idle_seconds=0)
    async with logs.open(RUN) as log:
        await log.append(message("first"))
        assert await archiver.sweep() == 0  # the run still has a writer
    assert await redis.ttl(stream_key(RUN)) == -1
    assert await archiver.sweep() == 1
    assert await redis.zcard(UNARCHIVED_KEY) == 0
    assert 0 < await redis.ttl(stream_key(RUN)) <= RETENTION_SECONDS

    await redis.delete(stream_key(RUN))  # as Redis does a day later
    elsewhere = FileLogStore(tmp_path / "other")
    others = SharedLogStore(elsewhere, url, archive.read)
    assert list(others.read(RUN)) == [message("first")]
    await write_run(others, "second")
    assert list(elsewhere.read(RUN)) == [message("first"), message("second")]
    assert await Archiver(others, elsewhere, archive, idle_seconds=0).sweep() == 1
    assert archive.read(RUN).entries == elsewhere.read(RUN).entries
    for store in (logs, others):
        await store.close()
    await redis.aclose()


@pytest.mark.slow
async def test_archived_runs_are_listed_and_missing_ones_raise_an_error(archive: Archive) -> None:
    assert list(archive.list_runs()) == []
    with pytest.raises(LogError, match="There is no run `acme-7` in the archive"):
        archive.read(RUN)
    archive.store(RUN, b"")
    archive.store(RunId("acme-8"), b'{"seq": 0}\n')
    assert sorted(run for run, _ in archive.list_runs()) == ["acme-7", "acme-8"]
    with pytest.raises(LogError, match="line 1 is not an event of this version"):
        archive.read(RunId("acme-8"))


async def test_a_shorter_log_does_not_overwrite_a_longer_one(
    archive: Archive, url: str, tmp_path: Path
) -> None:
    local_logs = FileLogStore(tmp_path / "one")
    logs = SharedLogStore(local_logs, url)
    await write_run(logs, "first", "second")
    await Archiver(logs, local_logs, archive, idle_seconds=0).sweep()
    await logs.close()
    first = archive.read(RUN)
    archive.store(RUN, b"")
    assert list(archive.read(RUN)) == []
    assert [run for run, _ in archive.list_runs()] == [RUN]
    size = len((tmp_path / "one" / RUN / "events.jsonl").read_bytes())
    content = archive._filesystem.cat_file(f"{archive._root}/{RUN}/longer-{size}.jsonl")
    assert parse_trajectory(content, "kept").entries == first.entries


async def test_a_hanging_archive_does_not_delay_a_run_for_long(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    released = threading.Event()

    def hanging(run: RunId) -> Trajectory:
        released.wait(60)
        raise LogError("too late")

    logs = SharedLogStore(FileLogStore(tmp_path), url, hanging, archive_wait=0.2)
    try:
        await write_run(logs, "first")
    finally:
        released.set()
    assert list(logs.read(RUN)) == [message("first")]
    assert [record.message for record in caplog.records] == ["archive unavailable, run starts over"]
    await logs.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../acme", "a/b", "", ".", "..", "a\nb", "a" * 300])
async def test_the_archive_rejects_run_names_that_are_paths(
    archive: Archive, name: str, tmp_path: Path
) -> None:
    with pytest.raises(LogError, match="is not a valid name of a run"):
        archive.store(RunId(name), b"x")
    with pytest.raises(LogError, match="is not a valid name of a run"):
        archive.read(RunId(name))
    with pytest.raises(LogError, match="is not a valid name of a run"):
        StoredRuns(FileLogStore(tmp_path), archive).read(RunId(name))


async def test_a_run_that_could_not_be_archived_stays_in_redis_and_is_retried(
    url: str, tmp_path: Path
) -> None:
    (tmp_path / "archive").write_text("a file where a directory should be")
    local_logs, archive = FileLogStore(tmp_path / "one"), Archive(f"file://{tmp_path}/archive")
    logs, redis = SharedLogStore(local_logs, url, archive.read), redis_client(url)
    archiver = Archiver(logs, local_logs, archive, idle_seconds=0)
    await write_run(logs, "first")
    assert await archiver.sweep() == 0
    assert (await redis.ttl(stream_key(RUN)), await redis.zcard(UNARCHIVED_KEY)) == (-1, 1)
    with pytest.raises(ArchiveDown, match="acme-7 could not be archived"):
        archive.store(RUN, b"")
    (tmp_path / "archive").unlink()
    assert await archiver.sweep() == 1
    assert list(archive.read(RUN)) == [message("first")]
    await logs.close()
    await redis.aclose()


@pytest.mark.slow
async def test_a_line_appended_during_archiving_is_not_lost(url: str, tmp_path: Path) -> None:
    logs, redis = SharedLogStore(FileLogStore(tmp_path), url), redis_client(url)
    await write_run(logs, "first")
    count = len(await logs.read_lines(RUN))
    await write_run(logs, "second")
    assert not await logs.expire_stream(RUN, count)
    assert await logs.expire_stream(RUN, count + 1)
    assert await redis.ttl(stream_key(RUN)) > 0
    await write_run(logs, "third")  # the run continues, so it is not archived completely
    assert (await redis.ttl(stream_key(RUN)), await redis.zcard(UNARCHIVED_KEY)) == (-1, 1)
    await logs.close()
    await redis.aclose()


async def test_without_an_archive_a_workers_disk_stores_the_run(url: str, tmp_path: Path) -> None:
    one, other = FileLogStore(tmp_path / "one"), FileLogStore(tmp_path / "other")
    mine, others, redis = SharedLogStore(one, url), SharedLogStore(other, url), redis_client(url)
    await write_run(mine, "first")
    assert await Archiver(others, other, None, idle_seconds=0).sweep() == 0  # left to the run's own worker
    assert await Archiver(mine, one, None, idle_seconds=0).sweep() == 1
    await write_run(mine, "second")
    await redis.zadd(UNARCHIVED_KEY, {RUN: 1})  # long ago, so its worker counts as gone
    assert await Archiver(others, other, None, idle_seconds=0).sweep() == 1
    assert other.read(RUN).entries == one.read(RUN).entries
    for store in (mine, others):
        await store.close()
    await redis.aclose()


@pytest.mark.slow
async def test_commands_read_runs_that_are_only_in_the_archive(tmp_path: Path) -> None:
    other_logs, archive = FileLogStore(tmp_path / "elsewhere"), Archive(f"file://{tmp_path}/archive")
    async with other_logs.open(RUN) as log:
        await log.append(started())
    archive.store(RUN, (tmp_path / "elsewhere" / RUN / "events.jsonl").read_bytes())
    assert (tmp_path / "archive" / RUN).stat().st_mode & 0o077 == 0
    (tmp_path / "archive" / "no run").mkdir()
    (tmp_path / "patchwright.toml").write_text(f'archive = "file://{tmp_path}/archive"\n')
    config = ("--config", str(tmp_path / "patchwright.toml"))

    listed = json.loads(patchwright(tmp_path, "runs", "--json", *config).stdout)
    assert [(run["run"], run["state"]) for run in listed["runs"]] == [(RUN, "stopped")]
    exported = patchwright(tmp_path, "export", RUN, *config)
    assert json.loads(exported.stdout)["event"]["kind"] == "run_started"
    viewed = patchwright(tmp_path, "view", RUN, *config)
    assert Path(viewed.stdout.strip()).read_text().startswith("<!doctype html>")
    assert patchwright(tmp_path, "export", "another", *config).returncode != 0


@pytest.mark.parametrize(
    ("url", "words"),
    [("nothing://x", "cannot use nothing: "), ("abfs://x/y", "cannot use abfs: ")],
)
def test_an_unusable_archive_url_is_a_settings_error(url: str, words: str) -> None:
    with pytest.raises(SettingsError, match=f"PATCHWRIGHT_ARCHIVE {words}"):
        Archive(url)


@pytest.mark.slow
def test_fsspec_is_imported_only_for_an_archive() -> None:
    code = (
        "import patchwright.bot.observe.archive, patchwright.bot.redis.shared_run_log\n"
        "import patchwright.bot.composition.composition_root, sys\n"
        "print('fsspec' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
