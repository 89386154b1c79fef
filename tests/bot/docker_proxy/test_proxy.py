"""The proxy in front of a real engine, and attacks that work only without the proxy."""

import asyncio
import json
import os
import secrets
import socket
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest

from patchwright.bot.docker_proxy.proxy import DockerProxy
from patchwright.resolver.errors import SettingsError
from patchwright.runtime.docker.engine import Engine
from patchwright.runtime.docker.hardening import container_user, host_config
from patchwright.runtime.docker.reaper import OWNER_LABEL, RUN_LABEL
from patchwright.runtime.errors import ImageUnavailable
from patchwright.runtime.sandbox import SandboxSpec
from tests.bot.docker_proxy.engines import ENGINE, IMAGE, send_raw

pytestmark = pytest.mark.docker


def docker_client(socket_path: Path) -> docker.DockerClient:
    return docker.DockerClient(f"unix://{socket_path}")


async def test_container_escapes_work_on_the_engine_but_not_through_the_proxy(
    proxy_socket: Path, engine: docker.DockerClient
) -> None:
    escapes: list[dict[str, Any]] = [
        {"volumes": ["/etc:/host:ro"], "command": ["cat", "/host/hostname"]},
        {"security_opt": ["seccomp=unconfined"], "command": ["true", "and", "said"]},
        {"pid_mode": "host", "command": ["cat", "/proc/1/comm"]},
        {"network_mode": "host", "command": ["cat", "/proc/net/dev"]},
    ]
    worker = await asyncio.to_thread(docker_client, proxy_socket)
    for escape in escapes:
        options = {"network_mode": "none", "remove": True, **escape}
        await asyncio.to_thread(engine.containers.run, IMAGE, **options)  # raises if it fails
        with pytest.raises(
            docker.errors.APIError, match="the Docker proxy rejected this request: a container must have"
        ):
            await asyncio.to_thread(worker.containers.run, IMAGE, name="patchwright-proxy", **options)


@pytest.mark.slow
async def test_every_call_of_a_worker_is_forwarded(proxy_socket: Path) -> None:
    engine, name = await Engine.connect(f"unix://{proxy_socket}"), f"patchwright-{secrets.token_hex(4)}"
    labels = {OWNER_LABEL: "somebody", RUN_LABEL: "x"}
    try:
        await engine.build("an image", {"Dockerfile": f"FROM {IMAGE}\nLABEL a=b\n".encode()}, [f"{name}:1"])
        assert [image.tags for image in await engine.list_images(name, "a=b")] == [(f"{name}:1",)]
        container = await engine.create(
            name,
            image=f"{name}:1",
            command=["sh", "-c", "echo said; mkdir /opt/x; sleep 600"],
            healthcheck={"test": ["NONE"]},
            user=container_user(as_root=True),
            labels=labels,
            host=host_config(SandboxSpec(), None, as_root=True),
        )
        await engine.start(container)
        async with asyncio.timeout(60):
            while "said" not in await engine.logs(container):
                await asyncio.sleep(0.05)
        assert await engine.usage(container) is not None
        assert await engine.find_changed_path(container, "/opt") == "/opt/x"
        await engine.commit(container, f"{name}:2", {"of": "a test"})
        assert (image := await engine.find_image(f"{name}:2")) is not None
        assert image.labels["of"] == "a test"
        assert container in {each.id for each in await engine.list_containers(OWNER_LABEL)}
        await engine.kill(container)
        await engine.remove(container)
        assert await engine.inspect(container) is None
        with pytest.raises(ImageUnavailable):
            await engine.pull("registry.invalid/nothing:1")
    finally:
        await engine.remove(name)
        assert all([await engine.remove_image(f"{name}:{tag}") for tag in (2, 1)])
        await engine.close()


async def test_foreign_containers_look_like_missing_ones(
    proxy_socket: Path, engine: docker.DockerClient, foreign_container: Any
) -> None:
    assert "foreign-secret" in str(engine.api.inspect_container(foreign_container.id))
    worker = (await asyncio.to_thread(docker_client, proxy_socket)).api
    for name in (foreign_container.id, foreign_container.id[:12], foreign_container.name):
        for act in (
            lambda name=name: worker.inspect_container(name),
            lambda name=name: worker.kill(name),
            lambda name=name: worker.logs(name),
            lambda name=name: worker.exec_create(name, ["cat", "/proc/self/environ"]),
            lambda name=name: worker.commit(name, "patchwright-stolen"),
            lambda name=name: worker.remove_container(name, force=True),
        ):
            with pytest.raises(docker.errors.APIError, match="No such Patchwright container"):
                await asyncio.to_thread(act)
    exec_id = engine.api.exec_create(foreign_container.id, ["cat", "/proc/self/environ"])["Id"]
    with pytest.raises(docker.errors.APIError, match="No such Patchwright container"):
        await asyncio.to_thread(lambda: worker.exec_start(exec_id))
    assert b"foreign-secret" in engine.api.exec_start(exec_id)
    with pytest.raises(
        docker.errors.APIError,
        match="the Docker proxy rejected this request: containers may only be listed by the label",
    ):
        await asyncio.to_thread(worker.containers)
    foreign_container.reload()
    assert foreign_container.status == "running"


@pytest.mark.slow
async def test_a_pipelined_second_request_is_ignored(proxy_socket: Path, foreign_container: Any) -> None:
    second = f"GET /containers/{foreign_container.id}/json HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    ping = b"GET /_ping HTTP/1.1\r\nHost: x\r\n"
    assert b"foreign-secret" in await send_raw(
        ENGINE, ping + b"\r\n" + second
    )  # as the engine itself reads it
    upgraded = ping + b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n" + second
    nobody = b"POST /exec/nobody/start HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
    lengths = b"GET /_ping HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n"
    for request in (
        ping + b"\r\n" + second,
        upgraded,
        nobody + b"Content-Length: 2\r\n\r\n{}" + second,
        lengths + second,
        ping + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + second,
    ):
        assert b"foreign-secret" not in await send_raw(proxy_socket, request), request


async def test_invalid_requests_only_close_their_connection(proxy_socket: Path) -> None:
    for request in (b"\x16\x03\x01 hello\r\n\r\n", b"GET\r\n\r\n", b"A" * 300_000, b""):
        await send_raw(proxy_socket, request)
    huge = b"POST /containers/create HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n" + b"x" * (
        2 << 20
    )
    assert b"the body is too large" in await send_raw(proxy_socket, huge)
    assert b"HTTP/1.1 200" in await send_raw(proxy_socket, b"GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n")


async def test_only_the_owner_and_the_given_group_can_connect(short_tmp: Path) -> None:
    private, shared = short_tmp / "a.sock", short_tmp / "b.sock"
    async with DockerProxy(ENGINE).listen(private), DockerProxy(ENGINE).listen(shared, os.getgid()):
        assert (private.stat().st_mode & 0o777, shared.stat().st_mode & 0o777) == (0o600, 0o660)


async def test_a_missing_group_is_an_error(short_tmp: Path) -> None:
    with pytest.raises(SettingsError, match=r"the Docker proxy cannot listen at .*no such group: 'nobodys'$"):
        async with DockerProxy(ENGINE).listen(short_tmp / "a.sock", "nobodys"):
            pass


async def test_a_missing_directory_is_an_error_and_stays_missing(short_tmp: Path) -> None:
    with pytest.raises(SettingsError, match=r"there is no directory .*/nowhere"):
        async with DockerProxy(ENGINE).listen(short_tmp / "nowhere" / "a.sock"):
            pass
    assert not (short_tmp / "nowhere").exists()


async def test_a_file_is_not_replaced_by_the_socket(short_tmp: Path) -> None:
    (short_tmp / "notes.txt").write_text("mine")
    with pytest.raises(SettingsError, match=r"notes\.txt is not a socket; set --listen"):
        async with DockerProxy(ENGINE).listen(short_tmp / "notes.txt"):
            pass
    assert (short_tmp / "notes.txt").read_text() == "mine"


async def test_the_socket_of_a_killed_proxy_is_replaced(short_tmp: Path) -> None:
    socket_path = short_tmp / "engine.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(socket_path))
    stale.close()
    async with DockerProxy(ENGINE).listen(socket_path):
        assert json.loads(
            (await send_raw(socket_path, b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")[
                2
            ]
        )


async def test_a_missing_engine_socket_is_an_error(short_tmp: Path) -> None:
    with pytest.raises(SettingsError, match="is not a socket; set --engine"):
        async with DockerProxy(short_tmp / "nothing").listen(short_tmp / "proxy.sock"):
            pass
