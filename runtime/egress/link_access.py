"""Lets one agent's browser read hosts that a person linked, although the policy does not list them.

The proxy makes the TLS connection to such a host itself, so it sees the requests and permits only GET and HEAD.
"""

import hmac
import secrets
import ssl
from collections.abc import Iterable

from patchwright.runtime.egress.proxy_request import MalformedRequest, ProxyRequest
from patchwright.runtime.egress_forwarder import StreamPair
from patchwright.runtime.egress_policy import HTTP_PORT, HTTPS_PORT, EgressDenied, is_public_name


class LinkAccess:
    """The linked hosts that one sandbox may read now, and the key that permits it."""

    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        """`ssl_context` has the trusted certificates. If it is None, those of the system are trusted."""
        self._ssl_context = ssl_context
        self._authorization, self._hosts = "", frozenset[str]()

    def allow(self, hosts: Iterable[str]) -> str:
        """Allow these hosts for requests that carry the returned key. Replaces what was allowed before."""
        key = secrets.token_urlsafe(32)
        self._authorization, self._hosts = f"Bearer {key}", frozenset(hosts)
        return key

    def deny(self) -> None:
        """Withdraw what `allow` has allowed."""
        self._hosts = frozenset()

    def check(self, request: ProxyRequest) -> bool:
        """True if this is a permitted request to a linked host. False if only the policy can permit it.

        Raises EgressDenied if the host is linked, but its name or port is never permitted. Raises MalformedRequest for
        other requests that name an https URL.
        """
        is_linked = request.is_plain_http and request.host in self._hosts
        if not is_linked or not hmac.compare_digest(
            request.authorization.encode(), self._authorization.encode()
        ):
            if request.tls:
                raise MalformedRequest
            return False
        if not is_public_name(request.host):
            raise EgressDenied("literal")
        if request.port != (HTTPS_PORT if request.tls else HTTP_PORT):
            raise EgressDenied("port")
        return True

    async def start_tls(self, server: StreamPair, host: str) -> None:
        """Encrypt a connection, after checking the server's certificate. Raises EgressDenied."""
        try:
            await server[1].start_tls(self._ssl_context or ssl.create_default_context(), server_hostname=host)
        except OSError as error:
            raise EgressDenied("unreachable") from error
