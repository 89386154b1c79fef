"""The file log after every kind of end."""

import inspect
import json
import logging
import multiprocessing
import multiprocessing.synchronize
import re
import resource
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import ENTRY_ADAPTER, Entry, Event, Message
from patchwright.resolver.run_log import FileLogStore, FileRunLog, RunLog
from tests.resolver.sample_runs import every_event

RUN = RunId("o-r-7")


def message(text: str) -> Message:
    return Message(text=text, source="program")


@pytest.fixture
def logs(tmp_path: Path) -> FileLogStore:
    return FileLogStore(tmp_path / "runs")


async def test_a_log_is_one_json_line_per_entry_in_a_private_directory(logs: FileLogStore) -> None:
    async with logs.open(RUN) as log:
        first = await log.append(message("one\ntwo\r\u2028three"))
        await log.append(message("four"))
    lines = (logs.run_directory(RUN) / "events.jsonl").read_text().split("\n")
    assert [json.loads(line)["seq"] for line in lines[:-1]] == [0, 1]
    assert Entry.model_validate_json(lines[0]) == first
    assert stat.S_IMODE(logs.run_directory(RUN).stat().st_mode) == 0o700
    assert stat.S_IMODE((logs.run_directory(RUN) / "events.jsonl").stat().st_mode) == 0o600


def test_a_message_of_a_log_without_authors_has_none() -> None:
    line = '{"seq":3,"timestamp":"2026-01-01T00:00:00Z","event":{"kind":"message","text":"Go.","source":"comment"}}'
    assert Entry.model_validate_json(line).event == Message(text="Go.", source="comment", author="")


@pytest.mark.parametrize("torn", [b'{"seq":2,"at":"20', b"\0" * 40 + b"\n", b"\0" * 40])
async def test_an_incomplete_last_line_is_removed_and_logged(
    logs: FileLogStore, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with logs.open(RUN) as log:
        await log.append(message("kept"))
        await log.append(message("kept too"))
    path = logs.run_directory(RUN) / "events.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    with caplog.at_level(logging.WARNING):
        async with logs.open(RUN) as log:
            assert path.read_bytes() == whole
            await log.append(message("next"))
    assert [r.message for r in caplog.records] == ["incomplete log line removed"]
    assert [e.event for e in logs.read(RUN).entries] == [
        message("kept"),
        message("kept too"),
        message("next"),
    ]


async def test_a_last_line_without_a_line_break_is_incomplete(logs: FileLogStore) -> None:
    async with logs.open(RUN) as log:
        await log.append(message("one"))
        await log.append(message("two"))
    path = logs.run_directory(RUN) / "events.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    async with logs.open(RUN) as log:
        assert list(log.trajectory) == [message("one")]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda lines: [lines[0], b"nonsense\n", lines[1]], "line 2 is not an event"),
        (lambda lines: [lines[1], lines[0]], "line 1 has entry number 1, expected 0"),
        (
            lambda lines: [
                *lines,
                b'{"seq":2,"timestamp":"2026-01-01T00:00:00Z","event":{"kind":"flown"}}\n',
            ],
            "line 3 .*'flown'",
        ),
        (lambda lines: [*lines, lines[1]], "line 3 has entry number 1, expected 2"),
    ],
)
async def test_other_damage_is_an_error_and_the_file_stays_unchanged(
    logs: FileLogStore, damage: Callable[[list[bytes]], list[bytes]], says: str
) -> None:
    async with logs.open(RUN) as log:
        await log.append(message("one"))
        await log.append(message("two"))
    path = logs.run_directory(RUN) / "events.jsonl"
    damaged = b"".join(damage(path.read_bytes().splitlines(keepends=True)))
    path.write_bytes(damaged)
    with pytest.raises(LogError, match=says):
        async with logs.open(RUN):
            pass
    assert path.read_bytes() == damaged


def test_a_log_has_no_method_that_deletes_or_replaces_an_event() -> None:
    assert {name for name, _ in inspect.getmembers(RunLog) if not name.startswith("_")} == {
        "append",
        "check_ownership",
        "trajectory",
    }


def count_written_bytes() -> int:
    """Returns how many bytes this process has written so far."""
    (count,) = re.findall(r"^wchar: (\d+)$", Path("/proc/self/io").read_text(), re.MULTILINE)
    return int(count)


async def test_an_append_adds_one_line_and_keeps_the_bytes_before_it(logs: FileLogStore) -> None:
    async with logs.open(RUN) as log:
        path = logs.run_directory(RUN) / "events.jsonl"
        inode, already_written = path.stat().st_ino, count_written_bytes()
        for number in range(50):
            before = path.read_bytes()
            entry = await log.append(message(f"number {number}"))
            assert path.read_bytes() == before + entry.model_dump_json().encode() + b"\n"
        assert path.stat().st_ino == inode
        assert count_written_bytes() - already_written < 2 * path.stat().st_size
        assert [file.name for file in path.parent.iterdir()] == ["events.jsonl"]


def test_there_is_a_sample_of_every_kind_of_event() -> None:
    assert set(every_event()) == set(get_args(get_args(Event)[0]))


@pytest.mark.parametrize("event", every_event().values(), ids=lambda event: str(event.kind))
def test_every_kind_of_event_survives_json_and_cannot_be_changed(event: Event) -> None:
    entry = Entry(seq=0, timestamp=datetime.now(UTC), event=event)
    again = ENTRY_ADAPTER.validate_json(entry.model_dump_json())
    assert again == entry
    assert type(again.event) is type(event)
    with pytest.raises(ValidationError, match="frozen"):
        setattr(again.event, "kind", "other")  # noqa: B010  # mypy knows that the field is frozen.


def _hold(
    path: Path, held: "multiprocessing.synchronize.Event", done: "multiprocessing.synchronize.Event"
) -> None:
    log = FileRunLog(path)
    held.set()
    done.wait(30)
    log.close()


async def test_a_killed_process_releases_the_log(logs: FileLogStore) -> None:
    async with logs.open(RUN) as log:
        await log.append(message("one"))
    spawn = multiprocessing.get_context("spawn")
    held, done = spawn.Event(), spawn.Event()
    process = spawn.Process(target=_hold, args=(logs.run_directory(RUN) / "events.jsonl", held, done))
    process.start()
    assert held.wait(30)
    with pytest.raises(LogError):
        async with logs.open(RUN):
            pass
    process.kill()
    process.join(30)
    async with logs.open(RUN) as log:
        assert len(log.trajectory) == 1


async def test_a_full_disk_leaves_the_log_as_it_was(logs: FileLogStore) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with logs.open(RUN) as log:
        await log.append(message("one"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            with pytest.raises(LogError, match="cannot be written: File too large"):
                await log.append(message("two" * 1000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert list(log.trajectory) == [message("one")]
        await log.append(message("three"))
    assert list(logs.read(RUN)) == [message("one"), message("three")]


async def test_a_closed_log_cannot_be_written(tmp_path: Path) -> None:
    log = FileRunLog(tmp_path / "events.jsonl")
    log.close()
    log.close()
    with pytest.raises(LogError, match="closed"):
        await log.append(message("one"))


async def test_a_run_that_does_not_exist_cannot_be_read(logs: FileLogStore) -> None:
    with pytest.raises(LogError, match="There is no run `o-r-7`"):
        logs.read(RUN)
