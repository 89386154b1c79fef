"""Tests contact no other machine (tests/conftest.py), so that they have the same result anywhere."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

REFUSED = r"a test must not connect to 192\.0\.2\.1"
OTHER_MACHINE = ("192.0.2.1", 443)
"""Source: RFC 5737, addresses for documentation."""


@pytest.mark.parametrize("speed", ["quick", pytest.param("slow", marks=pytest.mark.slow)])
def test_a_connection_to_another_machine_is_refused_with_the_reason(speed: str) -> None:
    with socket.socket() as client, pytest.raises(OSError, match=REFUSED):
        client.connect(OTHER_MACHINE)


async def test_asyncio_cannot_connect_to_another_machine_either() -> None:
    with pytest.raises(OSError, match=REFUSED):
        await asyncio.open_connection(*OTHER_MACHINE)


async def test_a_server_on_this_machine_is_reached() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()


@pytest.mark.slow
def test_a_process_that_a_slow_test_starts_reaches_only_this_machine() -> None:
    # Without a proxy, the name would not be found.
    program = "import httpx; httpx.get('https://machine.invalid')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "Connection refused" in done.stderr


def test_a_test_that_needs_the_internet_is_slow_and_says_why(request: pytest.FixtureRequest) -> None:
    marked = [item for item in request.session.items if item.get_closest_marker("internet")]
    reasons = {item.nodeid: item.get_closest_marker("internet") for item in marked}
    assert [name for name, marker in reasons.items() if marker is None or not marker.args] == []
    assert [item.nodeid for item in marked if not item.get_closest_marker("slow")] == []


def test_the_quick_tests_run_without_a_network() -> None:
    script = (Path(__file__).parents[1] / "script/test-bare").read_text()
    assert script.index("environment dev") < script.index("--network none") < script.index('script/test "$@"')
