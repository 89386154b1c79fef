"""A hostile or broken machine at the far end of `docker exec`: the engine frames what it says, nothing else is sure."""

import asyncio
import socket
import tracemalloc
from collections.abc import Callable

import pytest

from runtime.actions import RunShell
from runtime.bridge import READY
from runtime.docker.exec_transport import ExecDoor, Stream
from runtime.errors import ProtocolBroken, SandboxLost
from runtime.observations import Ran
from runtime.remote import RemoteSandbox
from runtime.wire import VERSION, Answer, Hello, Request

RAN = Ran(output="hi\n", exit_code=0, cwd="/w", seconds=0.1)
ECHO = RunShell(command="echo hi", timeout=1)
Machine = Callable[[asyncio.StreamReader, Callable[[bytes], None]], object]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


HELLO = framed(Hello(version=VERSION, last=7).model_dump_json().encode())


def said(body: bytes, stream: int = 1) -> bytes:
    """As the engine frames it."""
    return bytes((stream, 0, 0, 0)) + framed(body)


class Engine:
    """Hands out streams to machines, one after the other."""

    def __init__(self, *machines: Machine) -> None:
        self._machines = list(machines)
        self._running: list[asyncio.Task[None]] = []
        self.attached = 0

    async def attach(self) -> Stream:
        self.attached += 1
        near, far = socket.socketpair()
        machine = self._machines.pop(0) if len(self._machines) > 1 else self._machines[0]
        self._running.append(asyncio.create_task(self._run(machine, far)))
        return near

    async def _run(self, machine: Machine, far: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=far)
        try:
            assert await reader.readexactly(1) == READY
            await machine(reader, writer.write)  # type: ignore[misc]
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def asked(reader: asyncio.StreamReader) -> Request:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return Request.model_validate_json(await reader.readexactly(size))


async def honest(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
    say(said(HELLO))
    while True:
        request = await asked(reader)
        say(said(framed(Answer(id=request.id, observation=RAN).model_dump_json().encode())))


def sandbox(engine: Engine) -> RemoteSandbox:
    return RemoteSandbox(ExecDoor(engine.attach), "/w", "/tmp", slack=0.5)


async def test_an_honest_machine_is_heard_and_says_where_it_was() -> None:
    engine = Engine(honest)
    door = ExecDoor(engine.attach)
    await door.line(5)
    assert door.hello.last == 7
    there = RemoteSandbox(door, "/w", "/tmp", left=door.hello)
    assert [await there.act(ECHO) for _ in range(3)] == [RAN] * 3
    assert engine.attached == 1


async def test_an_answer_in_single_bytes_between_errors_is_put_together() -> None:
    async def slow(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
        answer = framed(Answer(id=1, observation=RAN).model_dump_json().encode())
        for byte in HELLO:
            say(said(b"noise", stream=2) + said(bytes([byte])))
        await asked(reader)
        for byte in answer:
            say(said(b"", stream=2) + said(bytes([byte])))
        await reader.read()

    assert await sandbox(Engine(slow)).act(ECHO) == RAN


async def test_a_bridge_that_breaks_off_is_started_again_and_asked_the_same() -> None:
    ids: list[int] = []

    async def broken(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
        say(said(HELLO))
        ids.append((await asked(reader)).id)

    async def mended(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
        say(said(HELLO))
        ids.append((await asked(reader)).id)
        say(said(framed(Answer(id=ids[-1], observation=RAN).model_dump_json().encode())))
        await reader.read()

    assert await sandbox(Engine(broken, mended)).act(ECHO) == RAN
    assert ids == [1, 1]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (framed(b"{"), "no answer"),
        (framed(b'{"id": 99, "observation": %s}' % RAN.model_dump_json().encode()), "request 99"),
        (b"\xff\xff\xff\xff", "4,294,967,295 bytes"),
    ],
)
async def test_what_is_not_our_protocol_breaks_the_sandbox(answer: bytes, complaint: str) -> None:
    async def wrong(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
        say(said(HELLO))
        await asked(reader)
        say(said(answer))
        await reader.read()

    with pytest.raises(ProtocolBroken, match=complaint):
        await sandbox(Engine(wrong)).act(ECHO)


async def test_one_that_never_introduces_itself_is_lost_in_bounded_time_and_memory() -> None:
    async def flood(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
        for _ in range(400):
            say(said(b"x" * 50_000, stream=2))
            await asyncio.sleep(0.002)
        say(said(b"\x7f\xff\xff\xff"))
        await reader.read()

    tracemalloc.start()
    with pytest.raises(SandboxLost):
        await sandbox(Engine(flood)).act(ECHO)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


async def test_another_version_of_the_protocol_is_said() -> None:
    async def other(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
        say(said(framed(b'{"version": 1, "key": ""}')))
        await reader.read()

    with pytest.raises(SandboxLost, match="another version"):
        await sandbox(Engine(other)).act(ECHO)
