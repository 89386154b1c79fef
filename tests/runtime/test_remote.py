"""A hostile or broken machine behind the wire."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from runtime.actions import RunShell
from runtime.errors import ProtocolBroken, SandboxLost
from runtime.observations import Ran
from runtime.remote import Door, RemoteSandbox
from runtime.sandbox import on_behalf_of
from runtime.wire import KEY, SOCKET, VERSION, Answer, Hello, Request, receive, send

RAN = Ran(output="hi\n", exit_code=0, cwd="/w", seconds=0.1)
ECHO = RunShell(command="echo hi", timeout=1)
Reply = Callable[[Request], bytes]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def honest(request: Request) -> bytes:
    return framed(Answer(id=request.id, observation=RAN).model_dump_json().encode())


@pytest.fixture
async def door(short_tmp: Path) -> AsyncIterator[Door]:
    async with Door.open(short_tmp) as door:
        yield door


@pytest.fixture
async def dial(door: Door, short_tmp: Path) -> AsyncIterator[Callable[[Reply], asyncio.Task[None]]]:
    """Starts a machine that knows the key and answers each request in its own way."""
    key = (short_tmp / KEY).read_text()
    machines: list[asyncio.Task[None]] = []

    async def machine(reply: Reply) -> None:
        reader, writer = await asyncio.open_unix_connection(short_tmp / SOCKET)
        await send(writer, Hello(version=VERSION, key=key))
        try:
            while True:
                request = Request.model_validate_json(await receive(reader, 1 << 20))
                writer.write(reply(request))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def start(reply: Reply) -> asyncio.Task[None]:
        machines.append(asyncio.create_task(machine(reply)))
        return machines[-1]

    yield start
    for each in machines:
        each.cancel()


@pytest.fixture
def sandbox(door: Door) -> RemoteSandbox:
    return RemoteSandbox(door, "/w", "/tmp", slack=0.5)


def finite(request: Request, seconds: bytes) -> bytes:
    """The honest answer with this number in it."""
    body = honest(request)[4:].replace(b'"seconds":%s' % str(RAN.seconds).encode(), b'"seconds":' + seconds)
    return framed(body)


async def test_an_honest_machine_is_heard(sandbox: RemoteSandbox, dial) -> None:
    dial(honest)
    assert [await sandbox.act(ECHO) for _ in range(3)] == [RAN] * 3


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (lambda _: framed(b"{"), "no answer"),
        (lambda _: framed(b"\xff\xfe"), "no answer"),
        (lambda _: framed(b"[" * 100_000), "no answer"),
        (lambda r: framed(b'{"id": %d, "observation": {"kind": "os.system"}}' % r.id), "no answer"),
        (
            lambda r: framed(b'{"id": %d, "observation": {"kind": "written", "size": 1}}' % r.id),
            "with written",
        ),
        (lambda r: framed(b'{"id": 99, "observation": %s}' % RAN.model_dump_json().encode()), "request 99"),
        (lambda r: honest(r).replace(b'"seconds"', b'"__class__": "x", "seconds"'), "no answer"),
        # Neither can be read back from a log.
        *[(lambda r, n=n: finite(r, n), "finite number") for n in (b"NaN", b"1e999", b"-Infinity")],
        (lambda _: b"\xff\xff\xff\xff" + b"x" * 1000, "4,294,967,295 bytes"),
        (lambda _: framed(b"x" * (1 << 20)), "1,048,576 bytes"),
    ],
)
async def test_what_is_not_our_protocol_breaks_the_sandbox_for_good(
    sandbox: RemoteSandbox, dial, reply: Reply, complaint: str
) -> None:
    dial(reply)
    for _ in range(2):
        with pytest.raises(ProtocolBroken, match=complaint):
            await sandbox.act(ECHO)


async def test_a_machine_that_lies_of_a_call_is_believed_no_more_than_any_other(door: Door, dial) -> None:
    dial(lambda r: framed(b'{"id": %d, "observation": {"kind": "written", "size": 1}}' % r.id))
    await door.line(5)
    told = door.hello.model_copy(update={"last": 3, "call": "never asked", "called": 99})
    with on_behalf_of("never asked"), pytest.raises(ProtocolBroken, match="with written"):
        await RemoteSandbox(door, "/w", "/tmp", left=told).act(ECHO)


async def test_an_endless_answer_takes_bounded_memory(sandbox: RemoteSandbox, dial, short_tmp: Path) -> None:
    endless = (400_000).to_bytes(4, "big") + b"x" * 300_000  # announces more than it ever sends
    dial(lambda _: endless)
    tracemalloc.start()
    with pytest.raises(SandboxLost, match=r"no answer within 1\.5 s"):
        await sandbox.act(ECHO)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


async def test_a_machine_that_does_not_answer_is_lost_in_bounded_time(sandbox: RemoteSandbox, dial) -> None:
    dial(lambda _: b"")
    with pytest.raises(SandboxLost, match=r"no answer within 1\.5 s"):
        await sandbox.act(ECHO)


async def test_a_machine_that_hangs_up_again_and_again_is_lost_in_bounded_time(door: Door, dial) -> None:
    def restart(_: Request) -> bytes:
        dial(restart)
        raise OSError

    dial(restart)
    with pytest.raises(SandboxLost):
        await RemoteSandbox(door, "/w", "/tmp", slack=0.5).act(ECHO)


async def test_a_machine_that_is_gone_is_lost_with_its_fate(door: Door) -> None:
    async def fate() -> SandboxLost | None:
        return SandboxLost("the container was removed")

    with pytest.raises(SandboxLost, match="the container was removed"):
        await RemoteSandbox(door, "/w", "/tmp", fate=fate).act(ECHO)


async def test_the_key_is_gone_before_the_first_action(door: Door, dial, short_tmp: Path) -> None:
    assert (short_tmp / KEY).exists()
    dial(honest)
    await door.line(timeout=5)
    assert not (short_tmp / KEY).exists()


@pytest.mark.parametrize(
    "words",
    [
        framed(b'{"version": 2, "key": "guess"}'),
        framed(b'{"version": 2, "key": "\xc3\xa9"}'),
        framed(b"GET / HTTP/1.1"),
        b"\x7f\xff\xff\xff",
        b"",
    ],
)
async def test_a_stranger_is_turned_away_and_disturbs_nobody(
    sandbox: RemoteSandbox, dial, short_tmp: Path, words: bytes
) -> None:
    dial(honest)
    assert await sandbox.act(ECHO) == RAN
    reader, writer = await asyncio.open_unix_connection(short_tmp / SOCKET)
    writer.write(words)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), timeout=5) == b""
    assert await sandbox.act(ECHO) == RAN
    writer.close()


async def test_many_silent_strangers_keep_nobody_out_for_long(
    sandbox: RemoteSandbox, dial, short_tmp: Path
) -> None:
    strangers = [await asyncio.open_unix_connection(short_tmp / SOCKET) for _ in range(50)]
    turned_away = [asyncio.create_task(reader.read()) for reader, _ in strangers]
    done, _ = await asyncio.wait(turned_away, timeout=1)
    assert len(done) >= 40
    for _, writer in strangers:
        writer.close()
    await asyncio.sleep(0.1)
    dial(honest)
    assert await sandbox.act(ECHO) == RAN


async def test_a_cancelled_action_does_not_answer_for_the_next_one(sandbox: RemoteSandbox, dial) -> None:
    first = dial(lambda _: b"")
    asked = asyncio.create_task(sandbox.act(ECHO))
    await asyncio.sleep(0.2)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await first
    dial(honest)
    assert await sandbox.act(ECHO) == RAN
