"""The request policy allows the calls of `runtime/docker/engine.py`, and nothing else."""

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from patchwright.bot.docker_proxy.request_policy import EngineRequest, decide
from patchwright.runtime.docker.seccomp import build_profile

OWN_LABELS = {"io.patchwright.owner": "somebody"}
ULIMITS = (("core", 0, 0), ("nofile", 16_384, 16_384), ("fsize", 1 << 30, 1 << 30))


def container(host: dict[str, Any] | None = None, **changed: Any) -> bytes:
    """Returns the description of a sandbox container with these changes."""
    description: dict[str, Any] = {
        "Image": "debian:bookworm-slim",
        "User": "10001:10001",
        "Cmd": ["sleep", "1"],
        "Labels": OWN_LABELS,
        "Healthcheck": {"Test": ["NONE"], "Interval": None},
        "HostConfig": {
            "NetworkMode": "none",
            "Init": True,
            "CapDrop": ["ALL"],
            "CapAdd": [],
            "SecurityOpt": ["no-new-privileges", f"seccomp={build_profile()}"],
            "Memory": 1 << 30,
            "MemorySwap": 1 << 30,
            "PidsLimit": 100,
            "NanoCpus": 1_000_000_000,
            "ShmSize": 1 << 20,
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
            "Tmpfs": {"/tmp": "rw,exec,nosuid,nodev,mode=1777,size=512m"},
            "Ulimits": [dict(zip(("Name", "Soft", "Hard"), each, strict=True)) for each in ULIMITS],
            **(host or {}),
        },
        **changed,
    }
    return json.dumps(description).encode()


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
    ("GET", '/v1.41/images/json?all=0&filters={"reference":["patchwright-x"],"label":["a"]}', b""),
    ("GET", '/v1.41/containers/json?size=1&filters={"id":["abc"]}', b""),
    ("POST", CREATE, container()),
    ("POST", CREATE, container({"CapAdd": ["CHOWN", "SETUID"]}, User="0:0")),
    ("POST", "/v1.41/containers/abc/start", b""),
    ("POST", "/v1.41/containers/abc/kill", b""),
    ("POST", "/v1.41/containers/abc/exec", b'{"Cmd": ["true"], "User": "0", "Privileged": false}'),
    ("POST", "/v1.41/exec/abc/start", b'{"Tty": false, "Detach": false}'),
    ("DELETE", "/v1.41/containers/abc?v=True&force=True", b""),
]
WEAKER_LIMITS = [
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
    {"SecurityOpt": [f"seccomp={build_profile()}"]},
    {"SecurityOpt": ["no-new-privileges", f"seccomp={build_profile()}", "apparmor=unconfined"]},
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
    {"Memory": 10**15, "MemorySwap": 10**15},
    {"PidsLimit": 10**15},
    {"NanoCpus": 10**18},
    {"ShmSize": 10**15},
    {"Tmpfs": {"/tmp": "rw,suid,dev"}},
    {"LogConfig": {"Type": "json-file", "Config": {"max-size": "900g"}}},
    {"Init": False},
    {"Ulimits": []},
    {"Ulimits": [{"Name": "core", "Soft": -1, "Hard": -1}]},
    {"Ulimits": [{"Name": "nofile", "Soft": 10**9, "Hard": 10**9}]},
]
REJECTED = [
    ("POST", CREATE, b""),
    ("POST", CREATE, b"[]"),
    ("POST", CREATE, b"{"),
    ("POST", CREATE, b"[" * 100_000),
    ("POST", CREATE, b'{"Image": "x", "Labels": {"io.patchwright.owner": "x"}}'),
    ("POST", CREATE, container(User="0")),
    ("POST", CREATE, container(Labels={})),
    ("POST", CREATE, container(Volumes={"/x": {}})),
    ("POST", CREATE, container(NetworkingConfig={"EndpointsConfig": {"bridge": {}}})),
    # The engine accepts names in any case and uses the last duplicate.
    ("POST", CREATE, container()[:-1] + b', "hostconfig": {"Privileged": true}}'),
    ("POST", CREATE, b'{"HostConfig": {}, ' + container()[1:]),
    # It also folds two non-ASCII letters: U+017F to s, U+212A to k.
    ("POST", CREATE, container()[:-1] + ', "Ho\u017ftConfig": null}'.encode()),
    ("POST", CREATE, container()[:-1] + b', "Ho\\u017ftConfig": null}'),
    ("POST", CREATE, container({"\u017fecurityOpt": []})),
    ("POST", CREATE, container({"Pid\u017fLimit": 0})),
    ("POST", CREATE, container({"Networ\u212aMode": "host"})),
    ("POST", CREATE, container(Labels={**OWN_LABELS, "ofelia.job-local.x.command": "id"})),
    ("POST", CREATE, container(Cmd={"a": "b"})),
    ("POST", CREATE, container(Healthcheck={"Test": ["CMD", "true"], "Interval": 1})),
    ("POST", "/v1.41/containers/create?name=3f", container()),
    ("POST", "/v1.41/containers/create", container()),
    ("POST", CREATE + "&platform=linux/arm64", container()),
    ("POST", "/v1.41/containers/abc/rename?name=patchwright-y", b""),
    ("POST", "/v1.41/containers/abc/rename?name=3f", b""),
    ("POST", "/v1.41/containers/abc/start?checkpoint=x&checkpoint-dir=/etc", b""),
    ("POST", "/v1.40/containers/abc/start", b""),
    ("POST", "/v1.23/containers/abc/start", b""),
    ("POST", "/v1.41/containers/abc/start", b'{"Binds": ["/:/host"]}'),
    ("POST", "/v1.41/containers/abc/exec", b'{"Cmd": ["true"], "Privileged": true}'),
    ("POST", "/v1.41/containers/abc/exec", b'{"Cmd": ["true"], "privileged": true, "Privileged": false}'),
    ("POST", "/v1.41/containers/abc/exec", b'{"Cmd": ["true"], "privileged": true}'),
    ("POST", "/v1.41/containers/abc/exec", '{"Cmd": ["true"], "Cmd\u017f": 1}'.encode()),
    ("POST", "/v1.41/containers/abc/update", b'{"Memory": 0}'),
    ("PUT", "/v1.41/containers/abc/archive?path=/", b""),
    ("GET", "/v1.41/containers/abc/archive?path=/", b""),
    ("GET", "/v1.41/containers/json", b""),
    ("GET", "/v1.41/containers/json?all=1&filters={}", b""),
    ("GET", '/v1.41/containers/json?filters={"label":["other"]}', b""),
    ("GET", '/v1.41/containers/json?filters={"label":["io.patchwright.owner"]}&filters={}', b""),
    # A checked name becomes part of a path.
    ("GET", '/v1.41/containers/json?filters={"id":["abc/json?x=|."]}', b""),
    ("GET", '/v1.41/containers/json?filters={"id":["."]}', b""),
    ("GET", '/v1.41/containers/json?filters={"id":["abc"],"name":["x"]}', b""),
    ("POST", "/v1.41/commit?container=abc/json%3f&repo=patchwright-x", b"{}"),
    ("POST", "/v1.41/commit?container=&repo=patchwright-x", b"{}"),
    ("GET", "/v1.41/images/json", b""),
    ("GET", '/v1.41/images/json?filters={"reference":["*"]}', b""),
    ("GET", '/v1.41/images/json?filters={"reference":["patchwright-x","*"]}', b""),
    ("GET", "/v1.41//containers/json", b""),
    ("GET", "//[/containers/abc/json", b""),
    ("GET", "http://x/containers/json", b""),
    ("GET", "/v1.41/images/../containers/json", b""),
    ("GET", "/v1.41/images/%2e%2e/containers/abc/json", b""),
    ("DELETE", "/v1.41/images/debian:bookworm-slim", b""),
    ("DELETE", "/v1.41/images/evil/patchwright-x", b""),
    ("POST", "/v1.41/images/debian:bookworm-slim/tag?repo=debian&tag=mine", b""),
    ("POST", "/v1.41/images/create?fromSrc=http://elsewhere/x.tar&repo=debian", b""),
    ("POST", "/v1.41/images/create?fromImage=debian&platform=linux/arm64", b""),
    ("POST", "/v1.41/images/create?fromImage=", b""),
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
def test_requests_of_a_sandbox_are_allowed(method: str, target: str, body: bytes) -> None:
    assert decide(EngineRequest(method, target, body)).rejection == ""


@pytest.mark.parametrize(("method", "target", "body"), REJECTED, ids=lambda value: str(value)[:60])
def test_other_requests_are_rejected(method: str, target: str, body: bytes) -> None:
    assert decide(EngineRequest(method, target, body)).rejection


@pytest.mark.parametrize("host", WEAKER_LIMITS, ids=str)
def test_a_container_with_weaker_limits_is_rejected(
    host: dict[str, Any],
) -> None:
    rejection = decide(EngineRequest("POST", CREATE, container(host))).rejection
    assert any(f"HostConfig.{name}" in rejection for name in host), rejection


def test_requests_for_containers_require_ownership() -> None:
    """Every allowed request that names a container requires ownership of it."""
    for method, target, body in ALLOWED:
        names_one = "abc" in target
        assert (decide(EngineRequest(method, target, body)).owned_object is not None) is names_one, target


FULL_ID = "0f" * 32


def test_forwarded_requests_use_full_ids() -> None:
    for method, target, body in ALLOWED:
        decision = decide(EngineRequest(method, target, body))
        sent = decision.build_request(FULL_ID).target
        assert "abc" not in sent
        assert (FULL_ID in sent) is (decision.owned_object is not None), sent


def test_forwarded_bodies_contain_only_checked_fields() -> None:
    request = container()[:-1] + b', "Domainname": null, "MacAddress": "", "NetworkingConfig": {}}'
    sent = decide(EngineRequest("POST", CREATE, request)).build_request("")
    assert json.loads(sent.body) == json.loads(container())
    exec_description = b'{"Container": "other", "Cmd": ["true"], "Privileged": false, "detachKeys": "ctrl-a"}'
    sent = decide(EngineRequest("POST", "/v1.41/containers/abc/exec", exec_description)).build_request(
        FULL_ID
    )
    assert sent == EngineRequest("POST", f"/v1.41/containers/{FULL_ID}/exec", b'{"Cmd": ["true"]}')
    sent = decide(EngineRequest("POST", "/v1.41/exec/abc/start", b'{"Tty": 7, "Other": 1}')).build_request(
        FULL_ID
    )
    assert json.loads(sent.body) == {"Detach": False, "Tty": False}
    # The engine prefers form values in a body to the query, so the body is dropped.
    form = b"repo=debian&tag=bookworm-slim"
    sent = decide(
        EngineRequest("POST", "/v1.41/images/patchwright-x/tag?repo=patchwright-x", form)
    ).build_request("")
    assert sent.body == b""


@pytest.mark.parametrize("hidden", ["a;repo=debian", "a%26repo=debian", "a%3brepo=debian", "a#repo=debian"])
def test_ambiguous_query_separators_are_encoded(hidden: str) -> None:
    request = EngineRequest("POST", f"/v1.41/images/debian/tag?repo=patchwright-x&tag={hidden}")
    sent = decide(request).build_request("").target
    assert not {";", "#"} & set(sent)
    (name, _), (tag, value) = parse_qsl(urlsplit(sent).query)
    assert (name, tag, value[:1], value[2:]) == ("repo", "tag", "a", "repo=debian")
