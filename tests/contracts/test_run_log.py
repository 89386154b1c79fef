"""The contract of all run logs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.shared_run_log import SharedLogStore
from patchwright.resolver.domain import Patch, RunId
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import (
    AgentStopped,
    Checkpoint,
    Entry,
    Event,
    Message,
    ModelReply,
    ReplyUsage,
    ToolCall,
    ToolResult,
)
from patchwright.resolver.run_log import FileLogStore, LogStore
from patchwright.runtime.actions import ReplaceText
from patchwright.runtime.observations import TextResult

RUN = RunId("o-r-7")


def message(text: str) -> Message:
    return Message(text=text, source="program")


@pytest.fixture(params=["file", pytest.param("redis", marks=pytest.mark.redis)])
async def logs(request: pytest.FixtureRequest, short_tmp: Path) -> AsyncIterator[LogStore]:
    files = FileLogStore(short_tmp / "runs")
    if request.param == "file":
        yield files
        return
    async with run_embedded_redis(short_tmp) as url:
        shared = SharedLogStore(files, url, lease_wait=0)
        yield shared
        await shared.close()


async def events(logs: LogStore) -> list[Event]:
    async with logs.open(RUN) as log:
        return list(log.trajectory)


async def test_a_run_reads_back_as_it_was_written(logs: LogStore) -> None:
    edit = ReplaceText(path="a\u2028.py", old="\r\n", new="\0 \N{SNOWMAN}")
    written: list[Event] = [
        message("one\ntwo"),
        ModelReply(
            thought="",
            calls=(ToolCall(id="c", action=edit),),
            usage=ReplyUsage(model="m"),
            reasoning=({"a": [1]},),
        ),
        ToolResult(call_id="c", observation=TextResult(text="x" * 100_000)),
        Checkpoint(patch=Patch(base_sha="b" * 40, diff=bytes(range(256)))),
        AgentStopped(reason="finished", detail="Done."),
    ]
    async with logs.open(RUN) as log:
        entries = [await log.append(event) for event in written]
        assert list(log.trajectory.entries) == entries
    async with logs.open(RUN) as log:
        assert list(log.trajectory.entries) == entries
        assert list(log.trajectory) == written
        last = await log.append(message("more"))
    assert last.seq == len(written)
    assert [entry.seq for entry in entries] == [0, 1, 2, 3, 4]


async def test_runs_are_separate(logs: LogStore) -> None:
    async with logs.open(RUN) as one, logs.open(RunId("o-r-8")) as other:
        await one.append(message("one"))
        assert len(other.trajectory) == 0


async def test_a_second_writer_is_rejected(logs: LogStore) -> None:
    async with logs.open(RUN):
        with pytest.raises(LogError, match=r"^Another process is working on the run in .*\.$"):
            async with logs.open(RUN):
                pass


async def test_listeners_receive_every_new_entry_once_in_order(logs: LogStore) -> None:
    async with logs.open(RUN) as log:
        await log.append(message("old"))
    received: list[str] = []
    async with logs.open(
        RUN, [lambda e: received.append(f"a{e.seq}"), lambda e: received.append(f"b{e.seq}")]
    ) as log:
        await log.append(message("new"))
        await log.append(message("newer"))
    assert received == ["a1", "b1", "a2", "b2"]


async def test_a_listener_that_raises_affects_neither_the_event_nor_other_listeners(logs: LogStore) -> None:
    received: list[Entry] = []

    def broken(entry: Entry) -> None:
        raise OSError("no space for the progress page")

    async with logs.open(RUN, [broken, received.append]) as log:
        with pytest.raises(OSError, match="progress page"):
            await log.append(message("one"))
        assert list(log.trajectory) == [message("one")]
    assert [entry.event for entry in received] == [message("one")]
    assert await events(logs) == [message("one")]


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a\nb", "x" * 201])
async def test_a_run_name_that_is_a_path_is_rejected(logs: LogStore, name: str) -> None:
    with pytest.raises(LogError, match="not a valid name of a run"):
        async with logs.open(RunId(name)):
            pass
