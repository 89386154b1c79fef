"""Parses the requests that a client sends to the egress proxy. Nothing in a request is trusted."""

import re
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import urlsplit

from patchwright.runtime.egress_policy import HTTP_PORT, HTTPS_PORT, Origin


@dataclass(frozen=True)
class ProxyRequest:
    """A connection that a client requests from the proxy."""

    method: str
    host: str
    port: int
    target: str
    """The path and the query of a request that names a URL."""
    headers: tuple[tuple[str, str], ...]
    tls: bool = False
    """True if the request names an https URL. The proxy then reads the page itself, so it sees the method."""
    origin: Origin | None = None
    """The only server that clients of this socket can reach; None if clients choose the server. If it is set,
    clients send no proxy request, and receive only the server's own bytes.
    """

    @property
    def is_plain_http(self) -> bool:
        return self.method != "CONNECT"

    @property
    def authorization(self) -> str:
        return dict(self.headers).get("proxy-authorization", "")


class MalformedRequest(Exception):
    """The client did not send a valid proxy request."""


_REQUEST_LINE = re.compile(r"([A-Z]{3,10}) ([!-~]{1,8192}) HTTP/1\.[01]")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\t\x80-\xff]*)")


def parse_request(head: bytes) -> ProxyRequest:
    """Parse a proxy request. Raises MalformedRequest."""
    first, *rest = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    line = _REQUEST_LINE.fullmatch(first) or _raise_malformed()
    headers = [_HEADER.fullmatch(each) or _raise_malformed() for each in rest]
    method, target = line[1], line[2]
    try:
        if method == "CONNECT":
            parts, path = urlsplit(f"//{target}"), ""
            is_complete = parts.port is not None and not parts.path and not parts.query and not parts.fragment
        else:
            parts = urlsplit(target)
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            is_complete = parts.scheme in ("http", "https")
        tls = parts.scheme == "https"
        port = parts.port or (HTTPS_PORT if tls else HTTP_PORT)
    except ValueError as error:
        raise MalformedRequest from error
    if not is_complete or not parts.hostname or "@" in parts.netloc:
        _raise_malformed()
    return ProxyRequest(
        method=method,
        host=parts.hostname.rstrip(".")[:253],
        port=port,
        target=path,
        headers=tuple((each[1].lower(), each[2].strip()) for each in headers),
        tls=tls,
    )


def _raise_malformed() -> NoReturn:
    raise MalformedRequest
