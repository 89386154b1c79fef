"""What has ended is kept for good, on a disk or in an S3, before Redis forgets it; and is read from there again."""

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

from bot.errors import ArchiveDown
from bot.observe.archive import Archive, Archivist, Kept
from bot.redis.client import redis_client
from bot.redis.log import KEPT_SECONDS, UNARCHIVED, SharedLogs, stream_of
from resolver.domain import RunId
from resolver.errors import LogError, SettingsError
from resolver.events import Told, Trajectory
from resolver.log import FileLogs, trajectory_of
from tests.bot.terminal.test_runs import patchwright
from tests.resolver.seen_runs import started

RUN = RunId("acme-7")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A server of S3 over HTTP, with the bucket `runs`."""
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
                assert server.poll() is None, "the S3 has not begun"
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


def told(text: str) -> Told:
    return Told(text=text, source="program")


async def worked(logs: SharedLogs, *words: str) -> None:
    async with logs.open(RUN) as log:
        for word in words:
            await log.append(told(word))


async def test_what_has_ended_is_archived_and_goes_on_from_there_when_redis_has_forgotten_it(
    archive: Archive, url: str, tmp_path: Path
) -> None:
    here = FileLogs(tmp_path / "one")
    logs, redis = SharedLogs(here, url, archive.read), redis_client(url)
    archivist = Archivist(logs, here, archive, quiet=0)
    async with logs.open(RUN) as log:
        await log.append(told("first"))
        assert await archivist.sweep() == 0  # somebody works on it
    assert await redis.ttl(stream_of(RUN)) == -1
    assert await archivist.sweep() == 1
    assert await redis.zcard(UNARCHIVED) == 0
    assert 0 < await redis.ttl(stream_of(RUN)) <= KEPT_SECONDS

    await redis.delete(stream_of(RUN))  # as a day later
    elsewhere = FileLogs(tmp_path / "other")
    others = SharedLogs(elsewhere, url, archive.read)
    assert list(others.read(RUN)) == [told("first")]
    await worked(others, "second")
    assert list(elsewhere.read(RUN)) == [told("first"), told("second")]
    assert await Archivist(others, elsewhere, archive, quiet=0).sweep() == 1
    assert archive.read(RUN).entries == elsewhere.read(RUN).entries
    for store in (logs, others):
        await store.close()
    await redis.aclose()


async def test_what_is_there_is_listed_and_what_is_not_is_said(archive: Archive) -> None:
    assert list(archive.listed()) == []
    with pytest.raises(LogError, match="There is no run `acme-7` in the archive"):
        archive.read(RUN)
    archive.keep(RUN, b"")
    archive.keep(RunId("acme-8"), b'{"seq": 0}\n')
    assert sorted(run for run, _ in archive.listed()) == ["acme-7", "acme-8"]
    with pytest.raises(LogError, match="line 1 is not an event of this version"):
        archive.read(RunId("acme-8"))


async def test_a_shorter_log_takes_the_name_of_a_longer_one_and_not_its_place(
    archive: Archive, url: str, tmp_path: Path
) -> None:
    here = FileLogs(tmp_path / "one")
    logs = SharedLogs(here, url)
    await worked(logs, "first", "second")
    await Archivist(logs, here, archive, quiet=0).sweep()
    await logs.close()
    first = archive.read(RUN)
    archive.keep(RUN, b"")
    assert list(archive.read(RUN)) == []
    assert [run for run, _ in archive.listed()] == [RUN]
    size = len((tmp_path / "one" / RUN / "events.jsonl").read_bytes())
    kept = archive._files.cat_file(f"{archive._root}/{RUN}/longer-{size}.jsonl")
    assert trajectory_of(kept, "kept").entries == first.entries


async def test_an_archive_that_hangs_holds_no_run_up_for_long(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone_on = threading.Event()

    def hanging(run: RunId) -> Trajectory:
        gone_on.wait(60)
        raise LogError("too late")

    logs = SharedLogs(FileLogs(tmp_path), url, hanging, archive_wait=0.2)
    try:
        await worked(logs, "first")
    finally:
        gone_on.set()
    assert list(logs.read(RUN)) == [told("first")]
    assert [one.message for one in caplog.records] == ["the archive does not answer, so a run begins anew"]
    await logs.close()


@pytest.mark.parametrize("name", ["../acme", "a/b", "", ".", "..", "a\nb", "a" * 300])
async def test_a_name_that_leads_elsewhere_is_none(archive: Archive, name: str, tmp_path: Path) -> None:
    with pytest.raises(LogError, match="is not a run's name"):
        archive.keep(RunId(name), b"x")
    with pytest.raises(LogError, match="is not a run's name"):
        archive.read(RunId(name))
    with pytest.raises(LogError, match="is not a run's name"):
        Kept(FileLogs(tmp_path), archive).read(RunId(name))


async def test_what_the_archive_does_not_take_stays_in_redis_and_is_tried_again(
    url: str, tmp_path: Path
) -> None:
    (tmp_path / "archive").write_text("a file where a directory should be")
    here, archive = FileLogs(tmp_path / "one"), Archive(f"file://{tmp_path}/archive")
    logs, redis = SharedLogs(here, url, archive.read), redis_client(url)
    archivist = Archivist(logs, here, archive, quiet=0)
    await worked(logs, "first")
    assert await archivist.sweep() == 0
    assert (await redis.ttl(stream_of(RUN)), await redis.zcard(UNARCHIVED)) == (-1, 1)
    with pytest.raises(ArchiveDown, match="does not take acme-7"):
        archive.keep(RUN, b"")
    (tmp_path / "archive").unlink()
    assert await archivist.sweep() == 1
    assert list(archive.read(RUN)) == [told("first")]
    await logs.close()
    await redis.aclose()


async def test_a_line_that_comes_while_a_run_is_archived_is_not_forgotten(url: str, tmp_path: Path) -> None:
    logs, redis = SharedLogs(FileLogs(tmp_path), url), redis_client(url)
    await worked(logs, "first")
    count = len(await logs.lines(RUN))
    await worked(logs, "second")
    assert not await logs.let_go(RUN, count)
    assert await logs.let_go(RUN, count + 1)
    assert await redis.ttl(stream_of(RUN)) > 0
    await worked(logs, "third")  # it goes on: its lines are nowhere else again
    assert (await redis.ttl(stream_of(RUN)), await redis.zcard(UNARCHIVED)) == (-1, 1)
    await logs.close()
    await redis.aclose()


async def test_without_an_archive_the_disk_of_its_worker_keeps_a_run_or_another_when_that_is_gone(
    url: str, tmp_path: Path
) -> None:
    one, other = FileLogs(tmp_path / "one"), FileLogs(tmp_path / "other")
    mine, others, redis = SharedLogs(one, url), SharedLogs(other, url), redis_client(url)
    await worked(mine, "first")
    assert await Archivist(others, other, None, quiet=0).sweep() == 0  # its own worker will
    assert await Archivist(mine, one, None, quiet=0).sweep() == 1
    await worked(mine, "second")
    await redis.zadd(UNARCHIVED, {RUN: 1})  # of long ago: its worker is gone
    assert await Archivist(others, other, None, quiet=0).sweep() == 1
    assert other.read(RUN).entries == one.read(RUN).entries
    for store in (mine, others):
        await store.close()
    await redis.aclose()


async def test_the_commands_read_what_only_the_archive_has(tmp_path: Path) -> None:
    keeper, archive = FileLogs(tmp_path / "elsewhere"), Archive(f"file://{tmp_path}/archive")
    async with keeper.open(RUN) as log:
        await log.append(started())
    archive.keep(RUN, (tmp_path / "elsewhere" / RUN / "events.jsonl").read_bytes())
    assert (tmp_path / "archive" / RUN).stat().st_mode & 0o077 == 0
    (tmp_path / "archive" / "no run").mkdir()
    (tmp_path / "patchwright.toml").write_text(f'archive = "file://{tmp_path}/archive"\n')
    config = ("--config", str(tmp_path / "patchwright.toml"))

    listed = json.loads(patchwright(tmp_path, "runs", "--json", *config).stdout)
    assert [(one["run"], one["state"]) for one in listed["runs"]] == [(RUN, "stopped")]
    exported = patchwright(tmp_path, "export", RUN, *config)
    assert json.loads(exported.stdout)["event"]["kind"] == "started"
    viewed = patchwright(tmp_path, "view", RUN, *config)
    assert Path(viewed.stdout.strip()).read_text().startswith("<!doctype html>")
    assert patchwright(tmp_path, "export", "another", *config).returncode != 0


@pytest.mark.parametrize(
    ("url", "words"),
    [("nothing://x", "nothing cannot be used"), ("abfs://x/y", "abfs cannot be used")],
)
def test_an_archive_that_cannot_be_is_a_setting_to_correct(url: str, words: str) -> None:
    with pytest.raises(SettingsError, match=f"PATCHWRIGHT_ARCHIVE: {words}"):
        Archive(url)


def test_fsspec_is_imported_only_for_an_archive() -> None:
    code = "import bot.observe.archive, bot.redis.log, bot.compose, sys; print('fsspec' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
