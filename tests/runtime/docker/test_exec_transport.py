"""A hostile or broken sandbox behind `docker exec`: only the engine's frames can be trusted."""

import asyncio
import socket
import tracemalloc
from collections.abc import Callable

import pytest

from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.exec_transport import ExecStream, ExecTransport
from patchwright.runtime.errors import ProtocolError, SandboxLost
from patchwright.runtime.observations import ShellResult
from patchwright.runtime.remote_sandbox import RemoteSandbox
from patchwright.runtime.stdio_relay import READY_BYTE
from patchwright.runtime.wire_protocol import PROTOCOL_VERSION, ActionRequest, ActionResponse, Hello

RAN = ShellResult(output="hi\n", exit_code=0, cwd="/w", seconds=0.1)
ECHO = RunShell(command="echo hi", timeout=1)
Machine = Callable[[asyncio.StreamReader, Callable[[bytes], None]], object]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


HELLO = framed(Hello(version=PROTOCOL_VERSION, last_request_id=7).model_dump_json().encode())


def frame(body: bytes, stream: int = 1) -> bytes:
    """Frame output as the engine does."""
    return bytes((stream, 0, 0, 0)) + framed(body)


class Engine:
    """Returns prepared streams, one after the other."""

    def __init__(self, *machines: Machine) -> None:
        self._machines = list(machines)
        self._running: list[asyncio.Task[None]] = []
        self.attached = 0

    async def attach(self) -> ExecStream:
        self.attached += 1
        near, far = socket.socketpair()
        machine = self._machines.pop(0) if len(self._machines) > 1 else self._machines[0]
        self._running.append(asyncio.create_task(self._run(machine, far)))
        return near

    async def _run(self, machine: Machine, far: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=far)
        try:
            assert await reader.readexactly(1) == READY_BYTE
            await machine(reader, writer.write)  # type: ignore[misc]
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> ActionRequest:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return ActionRequest.model_validate_json(await reader.readexactly(size))


async def honest(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
    say(frame(HELLO))
    while True:
        request = await read_request(reader)
        say(frame(framed(ActionResponse(id=request.id, observation=RAN).model_dump_json().encode())))


def sandbox(engine: Engine) -> RemoteSandbox:
    return RemoteSandbox(ExecTransport(engine.attach), "/w", "/tmp", grace=0.5)


async def test_a_valid_hello_is_accepted_with_the_last_request() -> None:
    engine = Engine(honest)
    door = ExecTransport(engine.attach)
    await door.get_connection(5)
    assert door.hello.last_request_id == 7
    there = RemoteSandbox(door, "/w", "/tmp", previous=door.hello)
    assert [await there.act(ECHO) for _ in range(3)] == [RAN] * 3
    assert engine.attached == 1


async def test_a_response_in_single_bytes_between_errors_is_reassembled() -> None:
    async def slow(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
        answer = framed(ActionResponse(id=1, observation=RAN).model_dump_json().encode())
        for byte in HELLO:
            say(frame(b"noise", stream=2) + frame(bytes([byte])))
        await read_request(reader)
        for byte in answer:
            say(frame(b"", stream=2) + frame(bytes([byte])))
        await reader.read()

    assert await sandbox(Engine(slow)).act(ECHO) == RAN


async def test_a_broken_bridge_is_restarted_and_the_request_repeated() -> None:
    ids: list[int] = []

    async def broken(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
        say(frame(HELLO))
        ids.append((await read_request(reader)).id)

    async def repaired(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
        say(frame(HELLO))
        ids.append((await read_request(reader)).id)
        say(frame(framed(ActionResponse(id=ids[-1], observation=RAN).model_dump_json().encode())))
        await reader.read()

    assert await sandbox(Engine(broken, repaired)).act(ECHO) == RAN
    assert ids == [1, 1]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (framed(b"{"), "invalid response"),
        (framed(b'{"id": 99, "observation": %s}' % RAN.model_dump_json().encode()), "request 99"),
        (b"\xff\xff\xff\xff", "4,294,967,295 bytes"),
    ],
)
async def test_an_invalid_message_fails_the_sandbox(answer: bytes, complaint: str) -> None:
    async def wrong(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
        say(frame(HELLO))
        await read_request(reader)
        say(frame(answer))
        await reader.read()

    with pytest.raises(ProtocolError, match=complaint):
        await sandbox(Engine(wrong)).act(ECHO)


async def test_a_server_without_a_hello_is_lost_in_bounded_time_and_memory() -> None:
    async def flood(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
        for _ in range(400):
            say(frame(b"x" * 50_000, stream=2))
            await asyncio.sleep(0.002)
        say(frame(b"\x7f\xff\xff\xff"))
        await reader.read()

    tracemalloc.start()
    with pytest.raises(SandboxLost):
        await sandbox(Engine(flood)).act(ECHO)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


async def test_another_protocol_version_is_reported() -> None:
    async def other(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
        say(frame(framed(b'{"version": 1, "key": ""}')))
        await reader.read()

    with pytest.raises(SandboxLost, match="another version"):
        await sandbox(Engine(other)).act(ECHO)
