"""Decides which requests a worker may send to a shared Docker engine. No function in this module has side effects.

Access to an engine's socket is root access to its machine. These rules allow only the part of the engine's
API that `runtime/docker/engine.py` uses: containers with the limits of a sandbox (`container_policy.py`), and
images with our name prefix. Everything else is rejected, including calls that future engines add.

Allowed requests are rebuilt from their checked parts, because the engine parses requests in its own way. For
example, its JSON parser ignores the letter case of names, and accepts U+017F for an s. If a parameter is in both
the query and a form body, the engine uses the value in the body. Engines that were built with Go before version 1.17
accept `;` instead of `&`.

Source: docs.docker.com/reference/api/engine, pkg.go.dev/encoding/json#Unmarshal, pkg.go.dev/net/http#Request.ParseForm
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote, urlencode

from patchwright.bot.docker_proxy.container_policy import (
    check_container,
    is_optional_bool,
    is_optional_string,
    is_optional_string_list,
)
from patchwright.runtime.docker.reaper import OWNER_LABEL

NAME_PREFIX = "patchwright-"
"""The prefix of every container name, and of every image name that may be created, listed or removed."""
# the API version of engine 20.10; older engines put containers into the host's cgroup namespace
MIN_API_VERSION = (1, 41)
ObjectKind: TypeAlias = Literal["container", "exec"]
Query: TypeAlias = Mapping[str, str]


class EngineRequest(NamedTuple):
    """A request to the Docker engine."""

    method: str
    target: str
    """Path and query."""
    body: bytes = b""
    """The body of the request. It is empty if the body is forwarded as a stream, without checks."""


class Decision(NamedTuple):
    """The decision whether a request is allowed, and how to forward an allowed request."""

    rejection: str = ""
    """The reason why the rules reject the request; "" if they allow it. The proxy then still checks that
    Patchwright created the `owned_object`.
    """
    owned_object: tuple[ObjectKind, str] | None = None
    """The name or ID of the container or exec instance that the request uses. Patchwright must have created it.
    """
    build_request: Callable[[str], EngineRequest] = lambda owned: EngineRequest("", "")
    """Returns the request to forward to the engine. The argument is the full ID of the owned object. A name
    would be unsafe, because another object could get this name before the request arrives.
    """


class RouteMatch(NamedTuple):
    """The parts of a request whose method and path match a `Route`."""

    name: str
    """The variable part of the request's path, for example the name of a container."""
    query: Query
    body: bytes


class AllowedRequest(NamedTuple):
    """The parts of an allowed request that are forwarded to the engine."""

    query: Query
    body: bytes = b""
    owned_object: tuple[ObjectKind, str] | None = None
    owned_query: Callable[[str], Query] = lambda owned: {}
    """Returns the query parameters that identify the owned object. The argument is the full ID of that object.
    """


RouteCheck: TypeAlias = Callable[[RouteMatch], AllowedRequest | str]
"""Checks a request. Returns the allowed request, or the reason for the rejection as a text."""


class Route(NamedTuple):
    """A call of the engine's API that is allowed, if its parameters pass a check."""

    method: str
    path: re.Pattern[str]
    check: RouteCheck
    query_names: frozenset[str]
    """The allowed query parameters."""


def is_streamed(request: EngineRequest) -> bool:
    """Returns whether the request body is forwarded as a stream, without checks. This is true only for the body
    of a build request, which contains the files of the build.
    """
    return request.method == "POST" and _split_target(request.target)[1] == "/build"


def can_upgrade(request: EngineRequest) -> bool:
    """Returns whether the engine may switch the connection from HTTP to a raw stream with the input and output
    of an exec instance.
    """
    return (
        request.method == "POST"
        and re.fullmatch("/exec/[^/]+/start", _split_target(request.target)[1]) is not None
    )


def decide(request: EngineRequest) -> Decision:
    """Decides whether a request is allowed, and how to rebuild an allowed request."""
    version, path, pairs = _split_target(request.target)
    if version is not None and version < MIN_API_VERSION:
        return Decision("the API version is too old")
    if any(part in ("", ".", "..") for part in path[1:].split("/")):
        return Decision("the path is invalid")
    query = dict(pairs)
    if len(query) < len(pairs):
        return Decision("duplicate query parameter")
    for method, pattern, check, names in ROUTES:
        if method != request.method or (found := pattern.fullmatch(path)) is None:
            continue
        if unknown := query.keys() - names:
            return Decision(f"query parameter not allowed: {sorted(unknown)[0][:100]}")
        result = check(RouteMatch(found[1] if found.groups() else "", query, request.body))
        return _build_decision(request.method, version, found, result)
    return Decision(f"{request.method} {path[:200]} is not an allowed API call")


def _build_decision(
    method: str, version: tuple[int, int] | None, path_match: re.Match[str], allowed: AllowedRequest | str
) -> Decision:
    if isinstance(allowed, str):
        return Decision(allowed)
    if allowed.owned_object is not None and not re.fullmatch(_CONTAINER_NAME, allowed.owned_object[1]):
        return Decision("invalid container name")

    def build(owned: str) -> EngineRequest:
        path = path_match[0]
        if allowed.owned_object is not None and path_match.groups():
            path = path[: path_match.start(1)] + owned + path[path_match.end(1) :]
        prefix = "" if version is None else "/v{}.{}".format(*version)
        query = urlencode({**allowed.query, **allowed.owned_query(owned)})
        return EngineRequest(method, f"{prefix}{path}{query and '?'}{query}", allowed.body)

    return Decision(owned_object=allowed.owned_object, build_request=build)


def _split_target(target: str) -> tuple[tuple[int, int] | None, str, list[tuple[str, str]]]:
    """Returns API version, path and query parameters."""
    path, _, query = target.partition("?")
    path, version = unquote(path), None
    if found := re.match(r"/v([0-9]{1,3})\.([0-9]{1,3})(?=/)", path):
        path, version = path[found.end() :], (int(found[1]), int(found[2]))
    return version, path, parse_qsl(query, keep_blank_values=True)


# --- allowed requests ---------------------------------------------------------------------------------------


def _allow(route_match: RouteMatch) -> AllowedRequest | str:
    return AllowedRequest(route_match.query)


def _check_own_container(route_match: RouteMatch) -> AllowedRequest | str:
    if _has_body(route_match.body):
        return "this call takes no body"
    return AllowedRequest(route_match.query, owned_object=("container", route_match.name))


def _check_container_list(route_match: RouteMatch) -> AllowedRequest | str:
    """Allows listing containers by our label, or by one ID.

    The proxy replaces the given ID by the full ID, because the engine's ID filter also matches the start of an
    ID. The request could otherwise list a container that Patchwright did not create.
    """
    match _parse_json(route_match.query.get("filters", "")):
        case {"label": [str(label)], **others} if label.partition("=")[0] == OWNER_LABEL and not others:
            return AllowedRequest({**route_match.query, "filters": json.dumps({"label": [label]})})
        case {"id": [str(container)], **others} if not others:
            return AllowedRequest(
                route_match.query,
                owned_object=("container", container),
                owned_query=lambda owned: {"filters": json.dumps({"id": [owned]})},
            )
        case _:
            return f"containers may only be listed by the label {OWNER_LABEL} or by one ID"


def _check_image_list(route_match: RouteMatch) -> AllowedRequest | str:
    match _parse_json(route_match.query.get("filters", "")):
        case {"reference": [str(name)], **others} if _is_our_image(name) and others.keys() <= {"label"}:
            return AllowedRequest(
                {**route_match.query, "filters": json.dumps({"reference": [name], **others})}
            )
        case _:
            return f"images may only be listed by one name {NAME_PREFIX}*"


def _check_create(route_match: RouteMatch) -> AllowedRequest | str:
    fields = _parse_json(route_match.body)
    if not isinstance(fields, dict):
        return "the container description must be a JSON object"
    if not route_match.query.get("name", "").startswith(NAME_PREFIX):
        return f"container names must begin with {NAME_PREFIX}"
    rejection, description = check_container(fields)
    return rejection or AllowedRequest(route_match.query, json.dumps(description).encode())


_EXEC_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("Cmd", "Env"), is_optional_string_list),
    **dict.fromkeys(("User", "WorkingDir"), is_optional_string),
    **dict.fromkeys(("Tty", "AttachStdin", "AttachStdout", "AttachStderr"), is_optional_bool),
}
_DROPPED_FIELDS = {
    "Container",
    "detachKeys",
}  # The client sends both fields, but the URL already names the container.


def _check_exec_create(route_match: RouteMatch) -> AllowedRequest | str:
    fields = _parse_json(route_match.body)
    if not isinstance(fields, dict):
        return "the exec description must be a JSON object"
    for name, value in fields.items():
        is_allowed = (
            _EXEC_FIELDS[name](value) if name in _EXEC_FIELDS else name in _DROPPED_FIELDS or not value
        )
        if not is_allowed:
            return f"exec field not allowed: {name[:100]}"
    allowed = {name: fields[name] for name in _EXEC_FIELDS if name in fields}
    return AllowedRequest({}, json.dumps(allowed).encode(), ("container", route_match.name))


def _check_exec_start(route_match: RouteMatch) -> AllowedRequest | str:
    fields = _parse_json(route_match.body)
    options = fields if isinstance(fields, dict) else {}
    allowed = {name: options.get(name) is True for name in ("Detach", "Tty")}
    return AllowedRequest({}, json.dumps(allowed).encode(), ("exec", route_match.name))


def _check_exec_inspect(route_match: RouteMatch) -> AllowedRequest | str:
    return AllowedRequest({}, owned_object=("exec", route_match.name))


def _check_commit(route_match: RouteMatch) -> AllowedRequest | str:
    if not _is_our_image(route_match.query.get("repo", "")):
        return f"image names must begin with {NAME_PREFIX}"
    if _has_body(route_match.body):
        return "a commit takes no body"
    container = route_match.query.get("container", "")
    return AllowedRequest(
        route_match.query,
        owned_object=("container", container),
        owned_query=lambda owned: {"container": owned},
    )


def _check_pull(route_match: RouteMatch) -> AllowedRequest | str:
    return (
        AllowedRequest(route_match.query)
        if route_match.query.get("fromImage")
        else "images may only be pulled by name"
    )


def _check_tag(route_match: RouteMatch) -> AllowedRequest | str:
    return (
        AllowedRequest(route_match.query)
        if _is_our_image(route_match.query.get("repo", ""))
        else f"image names must begin with {NAME_PREFIX}"
    )


def _check_image_removal(route_match: RouteMatch) -> AllowedRequest | str:
    return (
        AllowedRequest(route_match.query)
        if _is_our_image(route_match.name)
        else f"only images named {NAME_PREFIX}* may be removed"
    )


def _check_build(route_match: RouteMatch) -> AllowedRequest | str:
    if route_match.query.get("networkmode") not in ("none", "default"):
        return "a build must use the network mode none or default"
    return (
        AllowedRequest(route_match.query)
        if _is_our_image(route_match.query.get("t", ""))
        else f"image names must begin with {NAME_PREFIX}"
    )


def _route(method: str, path: str, check: RouteCheck, *query_names: str) -> Route:
    return Route(method, re.compile(path), check, frozenset(query_names))


_CONTAINER_NAME = r"([A-Za-z0-9][A-Za-z0-9_.-]*)"
_IMAGE_NAME = r"([A-Za-z0-9][A-Za-z0-9_./:@-]*)"
ROUTES = (
    _route("GET", "/_ping", _allow),
    _route("HEAD", "/_ping", _allow),
    _route("GET", "/version", _allow),
    _route("GET", "/info", _allow),
    _route("GET", "/images/json", _check_image_list, "only_ids", "all", "filters"),
    _route("GET", f"/images/{_IMAGE_NAME}/json", _allow),
    _route("POST", "/images/create", _check_pull, "fromImage", "tag"),
    _route("POST", f"/images/{_IMAGE_NAME}/tag", _check_tag, "repo", "tag", "force"),
    _route("DELETE", f"/images/{_IMAGE_NAME}", _check_image_removal, "force", "noprune"),
    _route("POST", "/build", _check_build, "t", "q", "nocache", "rm", "forcerm", "pull", "buildargs", "networkmode",
           "dockerfile"),
    _route("POST", "/commit", _check_commit, "container", "repo", "tag", "comment", "author", "pause", "changes"),
    _route("GET", "/containers/json", _check_container_list, "all", "limit", "size", "trunc_cmd", "filters"),
    _route("POST", "/containers/create", _check_create, "name"),
    _route("GET", f"/containers/{_CONTAINER_NAME}/json", _check_own_container),
    _route("GET", f"/containers/{_CONTAINER_NAME}/logs", _check_own_container, "stdout", "stderr",
           "timestamps", "follow", "tail"),
    _route("GET", f"/containers/{_CONTAINER_NAME}/changes", _check_own_container),
    _route("POST", f"/containers/{_CONTAINER_NAME}/start", _check_own_container),
    _route("POST", f"/containers/{_CONTAINER_NAME}/kill", _check_own_container),
    _route("DELETE", f"/containers/{_CONTAINER_NAME}", _check_own_container, "v", "link", "force"),
    _route("POST", f"/containers/{_CONTAINER_NAME}/exec", _check_exec_create),
    _route("POST", f"/exec/{_CONTAINER_NAME}/start", _check_exec_start),
    _route("GET", f"/exec/{_CONTAINER_NAME}/json", _check_exec_inspect),
)  # fmt: skip


def _is_our_image(name: str) -> bool:
    return name.startswith(NAME_PREFIX) and "/" not in name


def _parse_json(text: str | bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_reject_duplicates)
    except (ValueError, RecursionError):
        return None


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Builds a JSON object from its names and values. Raises ValueError if some parser could treat two names as equal.

    Some parsers ignore letter case, and some replace non-ASCII letters by ASCII letters. So names that differ
    only in letter case are rejected, and so is every non-ASCII name.
    """
    if len({name.lower() for name, _ in pairs}) < len(pairs):
        raise ValueError("duplicate name")
    if not all(name.isascii() for name, _ in pairs):
        raise ValueError("non-ASCII name")
    return dict(pairs)


def _has_body(body: bytes) -> bool:
    return body.strip() not in (b"", b"{}", b"null")
