"""What a worker may ask of an engine that is not its own. Pure: a request in, a judgement out.

Whoever reaches an engine's socket is root on its machine. These rules leave of the engine's API what
`runtime/docker/engine.py` uses: containers that are confined as a sandbox is (`confined.py`), and images with our
name. All else is refused, also what a later engine brings. What goes on is written anew from what was judged, because
two readers differ: Go takes a JSON name in any case and U+017F for an s, a form in a body before the query, and `;`
for `&` before 1.17.
Source: docs.docker.com/reference/api/engine, pkg.go.dev/encoding/json#Unmarshal, pkg.go.dev/net/http#Request.ParseForm
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote, urlencode

from bot.gate.confined import described, is_switch, is_text, is_words
from runtime.docker.reaper import OWNER

OURS = "patchwright-"
"""Begins the name of every container, and of every image that may be made, named, listed or removed."""
OLDEST = (1, 41)  # of engine 20.10; before, a container was in the machine's own cgroup namespace
Kind: TypeAlias = Literal["container", "exec"]
Query: TypeAlias = Mapping[str, str]


class Ask(NamedTuple):
    """One request to the engine."""

    method: str
    target: str
    """Path and query."""
    body: bytes = b""
    """Empty where it `streams`: it is not looked at."""


class Judgement(NamedTuple):
    """Whether a request goes on."""

    refusal: str = ""
    """Why it does not; "": it does, if `owned` is ours."""
    owned: tuple[Kind, str] | None = None
    """What has to be ours by its label: a container, or a program in one, by name or id."""
    order: Callable[[str], Ask] = lambda owned: Ask("", "")
    """What goes on, given the full id of what is owned: a name may be another one's by the time it is read."""


class Asked(NamedTuple):
    """A request that fits a route."""

    name: str
    """What of the path the route leaves open."""
    query: Query
    body: bytes


class Yes(NamedTuple):
    """What goes on of a request."""

    query: Query
    body: bytes = b""
    owned: tuple[Kind, str] | None = None
    naming: Callable[[str], Query] = lambda owned: {}
    """What of the query names what is owned, by its full id."""


Check: TypeAlias = Callable[[Asked], Yes | str]
"""A text says why not."""


class Route(NamedTuple):
    """One call of the API."""

    method: str
    path: re.Pattern[str]
    check: Check
    names: frozenset[str]
    """What may stand in its query."""


def streams(ask: Ask) -> bool:
    """Whether the body of this request is passed on as it comes: a build's files."""
    return ask.method == "POST" and _parted(ask.target)[1] == "/build"


def upgrades(ask: Ask) -> bool:
    """Whether the engine may leave HTTP for this request: a program's input and output."""
    return ask.method == "POST" and re.fullmatch("/exec/[^/]+/start", _parted(ask.target)[1]) is not None


def judge(ask: Ask) -> Judgement:
    """Whether this may be asked, and as what it is passed on."""
    version, path, pairs = _parted(ask.target)
    if version is not None and version < OLDEST:
        return Judgement("the API's version is too old")
    if any(part in ("", ".", "..") for part in path[1:].split("/")):
        return Judgement("no path of the API")
    query = dict(pairs)
    if len(query) < len(pairs):
        return Judgement("a name comes twice in the query")
    for method, pattern, check, names in ROUTES:
        if method != ask.method or (found := pattern.fullmatch(path)) is None:
            continue
        if unknown := query.keys() - names:
            return Judgement(f"no query of this call has {sorted(unknown)[0][:100]}")
        verdict = check(Asked(found[1] if found.groups() else "", query, ask.body))
        return _judgement(ask.method, version, found, verdict)
    return Judgement(f"{ask.method} {path[:200]} is none of what Patchwright asks of an engine")


def _judgement(
    method: str, version: tuple[int, int] | None, found: re.Match[str], verdict: Yes | str
) -> Judgement:
    if isinstance(verdict, str):
        return Judgement(verdict)
    if verdict.owned is not None and not re.fullmatch(_ONE, verdict.owned[1]):
        return Judgement("no name of a container")

    def order(owned: str) -> Ask:
        path = found[0]
        if verdict.owned is not None and found.groups():
            path = path[: found.start(1)] + owned + path[found.end(1) :]
        before = "" if version is None else "/v{}.{}".format(*version)
        query = urlencode({**verdict.query, **verdict.naming(owned)})
        return Ask(method, f"{before}{path}{query and '?'}{query}", verdict.body)

    return Judgement(owned=verdict.owned, order=order)


def _parted(target: str) -> tuple[tuple[int, int] | None, str, list[tuple[str, str]]]:
    """Version, path and query."""
    path, _, query = target.partition("?")
    path, version = unquote(path), None
    if found := re.match(r"/v([0-9]{1,3})\.([0-9]{1,3})(?=/)", path):
        path, version = path[found.end() :], (int(found[1]), int(found[2]))
    return version, path, parse_qsl(query, keep_blank_values=True)


# --- what may be asked --------------------------------------------------------------------------------------


def _freely(asked: Asked) -> Yes | str:
    return Yes(asked.query)


def _of_ours(asked: Asked) -> Yes | str:
    if _said(asked.body):
        return "a body, where none belongs"
    return Yes(asked.query, owned=("container", asked.name))


def _listed(asked: Asked) -> Yes | str:
    """Containers of ours: all by our label, or one by its id: a name of ours may be how another's id begins."""
    match _json(asked.query.get("filters", "")):
        case {"label": [str(label)], **others} if label.partition("=")[0] == OWNER and not others:
            return Yes({**asked.query, "filters": json.dumps({"label": [label]})})
        case {"id": [str(container)], **others} if not others:
            return Yes(
                asked.query,
                owned=("container", container),
                naming=lambda owned: {"filters": json.dumps({"id": [owned]})},
            )
        case _:
            return f"containers are listed by the label {OWNER}, or one by its id"


def _images(asked: Asked) -> Yes | str:
    match _json(asked.query.get("filters", "")):
        case {"reference": [str(name)], **others} if _is_our_image(name) and others.keys() <= {"label"}:
            return Yes({**asked.query, "filters": json.dumps({"reference": [name], **others})})
        case _:
            return f"images are listed by one name {OURS}*"


def _made(asked: Asked) -> Yes | str:
    wanted = _json(asked.body)
    if not isinstance(wanted, dict):
        return "a container is described by a JSON object"
    if not asked.query.get("name", "").startswith(OURS):
        return f"containers are named {OURS}*"
    loose, sent = described(wanted)
    return loose or Yes(asked.query, json.dumps(sent).encode())


_RUN: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("Cmd", "Env"), is_words),
    **dict.fromkeys(("User", "WorkingDir"), is_text),
    **dict.fromkeys(("Tty", "AttachStdin", "AttachStdout", "AttachStderr"), is_switch),
}
_NOT_SENT = {
    "Container",
    "detachKeys",
}  # the client says them; the path has the one, and nobody needs the other


def _run(asked: Asked) -> Yes | str:
    wanted = _json(asked.body)
    if not isinstance(wanted, dict):
        return "a program is described by a JSON object"
    for name, value in wanted.items():
        held = _RUN[name](value) if name in _RUN else name in _NOT_SENT or not value
        if not held:
            return f"a program in a container has no such {name[:100]}"
    sent = {name: wanted[name] for name in _RUN if name in wanted}
    return Yes({}, json.dumps(sent).encode(), ("container", asked.name))


def _begun(asked: Asked) -> Yes | str:
    wanted = _json(asked.body)
    switches = wanted if isinstance(wanted, dict) else {}
    sent = {name: switches.get(name) is True for name in ("Detach", "Tty")}
    return Yes({}, json.dumps(sent).encode(), ("exec", asked.name))


def _looked_at(asked: Asked) -> Yes | str:
    return Yes({}, owned=("exec", asked.name))


def _renamed(asked: Asked) -> Yes | str:
    if not asked.query.get("name", "").startswith(OURS):
        return f"containers are named {OURS}*"
    return Yes(asked.query, owned=("container", asked.name))


def _kept(asked: Asked) -> Yes | str:
    if not _is_our_image(asked.query.get("repo", "")):
        return f"images are kept as {OURS}*"
    if _said(asked.body):
        return "a container of ours is kept as it is"
    container = asked.query.get("container", "")
    return Yes(asked.query, owned=("container", container), naming=lambda owned: {"container": owned})


def _pulled(asked: Asked) -> Yes | str:
    return Yes(asked.query) if asked.query.get("fromImage") else "an image is pulled by its name"


def _named(asked: Asked) -> Yes | str:
    return Yes(asked.query) if _is_our_image(asked.query.get("repo", "")) else f"images are named {OURS}*"


def _unnamed(asked: Asked) -> Yes | str:
    return (
        Yes(asked.query) if _is_our_image(asked.name) else f"only images named {OURS}* are removed, by name"
    )


def _built(asked: Asked) -> Yes | str:
    if asked.query.get("networkmode") not in ("none", "default"):
        return "a build has no network, or the engine's own bridge"
    return Yes(asked.query) if _is_our_image(asked.query.get("t", "")) else f"images are named {OURS}*"


def _route(method: str, path: str, check: Check, *names: str) -> Route:
    return Route(method, re.compile(path), check, frozenset(names))


_ONE = r"([A-Za-z0-9][A-Za-z0-9_.-]*)"
_IMAGE = r"([A-Za-z0-9][A-Za-z0-9_./:@-]*)"
ROUTES = (
    _route("GET", "/_ping", _freely),
    _route("HEAD", "/_ping", _freely),
    _route("GET", "/version", _freely),
    _route("GET", "/info", _freely),
    _route("GET", "/images/json", _images, "only_ids", "all", "filters"),
    _route("GET", f"/images/{_IMAGE}/json", _freely),
    _route("POST", "/images/create", _pulled, "fromImage", "tag"),
    _route("POST", f"/images/{_IMAGE}/tag", _named, "repo", "tag", "force"),
    _route("DELETE", f"/images/{_IMAGE}", _unnamed, "force", "noprune"),
    _route("POST", "/build", _built, "t", "q", "nocache", "rm", "forcerm", "pull", "buildargs", "networkmode",
           "dockerfile"),
    _route("POST", "/commit", _kept, "container", "repo", "tag", "comment", "author", "pause", "changes"),
    _route("GET", "/containers/json", _listed, "all", "limit", "size", "trunc_cmd", "filters"),
    _route("POST", "/containers/create", _made, "name"),
    _route("GET", f"/containers/{_ONE}/json", _of_ours),
    _route("GET", f"/containers/{_ONE}/logs", _of_ours, "stdout", "stderr", "timestamps", "follow", "tail"),
    _route("GET", f"/containers/{_ONE}/changes", _of_ours),
    _route("POST", f"/containers/{_ONE}/start", _of_ours),
    _route("POST", f"/containers/{_ONE}/kill", _of_ours),
    _route("POST", f"/containers/{_ONE}/rename", _renamed, "name"),
    _route("DELETE", f"/containers/{_ONE}", _of_ours, "v", "link", "force"),
    _route("POST", f"/containers/{_ONE}/exec", _run),
    _route("POST", f"/exec/{_ONE}/start", _begun),
    _route("GET", f"/exec/{_ONE}/json", _looked_at),
)  # fmt: skip


def _is_our_image(name: str) -> bool:
    return name.startswith(OURS) and "/" not in name


def _json(text: str | bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object none of whose names comes twice, in any case, nor could be another one to a reader of Unicode."""
    if len({name.lower() for name, _ in pairs}) < len(pairs):
        raise ValueError("a name comes twice")
    if not all(name.isascii() for name, _ in pairs):
        raise ValueError("a name is not ASCII")
    return dict(pairs)


def _said(body: bytes) -> bool:
    return body.strip() not in (b"", b"{}", b"null")
