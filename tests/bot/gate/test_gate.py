"""The gate before a real engine: what goes through it, and that the same attacks work where there is none."""

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

from bot.gate.gate import Gate
from resolver.errors import SettingsError
from runtime.docker.confinement import host_config, user
from runtime.docker.engine import Engine
from runtime.docker.reaper import OWNER, RUN
from runtime.errors import ImageUnavailable
from runtime.sandbox import SandboxSpec
from tests.bot.gate.engines import ENGINE, IMAGE, raw

pytestmark = pytest.mark.docker


def through(place: Path) -> docker.DockerClient:
    return docker.DockerClient(f"unix://{place}")


async def test_what_would_make_a_worker_root_of_the_machine_works_at_the_engine_and_not_at_the_gate(
    gate: Path, engine: docker.DockerClient
) -> None:
    ways: list[dict[str, Any]] = [
        {"volumes": ["/etc:/host:ro"], "command": ["cat", "/host/hostname"]},
        {"security_opt": ["seccomp=unconfined"], "command": ["true", "and", "said"]},
        {"pid_mode": "host", "command": ["cat", "/proc/1/comm"]},
        {"network_mode": "host", "command": ["cat", "/proc/net/dev"]},
    ]
    worker = await asyncio.to_thread(through, gate)
    for way in ways:
        options = {"network_mode": "none", "remove": True, **way}
        await asyncio.to_thread(engine.containers.run, IMAGE, **options)  # raises where it fails
        with pytest.raises(docker.errors.APIError, match="the gate refuses: a container is confined"):
            await asyncio.to_thread(worker.containers.run, IMAGE, name="patchwright-gate", **options)


async def test_all_that_a_worker_does_with_an_engine_goes_through(gate: Path) -> None:
    engine, name = await Engine.connect(f"unix://{gate}"), f"patchwright-{secrets.token_hex(4)}"
    labels = {OWNER: "somebody", RUN: "x"}
    try:
        await engine.build("an image", {"Dockerfile": f"FROM {IMAGE}\nLABEL a=b\n".encode()}, [f"{name}:1"])
        assert [image.tags for image in await engine.images(name, "a=b")] == [(f"{name}:1",)]
        container = await engine.create(
            name,
            image=f"{name}:1",
            command=["sh", "-c", "echo said; mkdir /opt/x; sleep 600"],
            healthcheck={"test": ["NONE"]},
            user=user(root=True),
            labels=labels,
            host=host_config(SandboxSpec(), None, root=True),
        )
        await engine.start(container)
        async with asyncio.timeout(60):
            while "said" not in await engine.logs(container):
                await asyncio.sleep(0.05)
        assert await engine.size(container) is not None
        assert await engine.changed_below(container, "/opt") == "/opt/x"
        await engine.commit(container, f"{name}:2", {"of": "a test"})
        assert (kept := await engine.image(f"{name}:2")) is not None
        assert kept.labels["of"] == "a test"
        await engine.rename(container, f"{name}-b", labels)
        assert container in {each.id for each in await engine.containers(OWNER)}
        await engine.kill(container)
        await engine.remove(container)
        assert await engine.inspect(container) is None
        with pytest.raises(ImageUnavailable):
            await engine.pull("registry.invalid/nothing:1")
    finally:
        await engine.remove(f"{name}-b")
        assert all([await engine.remove_image(f"{name}:{tag}") for tag in (2, 1)])
        await engine.close()


async def test_containers_of_others_are_as_if_they_were_not_there(
    gate: Path, engine: docker.DockerClient, neighbour: Any
) -> None:
    assert "of-the-neighbour" in str(engine.api.inspect_container(neighbour.id))
    worker = (await asyncio.to_thread(through, gate)).api
    for name in (neighbour.id, neighbour.id[:12], neighbour.name):
        for act in (
            lambda name=name: worker.inspect_container(name),
            lambda name=name: worker.kill(name),
            lambda name=name: worker.logs(name),
            lambda name=name: worker.exec_create(name, ["cat", "/proc/self/environ"]),
            lambda name=name: worker.commit(name, "patchwright-stolen"),
            lambda name=name: worker.remove_container(name, force=True),
        ):
            with pytest.raises(docker.errors.APIError, match="Patchwright has no such container here"):
                await asyncio.to_thread(act)
    program = engine.api.exec_create(neighbour.id, ["cat", "/proc/self/environ"])["Id"]
    with pytest.raises(docker.errors.APIError, match="Patchwright has no such container here"):
        await asyncio.to_thread(lambda: worker.exec_start(program))
    assert b"of-the-neighbour" in engine.api.exec_start(program)
    with pytest.raises(docker.errors.APIError, match="the gate refuses: containers are listed by the label"):
        await asyncio.to_thread(worker.containers)
    neighbour.reload()
    assert neighbour.status == "running"


async def test_a_second_request_behind_an_allowed_one_is_never_read(gate: Path, neighbour: Any) -> None:
    second = f"GET /containers/{neighbour.id}/json HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    ping = b"GET /_ping HTTP/1.1\r\nHost: x\r\n"
    assert b"of-the-neighbour" in await raw(ENGINE, ping + b"\r\n" + second)  # as the engine itself reads it
    upgraded = ping + b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n" + second
    nobody = b"POST /exec/nobody/start HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
    lengths = b"GET /_ping HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n"
    for sent in (
        ping + b"\r\n" + second,
        upgraded,
        nobody + b"Content-Length: 2\r\n\r\n{}" + second,
        lengths + second,
        ping + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + second,
    ):
        assert b"neighbour" not in await raw(gate, sent), sent


async def test_what_is_no_request_ends_the_connection_and_nothing_else(gate: Path) -> None:
    for sent in (b"\x16\x03\x01 hello\r\n\r\n", b"GET\r\n\r\n", b"A" * 300_000, b""):
        await raw(gate, sent)
    huge = b"POST /containers/create HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n" + b"x" * (
        2 << 20
    )
    assert b"the body is too large" in await raw(gate, huge)
    assert b"HTTP/1.1 200" in await raw(gate, b"GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n")


async def test_only_its_owner_and_the_group_that_was_named_may_connect(short_tmp: Path) -> None:
    alone, shared = short_tmp / "a.sock", short_tmp / "b.sock"
    async with Gate(ENGINE).listening(alone), Gate(ENGINE).listening(shared, os.getgid()):
        assert (alone.stat().st_mode & 0o777, shared.stat().st_mode & 0o777) == (0o600, 0o660)


async def test_a_group_that_is_not_there_is_named(short_tmp: Path) -> None:
    with pytest.raises(SettingsError, match=r"the gate cannot listen at .*no such group: 'nobodys'"):
        async with Gate(ENGINE).listening(short_tmp / "a.sock", "nobodys"):
            pass


async def test_a_gate_takes_the_place_of_one_that_was_killed(short_tmp: Path) -> None:
    place = short_tmp / "engine.sock"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(place))
    left.close()
    async with Gate(ENGINE).listening(place):
        assert json.loads(
            (await raw(place, b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")[2]
        )


async def test_an_engine_that_is_not_there_is_named(short_tmp: Path) -> None:
    with pytest.raises(SettingsError, match="is no socket: name that of the Docker engine"):
        async with Gate(short_tmp / "nothing").listening(short_tmp / "gate.sock"):
            pass
