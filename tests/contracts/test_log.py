"""What every log of runs does, wherever it keeps them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.embedded import embedded_redis
from bot.redis.log import SharedLogs
from resolver.domain import Patch, RunId
from resolver.errors import LogError
from resolver.events import Call, Checkpointed, Decided, Ended, Entry, Event, Observed, Told, Usage
from resolver.log import FileLogs, Logs
from runtime.actions import ReplaceText
from runtime.observations import Viewed

RUN = RunId("o-r-7")


def told(text: str) -> Told:
    return Told(text=text, source="program")


@pytest.fixture(params=["file", pytest.param("redis", marks=pytest.mark.redis)])
async def logs(request: pytest.FixtureRequest, short_tmp: Path) -> AsyncIterator[Logs]:
    files = FileLogs(short_tmp / "runs")
    if request.param == "file":
        yield files
        return
    async with embedded_redis(short_tmp) as url:
        shared = SharedLogs(files, url, patience=0)
        yield shared
        await shared.close()


async def events(logs: Logs) -> list[Event]:
    async with logs.open(RUN) as log:
        return list(log.trajectory)


async def test_a_run_reads_back_as_it_was_written(logs: Logs) -> None:
    edit = ReplaceText(path="a\u2028.py", old="\r\n", new="\0 \N{SNOWMAN}")
    written: list[Event] = [
        told("one\ntwo"),
        Decided(
            thought="", calls=(Call(id="c", action=edit),), usage=Usage(model="m"), reasoning=({"a": [1]},)
        ),
        Observed(call="c", observation=Viewed(text="x" * 100_000)),
        Checkpointed(patch=Patch(base="b" * 40, diff=bytes(range(256)))),
        Ended(reason="finished", detail="Done."),
    ]
    async with logs.open(RUN) as log:
        entries = [await log.append(event) for event in written]
        assert list(log.trajectory.entries) == entries
    async with logs.open(RUN) as log:
        assert list(log.trajectory.entries) == entries
        assert list(log.trajectory) == written
        last = await log.append(told("more"))
    assert last.seq == len(written)
    assert [entry.seq for entry in entries] == [0, 1, 2, 3, 4]


async def test_runs_are_kept_apart(logs: Logs) -> None:
    async with logs.open(RUN) as one, logs.open(RunId("o-r-8")) as other:
        await one.append(told("one"))
        assert len(other.trajectory) == 0


async def test_a_second_writer_is_refused_in_one_sentence(logs: Logs) -> None:
    async with logs.open(RUN):
        with pytest.raises(LogError, match=r"^Another process is working on the run in .*\.$"):
            async with logs.open(RUN):
                pass


async def test_listeners_hear_every_new_entry_in_order_once(logs: Logs) -> None:
    async with logs.open(RUN) as log:
        await log.append(told("old"))
    heard: list[str] = []
    async with logs.open(
        RUN, [lambda e: heard.append(f"a{e.seq}"), lambda e: heard.append(f"b{e.seq}")]
    ) as log:
        await log.append(told("new"))
        await log.append(told("newer"))
    assert heard == ["a1", "b1", "a2", "b2"]


async def test_a_listener_that_raises_loses_neither_the_event_nor_the_others(logs: Logs) -> None:
    heard: list[Entry] = []

    def broken(entry: Entry) -> None:
        raise OSError("no space for the progress page")

    async with logs.open(RUN, [broken, heard.append]) as log:
        with pytest.raises(OSError, match="progress page"):
            await log.append(told("one"))
        assert list(log.trajectory) == [told("one")]
    assert [entry.event for entry in heard] == [told("one")]
    assert await events(logs) == [told("one")]


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a\nb", "x" * 201])
async def test_a_run_name_that_is_a_path_is_refused(logs: Logs, name: str) -> None:
    with pytest.raises(LogError, match="not a run's name"):
        async with logs.open(RunId(name)):
            pass
