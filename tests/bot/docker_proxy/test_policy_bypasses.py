"""Requests that the proxy and the engine could interpret differently. Each attack works without the proxy."""

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

from patchwright.bot.docker_proxy.proxy import DockerProxy
from patchwright.bot.docker_proxy.request_policy import ObjectKind
from tests.bot.docker_proxy.engines import (
    ENGINE,
    IMAGE,
    create_container,
    racing_engine,
    remove_container,
    send_request,
)
from tests.bot.docker_proxy.test_request_policy import container

pytestmark = pytest.mark.docker

FORM = "application/x-www-form-urlencoded"


class NameTrustingProxy(DockerProxy):
    """A vulnerable proxy: it checks ownership by name and forwards the name."""

    async def find_own_id(self, kind: ObjectKind, name: str) -> str | None:
        return name if await super().find_own_id(kind, name) else None


@pytest.fixture
async def own_container() -> AsyncIterator[str]:
    """The ID of a running container of Patchwright."""
    name = f"patchwright-{secrets.token_hex(4)}"
    container_id = await create_container(ENGINE, name, container(Cmd=["sleep", "600"], Image=IMAGE))
    await send_request(ENGINE, f"POST /v1.41/containers/{container_id}/start")
    yield container_id
    await remove_container(container_id)


@pytest.fixture
def image_name(engine: docker.DockerClient) -> Iterator[str]:
    """The name of an image that a test creates; it is removed afterward."""
    name = f"patchwright-{secrets.token_hex(4)}"
    yield name
    with contextlib.suppress(docker.errors.ImageNotFound):
        engine.images.remove(name, force=True)


@pytest.mark.slow
async def test_a_request_acts_on_the_container_that_was_checked(
    short_tmp: Path, engine: docker.DockerClient, foreign_container: Any, own_container: str, image_name: str
) -> None:
    """The name is a prefix of a foreign container's ID, so it means that container after a rename."""
    name = foreign_container.id[:12]
    listed = f'GET /v1.41/containers/json?all=1&filters={{"id":["{name}"]}}'

    async def send_during_rename(kind: type[DockerProxy], request: str) -> bytes:
        engine.api.rename(own_container, name)
        at = short_tmp / secrets.token_hex(3)
        async with (
            racing_engine(
                short_tmp / "engine", lambda: engine.api.rename(own_container, f"x{secrets.token_hex(4)}")
            ) as behind,
            kind(behind).listen(at),
        ):
            return (await send_request(at, request))[1]

    reads = (f"GET /v1.41/containers/{name}/json", listed)
    for kind, expected, other in (
        (NameTrustingProxy, foreign_container.id, own_container),
        (DockerProxy, own_container, foreign_container.id),
    ):
        for request in reads:
            body = (await send_during_rename(kind, request)).decode()
            assert expected in body and other not in body, request
        await send_during_rename(kind, f"POST /v1.41/commit?container={name}&repo={image_name}")
        assert ("foreign-secret" in str(engine.api.inspect_image(image_name))) is (
            expected == foreign_container.id
        )
        engine.images.remove(image_name)
    await send_during_rename(DockerProxy, f"POST /v1.41/containers/{name}/kill")
    foreign_container.reload()
    assert (foreign_container.status, engine.containers.get(own_container).status) == ("running", "exited")
    engine.api.start(own_container)
    await send_during_rename(NameTrustingProxy, f"POST /v1.41/containers/{name}/kill")
    foreign_container.reload()
    assert foreign_container.status == "exited"


async def test_field_names_that_the_engine_folds_are_rejected(proxy_socket: Path, own_container: str) -> None:
    name = f"patchwright-{secrets.token_hex(4)}"
    folded = container(Image=IMAGE)[:-1] + ', "Ho\u017ftConfig": null}'.encode()
    container_id = await create_container(ENGINE, name, folded)
    try:
        host = json.loads((await send_request(ENGINE, f"GET /v1.41/containers/{container_id}/json"))[1])[
            "HostConfig"
        ]
        assert (host["NetworkMode"], host["CapDrop"], host["Memory"]) == ("default", None, 0)
    finally:
        await remove_container(container_id)
    assert (await send_request(proxy_socket, f"POST /v1.41/containers/create?name={name}", folded))[0] == 403
    privileged = f"POST /v1.41/containers/{own_container}/exec", b'{"Cmd": ["true"], "privileged": true}'
    status, body = await send_request(ENGINE, *privileged)
    exec_id = json.loads(body)["Id"]
    assert b'"privileged":true' in (await send_request(ENGINE, f"GET /v1.41/exec/{exec_id}/json"))[1]
    assert (status, (await send_request(proxy_socket, *privileged))[0]) == (201, 403)


async def test_a_form_body_does_not_reach_the_engine(
    proxy_socket: Path, engine: docker.DockerClient, image_name: str
) -> None:
    other_image = f"other-{secrets.token_hex(4)}"
    tag = (
        f"POST /v1.41/images/{IMAGE}/tag?repo={image_name}&tag=1",
        f"repo={other_image}&tag=1".encode(),
        FORM,
    )
    assert (await send_request(proxy_socket, *tag))[0] == 201
    assert engine.images.list(other_image) == []
    assert engine.images.get(f"{image_name}:1")
    assert (await send_request(ENGINE, *tag))[0] == 201
    assert engine.images.list(other_image)
    engine.images.remove(f"{other_image}:1")
    engine.images.remove(f"{image_name}:1")


async def test_a_requested_protocol_switch_is_ignored(proxy_socket: Path, foreign_container: Any) -> None:
    second = f"GET /containers/{foreign_container.id}/json HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    h2 = {"Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAARAAAAAAAIAAAAA"}
    for headers in (h2, {"Upgrade": "websocket"}, {"Upgrade": "tcp"}):
        status, body = await send_request(proxy_socket, "GET /v1.41/_ping", second, **headers)
        assert (status, body) == (200, b"OK")


async def test_data_after_an_upgrade_goes_to_the_exec_instance(
    proxy_socket: Path, foreign_container: Any, own_container: str
) -> None:
    """Data after an upgrade is the input of the exec instance, even if it looks like a request."""
    exec_id = b'{"Cmd": ["head", "-n", "1"], "AttachStdin": true, "AttachStdout": true}'
    _, body = await send_request(proxy_socket, f"POST /v1.41/containers/{own_container}/exec", exec_id)
    exec_id = json.loads(body)["Id"]
    options = b'{"Tty": false, "Detach": false}'
    head = f"POST /v1.41/exec/{exec_id}/start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(options)}\r\n\r\n"
    second = f"GET /v1.41/containers/{foreign_container.id}/json HTTP/1.1\r\nHost: x\r\n\r\n"
    reader, writer = await asyncio.open_unix_connection(proxy_socket)
    writer.write(head.encode() + options + second.encode())
    async with asyncio.timeout(30):
        body = await reader.read()
    writer.close()
    assert body.startswith(b"HTTP/1.1 101 ")
    assert f"GET /v1.41/containers/{foreign_container.id}/json".encode() in body  # as `head` repeats it
    assert b"foreign-secret" not in body
