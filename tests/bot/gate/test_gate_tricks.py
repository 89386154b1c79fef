"""Where the gate and a real engine could take one request for two different ones. Each works without the gate."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest

from bot.gate.gate import Gate
from bot.gate.rules import Kind
from tests.bot.gate.engines import ENGINE, IMAGE, ask, disturbed, gone, made
from tests.bot.gate.test_gate_rules import container

pytestmark = pytest.mark.docker

FORM = "application/x-www-form-urlencoded"


class Trusting(Gate):
    """Weakened: what was looked at by a name is acted on by that name."""

    async def ours(self, kind: Kind, name: str) -> str | None:
        return name if await super().ours(kind, name) else None


@pytest.fixture
async def ours() -> AsyncIterator[str]:
    """The id of a running sandbox of ours."""
    name = f"patchwright-{secrets.token_hex(4)}"
    one = await made(ENGINE, name, container(Cmd=["sleep", "600"], Image=IMAGE))
    await ask(ENGINE, f"POST /v1.41/containers/{one}/start")
    yield one
    await gone(one)


@pytest.fixture
def stolen(engine: docker.DockerClient) -> Iterator[str]:
    """The name of an image that is to be made; it is removed."""
    name = f"patchwright-{secrets.token_hex(4)}"
    yield name
    with contextlib.suppress(docker.errors.ImageNotFound):
        engine.images.remove(name, force=True)


async def test_a_container_that_is_renamed_after_the_look_is_the_one_that_is_acted_on(
    short_tmp: Path, engine: docker.DockerClient, neighbour: Any, ours: str, stolen: str
) -> None:
    """It is called as a neighbour's id begins, so that this name means the neighbour once it has another."""
    name = neighbour.id[:12]
    listed = f'GET /v1.41/containers/json?all=1&filters={{"id":["{name}"]}}'

    async def raced(kind: type[Gate], asked: str) -> bytes:
        engine.api.rename(ours, name)
        at = short_tmp / secrets.token_hex(3)
        async with (
            disturbed(
                short_tmp / "engine", lambda: engine.api.rename(ours, f"x{secrets.token_hex(4)}")
            ) as behind,
            kind(behind).listening(at),
        ):
            return (await ask(at, asked))[1]

    looking = (f"GET /v1.41/containers/{name}/json", listed)
    for kind, whose, others in ((Trusting, neighbour.id, ours), (Gate, ours, neighbour.id)):
        for asked in looking:
            said = (await raced(kind, asked)).decode()
            assert whose in said and others not in said, asked
        await raced(kind, f"POST /v1.41/commit?container={name}&repo={stolen}")
        assert ("of-the-neighbour" in str(engine.api.inspect_image(stolen))) is (whose == neighbour.id)
        engine.images.remove(stolen)
    await raced(Gate, f"POST /v1.41/containers/{name}/kill")
    neighbour.reload()
    assert (neighbour.status, engine.containers.get(ours).status) == ("running", "exited")
    engine.api.start(ours)
    await raced(Trusting, f"POST /v1.41/containers/{name}/kill")
    neighbour.reload()
    assert neighbour.status == "exited"


async def test_names_that_the_engine_reads_in_another_way_than_the_gate_are_refused(
    gate: Path, ours: str
) -> None:
    name = f"patchwright-{secrets.token_hex(4)}"
    folded = container(Image=IMAGE)[:-1] + ', "Ho\u017ftConfig": null}'.encode()
    loose = await made(ENGINE, name, folded)
    try:
        host = json.loads((await ask(ENGINE, f"GET /v1.41/containers/{loose}/json"))[1])["HostConfig"]
        assert (host["NetworkMode"], host["CapDrop"], host["Memory"]) == ("default", None, 0)
    finally:
        await gone(loose)
    assert (await ask(gate, f"POST /v1.41/containers/create?name={name}", folded))[0] == 403
    privileged = f"POST /v1.41/containers/{ours}/exec", b'{"Cmd": ["true"], "privileged": true}'
    status, said = await ask(ENGINE, *privileged)
    program = json.loads(said)["Id"]
    assert b'"privileged":true' in (await ask(ENGINE, f"GET /v1.41/exec/{program}/json"))[1]
    assert (status, (await ask(gate, *privileged))[0]) == (201, 403)


async def test_a_form_in_the_body_which_the_engine_reads_before_the_query_does_not_reach_it(
    gate: Path, engine: docker.DockerClient, stolen: str
) -> None:
    theirs = f"gate-{secrets.token_hex(4)}"
    tag = f"POST /v1.41/images/{IMAGE}/tag?repo={stolen}&tag=1", f"repo={theirs}&tag=1".encode(), FORM
    assert (await ask(gate, *tag))[0] == 201
    assert engine.images.list(theirs) == []
    assert engine.images.get(f"{stolen}:1")
    assert (await ask(ENGINE, *tag))[0] == 201
    assert engine.images.list(theirs)
    engine.images.remove(f"{theirs}:1")
    engine.images.remove(f"{stolen}:1")


async def test_what_is_asked_to_be_another_protocol_stays_one_request(gate: Path, neighbour: Any) -> None:
    second = f"GET /containers/{neighbour.id}/json HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    h2 = {"Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAARAAAAAAAIAAAAA"}
    for headers in (h2, {"Upgrade": "websocket"}, {"Upgrade": "tcp"}):
        status, said = await ask(gate, "GET /v1.41/_ping", second, **headers)
        assert (status, said) == (200, b"OK")


async def test_a_program_that_was_begun_has_the_rest_of_the_connection_and_the_engine_none_of_it(
    gate: Path, neighbour: Any, ours: str
) -> None:
    """What follows an upgrade is the program's input, also where it looks like a request."""
    program = b'{"Cmd": ["head", "-n", "1"], "AttachStdin": true, "AttachStdout": true}'
    _, said = await ask(gate, f"POST /v1.41/containers/{ours}/exec", program)
    begin = json.loads(said)["Id"]
    begun = b'{"Tty": false, "Detach": false}'
    head = f"POST /v1.41/exec/{begin}/start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(begun)}\r\n\r\n"
    second = f"GET /v1.41/containers/{neighbour.id}/json HTTP/1.1\r\nHost: x\r\n\r\n"
    reader, writer = await asyncio.open_unix_connection(gate)
    writer.write(head.encode() + begun + second.encode())
    async with asyncio.timeout(30):
        said = await reader.read()
    writer.close()
    assert said.startswith(b"HTTP/1.1 101 ")
    assert f"GET /v1.41/containers/{neighbour.id}/json".encode() in said  # as `head` repeats it
    assert b"of-the-neighbour" not in said
