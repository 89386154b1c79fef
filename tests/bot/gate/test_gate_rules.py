"""What a worker may ask of an engine: as `runtime/engine.py` asks it, and nothing looser."""

import json
from typing import Any

import pytest

from bot.gate.rules import Ask, judge
from runtime.seccomp import profile

OURS = {"io.patchwright.owner": "somebody"}


def container(host: dict[str, Any] | None = None, **changed: Any) -> bytes:
    """A sandbox as it is described to the engine, but for these changes."""
    described: dict[str, Any] = {
        "Image": "debian:bookworm-slim",
        "User": "10001:10001",
        "Cmd": ["sleep", "1"],
        "Labels": OURS,
        "HostConfig": {
            "NetworkMode": "none",
            "Init": True,
            "CapDrop": ["ALL"],
            "CapAdd": [],
            "SecurityOpt": ["no-new-privileges", f"seccomp={profile()}"],
            "Memory": 1 << 30,
            "MemorySwap": 1 << 30,
            "PidsLimit": 100,
            "NanoCpus": 1_000_000_000,
            "ShmSize": 1 << 20,
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m"}},
            **(host or {}),
        },
        **changed,
    }
    return json.dumps(described).encode()


CREATE = "/v1.41/containers/create?name=patchwright-x"
ALLOWED = [
    ("GET", "/version", b""),
    ("GET", "/v1.41/_ping", b""),
    ("GET", "/v1.41/images/debian:bookworm-slim/json", b""),
    ("GET", "/v1.41/images/registry.example:5000/team/base@sha256:00/json", b""),
    ("POST", "/v1.41/images/create?tag=bookworm-slim&fromImage=debian", b""),
    ("POST", "/v1.41/images/patchwright-x:1/tag?tag=2&repo=patchwright-x&force=0", b""),
    ("DELETE", "/v1.41/images/patchwright-x:1?force=False&noprune=False", b""),
    ("POST", "/v1.41/build?t=patchwright-x%3A2&rm=True&buildargs=%7B%7D&networkmode=none", b""),
    ("POST", "/v1.41/commit?container=abc&repo=patchwright-x&tag=1&changes=LABEL+a%3D%22b%22", b"{}"),
    ("GET", '/v1.41/containers/json?filters={"label":["io.patchwright.owner"]}', b""),
    ("GET", '/v1.41/containers/json?size=1&filters={"id":["abc"]}', b""),
    ("POST", CREATE, container()),
    ("POST", CREATE, container({"CapAdd": ["CHOWN", "SETUID"]}, User="0:0")),
    ("POST", "/v1.41/containers/abc/start", b""),
    ("POST", "/v1.41/containers/abc/kill", b""),
    ("POST", "/v1.41/containers/abc/rename?name=patchwright-y", b""),
    ("POST", "/v1.41/containers/abc/exec", b'{"Cmd": ["true"], "User": "0", "Privileged": false}'),
    ("POST", "/v1.41/exec/abc/start", b'{"Tty": false, "Detach": false}'),
    ("DELETE", "/v1.41/containers/abc?v=True&force=True", b""),
]
LOOSER = [
    {"Privileged": True},
    {"Binds": ["/:/host"]},
    {"Binds": ["/run/patchwright/x:/run/patchwright:ro"]},
    {"Mounts": [{"Type": "bind", "Source": "/", "Target": "/host"}]},
    {"VolumesFrom": ["other"]},
    {"Devices": [{"PathOnHost": "/dev/sda"}]},
    {"DeviceCgroupRules": ["b *:* rwm"]},
    {"DeviceRequests": [{"Count": -1}]},
    {"NetworkMode": "host"},
    {"NetworkMode": "bridge"},
    {"NetworkMode": "container:other"},
    {"PidMode": "host"},
    {"IpcMode": "host"},
    {"UTSMode": "host"},
    {"UsernsMode": "host"},
    {"CgroupnsMode": "host"},
    {"CgroupParent": "/"},
    {"Runtime": "another"},
    {"Sysctls": {"kernel.core_pattern": "|/x"}},
    {"CapAdd": ["SYS_ADMIN"]},
    {"CapAdd": "ALL"},
    {"CapDrop": []},
    {"SecurityOpt": ["no-new-privileges", "seccomp=unconfined"]},
    {"SecurityOpt": [f"seccomp={profile()}"]},
    {"SecurityOpt": ["no-new-privileges", f"seccomp={profile()}", "apparmor=unconfined"]},
    {"MaskedPaths": [""], "ReadonlyPaths": [""]},
    {"Memory": 0, "MemorySwap": 0},
    {"Memory": True, "MemorySwap": True},
    {"MemorySwap": -1},
    {"PidsLimit": -1},
    {"NanoCpus": 0},
    {"Tmpfs": {"/etc": "rw"}},
    {"LogConfig": {"Type": "syslog", "Config": {"syslog-address": "tcp://elsewhere:514"}}},
    {"RestartPolicy": {"Name": "always"}},
    {"PortBindings": {"80/tcp": [{"HostPort": "80"}]}},
    {"privileged": True},
]
REFUSED = [
    ("POST", CREATE, b""),
    ("POST", CREATE, b"[]"),
    ("POST", CREATE, b"{"),
    ("POST", CREATE, b"[" * 100_000),
    ("POST", CREATE, b'{"Image": "x", "Labels": {"io.patchwright.owner": "x"}}'),
    ("POST", CREATE, container(User="0")),
    ("POST", CREATE, container(Labels={})),
    ("POST", CREATE, container(Volumes={"/x": {}})),
    ("POST", CREATE, container(NetworkingConfig={"EndpointsConfig": {"bridge": {}}})),
    # The engine reads names in any case, and of two the last.
    ("POST", CREATE, container()[:-1] + b', "hostconfig": {"Privileged": true}}'),
    ("POST", CREATE, b'{"HostConfig": {}, ' + container()[1:]),
    ("POST", "/v1.23/containers/abc/start", b""),
    ("POST", "/v1.41/containers/abc/start", b'{"Binds": ["/:/host"]}'),
    ("POST", "/v1.41/containers/abc/exec", b'{"Cmd": ["true"], "Privileged": true}'),
    ("POST", "/v1.41/containers/abc/exec", b'{"Cmd": ["true"], "privileged": true, "Privileged": false}'),
    ("POST", "/v1.41/containers/abc/update", b'{"Memory": 0}'),
    ("PUT", "/v1.41/containers/abc/archive?path=/", b""),
    ("GET", "/v1.41/containers/abc/archive?path=/", b""),
    ("GET", "/v1.41/containers/json", b""),
    ("GET", "/v1.41/containers/json?all=1&filters={}", b""),
    ("GET", '/v1.41/containers/json?filters={"label":["other"]}', b""),
    ("GET", '/v1.41/containers/json?filters={"label":["io.patchwright.owner"]}&filters={}', b""),
    ("GET", "/v1.41/images/../containers/json", b""),
    ("GET", "/v1.41/images/%2e%2e/containers/abc/json", b""),
    ("DELETE", "/v1.41/images/debian:bookworm-slim", b""),
    ("DELETE", "/v1.41/images/evil/patchwright-x", b""),
    ("POST", "/v1.41/images/debian:bookworm-slim/tag?repo=debian&tag=mine", b""),
    ("POST", "/v1.41/images/create?fromSrc=http://elsewhere/x.tar&repo=debian", b""),
    ("POST", "/v1.41/images/load", b""),
    ("POST", "/v1.41/build?t=debian:bookworm-slim&networkmode=none", b""),
    ("POST", "/v1.41/build?t=patchwright-x&networkmode=host", b""),
    ("POST", "/v1.41/build?t=patchwright-x&networkmode=none&version=2", b""),
    ("POST", "/v1.41/build?t=patchwright-x&networkmode=none&remote=http://elsewhere/", b""),
    ("POST", "/v1.41/build?t=patchwright-x&t=debian&networkmode=none", b""),
    ("POST", "/v1.41/commit?container=abc&repo=debian", b""),
    ("POST", "/v1.41/commit?container=abc&repo=patchwright-x", b'{"Volumes": {"/": {}}}'),
    ("GET", "/v1.41/secrets", b""),
    ("GET", "/v1.41/events", b""),
    ("POST", "/v1.41/volumes/create", b"{}"),
    ("POST", "/v1.41/networks/create", b"{}"),
    ("POST", "/v1.41/plugins/pull?remote=x", b""),
    ("POST", "/v1.41/swarm/init", b"{}"),
    ("POST", "/v1.41/session", b""),
    ("POST", "/grpc", b""),
    ("CONNECT", "/", b""),
]


@pytest.mark.parametrize(("method", "target", "body"), ALLOWED, ids=lambda value: str(value)[:60])
def test_what_a_sandbox_needs_is_let_through(method: str, target: str, body: bytes) -> None:
    assert judge(Ask(method, target, body)).refusal == ""


@pytest.mark.parametrize(("method", "target", "body"), REFUSED, ids=lambda value: str(value)[:60])
def test_all_else_is_refused(method: str, target: str, body: bytes) -> None:
    assert judge(Ask(method, target, body)).refusal


@pytest.mark.parametrize("host", LOOSER, ids=str)
def test_a_container_that_is_confined_less_than_a_sandbox_is_refused_by_the_name_of_what_is_loose(
    host: dict[str, Any],
) -> None:
    refusal = judge(Ask("POST", CREATE, container(host))).refusal
    assert any(f"HostConfig.{name}" in refusal for name in host), refusal


def test_what_is_done_to_a_container_or_a_program_is_done_to_ours() -> None:
    """Every request that names one says so, and none that is let through names one unsaid."""
    for method, target, body in ALLOWED:
        names_one = "abc" in target
        assert (judge(Ask(method, target, body)).owned is not None) is names_one, target
