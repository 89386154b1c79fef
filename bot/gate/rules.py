"""What a worker may ask of an engine that is not its own. Pure: a request in, a judgement out.

Whoever reaches an engine's socket is root on its machine. These rules leave of the engine's API what
`runtime/engine.py` uses: containers that are confined as `runtime/confinement.py` confines them, and images with our
name. All else is refused, also what a later engine brings.
Source: docs.docker.com/reference/api/engine
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from runtime.confinement import SETUP, user
from runtime.image import SCRATCH
from runtime.reaper import OWNER
from runtime.seccomp import profile

OUR_IMAGES = "patchwright-"
"""Begins the name of every image that may be made, named or removed."""
OLDEST = (1, 24)  # before, a start took a host configuration of its own
Kind: TypeAlias = Literal["container", "exec"]


class Ask(NamedTuple):
    """One request to the engine."""

    method: str
    target: str
    """Path and query, as they were sent."""
    body: bytes = b""
    """Empty where `Judgement.streams`: it is not looked at."""


class Judgement(NamedTuple):
    """Whether a request goes on."""

    refusal: str = ""
    """Why it does not; "": it does, if `owned` is ours."""
    owned: tuple[Kind, str] | None = None
    """What has to be ours by its label: a container, or a program in one, by name or id."""


Query: TypeAlias = Mapping[str, str]
Check: TypeAlias = Callable[[str, Query, bytes], Judgement]

YES = Judgement()


def streams(ask: Ask) -> bool:
    """Whether the body of this request is passed on as it comes: a build's files."""
    return ask.method == "POST" and _parted(ask.target)[0] == "/build"


def judge(ask: Ask) -> Judgement:
    """Whether this may be asked."""
    path, query, version = _parted(ask.target)
    if version is not None and version < OLDEST:
        return Judgement("the API's version is too old")
    if any(part in (".", "..") for part in path.split("/")):
        return Judgement("no path of the API")
    for method, pattern, check in ROUTES:
        if method == ask.method and (found := pattern.fullmatch(path)):
            return check(found[1] if found.groups() else "", query, ask.body)
    return Judgement(f"{ask.method} {path[:200]} is none of what Patchwright asks of an engine")


def is_ours(labels: Mapping[str, str] | None) -> bool:
    """Whether a container with these labels is one of ours."""
    return OWNER in (labels or {})


def _parted(target: str) -> tuple[str, Query, tuple[int, int] | None]:
    parts = urlsplit(target)
    path, version = unquote(parts.path), None
    if found := re.match(r"/v(\d{1,3})\.(\d{1,3})(?=/)", path):
        path, version = path[found.end() :], (int(found[1]), int(found[2]))
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = dict(pairs)
    # A name twice: the engine may read the other one. Kept as what no check lets through.
    query |= {name: "\0" for name, _ in pairs if sum(name == other for other, _ in pairs) > 1}
    return path, query, version


# --- what may be asked --------------------------------------------------------------------------------------


def _freely(name: str, query: Query, body: bytes) -> Judgement:
    return YES


def _of_ours(name: str, query: Query, body: bytes) -> Judgement:
    return (
        Judgement(owned=("container", name)) if not _said(body) else Judgement("a body, where none belongs")
    )


def _listed(name: str, query: Query, body: bytes) -> Judgement:
    """Containers of ours: all by our label, or one by its id."""
    filters = _json(query.get("filters", "{}"))
    match filters if isinstance(filters, dict) else {}:
        case {"label": [str(label)]} if label.partition("=")[0] == OWNER:
            return YES
        case {"id": [str(container)]}:
            return Judgement(owned=("container", container))
        case _:
            return Judgement(f"containers are listed by the label {OWNER}, or one by its id")


def _made(name: str, query: Query, body: bytes) -> Judgement:
    asked = _json(body)
    if not isinstance(asked, dict):
        return Judgement("a container is described by a JSON object")
    return Judgement(loose(asked))


def _run(name: str, query: Query, body: bytes) -> Judgement:
    asked = _json(body)
    if not isinstance(asked, dict) or asked.get("Privileged"):
        return Judgement("no program is started with privileges")
    return Judgement(owned=("container", name))


def _begun(name: str, query: Query, body: bytes) -> Judgement:
    return Judgement(owned=("exec", name))


def _renamed(name: str, query: Query, body: bytes) -> Judgement:
    return Judgement(owned=("container", name))


def _kept(name: str, query: Query, body: bytes) -> Judgement:
    container = query.get("container", "")
    if not _is_our_image(query.get("repo", "")):
        return Judgement(f"images are kept as {OUR_IMAGES}*")
    if _said(body) or not container or "\0" in container:
        return Judgement("a container of ours is kept as it is")
    return Judgement(owned=("container", container))


def _pulled(name: str, query: Query, body: bytes) -> Judgement:
    if "fromSrc" in query or query.keys() - {"fromImage", "tag", "platform"}:
        return Judgement("an image is pulled by its name")
    return YES


def _named(name: str, query: Query, body: bytes) -> Judgement:
    return YES if _is_our_image(query.get("repo", "")) else Judgement(f"images are named {OUR_IMAGES}*")


def _unnamed(name: str, query: Query, body: bytes) -> Judgement:
    return YES if _is_our_image(name) else Judgement(f"only images named {OUR_IMAGES}* are removed, by name")


BUILDING = {"t", "q", "nocache", "rm", "forcerm", "pull", "buildargs", "networkmode", "remote", "dockerfile"}


def _built(name: str, query: Query, body: bytes) -> Judgement:
    if query.keys() - BUILDING or query.get("remote"):
        return Judgement("a build has files, arguments and a name, and nothing else")
    if query.get("networkmode") not in ("none", "default"):
        return Judgement("a build has no network, or the engine's own bridge")
    return _named("", {"repo": query.get("t", "")}, b"")


def _route(method: str, path: str, check: Check) -> tuple[str, re.Pattern[str], Check]:
    return method, re.compile(path), check


_ONE = r"([A-Za-z0-9][A-Za-z0-9_.-]*)"
_IMAGE = r"([A-Za-z0-9][A-Za-z0-9_./:@-]*)"
ROUTES = (
    _route("GET", "/_ping", _freely),
    _route("HEAD", "/_ping", _freely),
    _route("GET", "/version", _freely),
    _route("GET", "/info", _freely),
    _route("GET", "/images/json", _freely),
    _route("GET", f"/images/{_IMAGE}/json", _freely),
    _route("POST", "/images/create", _pulled),
    _route("POST", f"/images/{_IMAGE}/tag", _named),
    _route("DELETE", f"/images/{_IMAGE}", _unnamed),
    _route("POST", "/build", _built),
    _route("POST", "/commit", _kept),
    _route("GET", "/containers/json", _listed),
    _route("POST", "/containers/create", _made),
    _route("GET", f"/containers/{_ONE}/json", _of_ours),
    _route("GET", f"/containers/{_ONE}/logs", _of_ours),
    _route("GET", f"/containers/{_ONE}/changes", _of_ours),
    _route("POST", f"/containers/{_ONE}/start", _of_ours),
    _route("POST", f"/containers/{_ONE}/kill", _of_ours),
    _route("POST", f"/containers/{_ONE}/rename", _renamed),
    _route("DELETE", f"/containers/{_ONE}", _of_ours),
    _route("POST", f"/containers/{_ONE}/exec", _run),
    _route("POST", f"/exec/{_ONE}/start", _begun),
    _route("GET", f"/exec/{_ONE}/json", _begun),
)


def _is_our_image(name: str) -> bool:
    return name.startswith(OUR_IMAGES) and "/" not in name and "\0" not in name


def _json(text: str | bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object none of whose names comes twice, in any case: the engine's reader takes any of them."""
    if len({name.lower() for name, _ in pairs}) < len(pairs):
        raise ValueError("a name comes twice")
    return dict(pairs)


def _said(body: bytes) -> bool:
    return body.strip() not in (b"", b"{}", b"null")


# --- what confines a container ------------------------------------------------------------------------------

Held: TypeAlias = Callable[[Any], bool]


def loose(asked: Mapping[str, Any]) -> str:
    """What of a container to be made is looser than a sandbox; "" is nothing."""
    host = asked.get("HostConfig")
    if not isinstance(host, dict):
        return "a container without limits"
    found = [name for name, held in CONTAINER.items() if not held(asked.get(name))]
    found += [f"HostConfig.{name}" for name, held in HOST.items() if not held(host.get(name))]
    found += [name for name, value in asked.items() if name not in CONTAINER and value]
    found += [f"HostConfig.{name}" for name, value in host.items() if name not in HOST and value]
    if host.get("MemorySwap") != host.get("Memory"):
        found.append("HostConfig.MemorySwap")
    if not found:
        return ""
    return f"a container is confined as a sandbox of this version of Patchwright: not so {', '.join(found)[:500]}"


def _anything(value: Any) -> bool:
    return True


def _limit(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _calls(value: Any) -> bool:
    return isinstance(value, list) and sorted(map(str, value)) == [
        "no-new-privileges",
        f"seccomp={profile()}",
    ]


def _log(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("Type") == "json-file"
        and (value.get("Config") or {}).keys() <= {"max-size", "max-file"}
    )


CONTAINER: Mapping[str, Held] = {
    "HostConfig": _anything,
    "Image": lambda value: isinstance(value, str),
    "User": lambda value: value in (user(root=False), user(root=True)),
    "Labels": lambda value: isinstance(value, dict) and is_ours(value),
    **dict.fromkeys(("Cmd", "Entrypoint", "Env", "WorkingDir", "Hostname", "Healthcheck"), _anything),
    **dict.fromkeys(("Tty", "OpenStdin", "StdinOnce"), _anything),
    **dict.fromkeys(("AttachStdin", "AttachStdout", "AttachStderr", "NetworkDisabled"), _anything),
}
"""What may stand in the description of a container, and how. All else is empty."""

HOST: Mapping[str, Held] = {
    "NetworkMode": lambda value: value == "none",
    "CapDrop": lambda value: value == ["ALL"],
    "CapAdd": lambda value: not value or (isinstance(value, list) and set(map(str, value)) <= SETUP.keys()),
    "SecurityOpt": _calls,
    "Memory": _limit,
    "MemorySwap": _limit,
    "PidsLimit": _limit,
    "NanoCpus": _limit,
    "ShmSize": _limit,
    "Tmpfs": lambda value: not value or (isinstance(value, dict) and value.keys() == {SCRATCH}),
    "LogConfig": _log,
    "Init": _anything,
    "Ulimits": _anything,
}
"""The same for its host configuration: no mount, no device, no namespace of the host's, no privilege."""
