"""A hostile or broken sandbox at the other end of the wire."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from patchwright.runtime.actions import RunShell
from patchwright.runtime.errors import ProtocolError, SandboxLost
from patchwright.runtime.observations import ShellResult
from patchwright.runtime.remote_sandbox import RemoteSandbox, SocketTransport
from patchwright.runtime.sandbox import call_context
from patchwright.runtime.wire_protocol import (
    KEY_FILE,
    PROTOCOL_VERSION,
    SOCKET_NAME,
    ActionRequest,
    ActionResponse,
    Hello,
    read_frame,
    write_frame,
)

RAN = ShellResult(output="hi\n", exit_code=0, cwd="/w", seconds=0.1)
ECHO = RunShell(command="echo hi", timeout=1)
Reply = Callable[[ActionRequest], bytes]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def honest(request: ActionRequest) -> bytes:
    return framed(ActionResponse(id=request.id, observation=RAN).model_dump_json().encode())


@pytest.fixture
async def transport(short_tmp: Path) -> AsyncIterator[SocketTransport]:
    async with SocketTransport.listen(short_tmp) as transport:
        yield transport


@pytest.fixture
async def dial(
    transport: SocketTransport, short_tmp: Path
) -> AsyncIterator[Callable[[Reply], asyncio.Task[None]]]:
    """Start a server that knows the key and answers each request with the given reply."""
    key = (short_tmp / KEY_FILE).read_text()
    machines: list[asyncio.Task[None]] = []

    async def machine(reply: Reply) -> None:
        reader, writer = await asyncio.open_unix_connection(short_tmp / SOCKET_NAME)
        await write_frame(writer, Hello(version=PROTOCOL_VERSION, key=key))
        try:
            while True:
                request = ActionRequest.model_validate_json(await read_frame(reader, 1 << 20))
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
def sandbox(transport: SocketTransport) -> RemoteSandbox:
    return RemoteSandbox(transport, "/w", "/tmp", grace=0.5)


def finite(request: ActionRequest, seconds: bytes) -> bytes:
    """Return the valid response with this number in it."""
    body = honest(request)[4:].replace(b'"seconds":%s' % str(RAN.seconds).encode(), b'"seconds":' + seconds)
    return framed(body)


async def test_a_valid_response_is_returned(sandbox: RemoteSandbox, dial) -> None:
    dial(honest)
    assert [await sandbox.act(ECHO) for _ in range(3)] == [RAN] * 3


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (lambda _: framed(b"{"), "an invalid response"),
        (lambda _: framed(b"\xff\xfe"), "an invalid response"),
        (lambda _: framed(b"[" * 100_000), "an invalid response"),
        (lambda r: framed(b'{"id": %d, "observation": {"kind": "os.system"}}' % r.id), "an invalid response"),
        (
            lambda r: framed(b'{"id": %d, "observation": {"kind": "write_result", "size": 1}}' % r.id),
            "with write_result",
        ),
        (lambda r: framed(b'{"id": 99, "observation": %s}' % RAN.model_dump_json().encode()), "request 99"),
        (lambda r: honest(r).replace(b'"seconds"', b'"__class__": "x", "seconds"'), "an invalid response"),
        # Neither can be read back from a log.
        *[(lambda r, n=n: finite(r, n), "finite number") for n in (b"NaN", b"1e999", b"-Infinity")],
        (lambda _: b"\xff\xff\xff\xff" + b"x" * 1000, "4,294,967,295 bytes"),
        (lambda _: framed(b"x" * (1 << 20)), "1,048,576 bytes"),
    ],
)
async def test_an_invalid_response_fails_the_sandbox_permanently(
    sandbox: RemoteSandbox, dial, reply: Reply, complaint: str
) -> None:
    dial(reply)
    for _ in range(2):
        with pytest.raises(ProtocolError, match=complaint):
            await sandbox.act(ECHO)


async def test_a_sandbox_that_lies_about_a_call_gains_nothing(transport: SocketTransport, dial) -> None:
    dial(lambda r: framed(b'{"id": %d, "observation": {"kind": "write_result", "size": 1}}' % r.id))
    await transport.get_connection(5)
    hello = transport.hello.model_copy(
        update={"last_request_id": 3, "call_id": "never asked", "call_request_id": 99}
    )
    with call_context("never asked"), pytest.raises(ProtocolError, match="with write_result"):
        await RemoteSandbox(transport, "/w", "/tmp", previous=hello).act(ECHO)


async def test_an_endless_response_takes_bounded_memory(
    sandbox: RemoteSandbox, dial, short_tmp: Path
) -> None:
    endless = (400_000).to_bytes(4, "big") + b"x" * 300_000  # announces more than it ever sends
    dial(lambda _: endless)
    tracemalloc.start()
    with pytest.raises(SandboxLost, match=r"did not respond within 1\.5 s"):
        await sandbox.act(ECHO)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


async def test_a_sandbox_that_does_not_respond_is_lost_in_bounded_time(sandbox: RemoteSandbox, dial) -> None:
    dial(lambda _: b"")
    with pytest.raises(SandboxLost, match=r"did not respond within 1\.5 s"):
        await sandbox.act(ECHO)


@pytest.mark.slow
async def test_a_sandbox_that_keeps_disconnecting_is_lost_in_bounded_time(
    transport: SocketTransport, dial
) -> None:
    def restart(_: ActionRequest) -> bytes:
        dial(restart)
        raise OSError

    dial(restart)
    with pytest.raises(SandboxLost):
        await RemoteSandbox(transport, "/w", "/tmp", grace=0.5).act(ECHO)


async def test_a_dead_sandbox_is_lost_with_the_reason(transport: SocketTransport) -> None:
    async def fate() -> SandboxLost | None:
        return SandboxLost("the container was removed")

    with pytest.raises(SandboxLost, match="the container was removed"):
        await RemoteSandbox(transport, "/w", "/tmp", find_failure=fate).act(ECHO)


async def test_the_key_is_gone_before_the_first_action(
    transport: SocketTransport, dial, short_tmp: Path
) -> None:
    assert (short_tmp / KEY_FILE).exists()
    dial(honest)
    await transport.get_connection(timeout=5)
    assert not (short_tmp / KEY_FILE).exists()


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
async def test_an_unauthenticated_client_is_rejected_without_disturbance(
    sandbox: RemoteSandbox, dial, short_tmp: Path, words: bytes
) -> None:
    dial(honest)
    assert await sandbox.act(ECHO) == RAN
    reader, writer = await asyncio.open_unix_connection(short_tmp / SOCKET_NAME)
    writer.write(words)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), timeout=5) == b""
    assert await sandbox.act(ECHO) == RAN
    writer.close()


async def test_many_silent_clients_block_the_server_only_briefly(
    sandbox: RemoteSandbox, dial, short_tmp: Path
) -> None:
    strangers = [await asyncio.open_unix_connection(short_tmp / SOCKET_NAME) for _ in range(50)]
    turned_away = [asyncio.create_task(reader.read()) for reader, _ in strangers]
    done, _ = await asyncio.wait(turned_away, timeout=1)
    assert len(done) >= 40
    for _, writer in strangers:
        writer.close()
    await asyncio.sleep(0.1)
    dial(honest)
    assert await sandbox.act(ECHO) == RAN


async def test_the_result_of_a_canceled_action_is_not_taken_for_the_next_one(
    sandbox: RemoteSandbox, dial
) -> None:
    first = dial(lambda _: b"")
    task = asyncio.create_task(sandbox.act(ECHO))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await first
    dial(honest)
    assert await sandbox.act(ECHO) == RAN
