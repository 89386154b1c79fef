"""The network policy of sandboxes, and the log of their connections. This module does no I/O; proxy.py
enforces the policy.
"""

import base64
import ipaddress
import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal
from urllib.parse import unquote, urlsplit

from pydantic import Field

from patchwright.runtime.frozen_model import FrozenModel

Address = IPv4Address | IPv6Address
NetworkMode = Literal["none", "allowlist", "open"]

# Package registries. github.com must not be in this list. A program that can read from github.com can also
# write there (gists, issues, forks), so it could publish a secret of the repository.
DEFAULT_HOSTS = frozenset(
    {
        *("pypi.org", "files.pythonhosted.org"),
        *("registry.npmjs.org", "registry.yarnpkg.com", "repo.yarnpkg.com"),
        *("proxy.golang.org", "sum.golang.org"),
        *("crates.io", "index.crates.io", "static.crates.io"),
        *("repo.maven.apache.org", "repo1.maven.org", "plugins.gradle.org", "plugins-artifacts.gradle.org"),
        *("rubygems.org", "index.rubygems.org"),
        *("repo.packagist.org", "api.nuget.org"),
        *("deb.debian.org", "security.debian.org", "archive.ubuntu.com", "security.ubuntu.com"),
    }
)
HTTPS_PORT, HTTP_PORT = 443, 80  # The only ports that are open.
_MIB = 1 << 20

DenialReason = Literal[
    "unlisted", "literal", "private", "port", "sni", "upload", "method", "unknown", "unreachable"
]
DENIAL_MESSAGES: dict[DenialReason, str] = {
    "unlisted": "it is not on the allowlist (setting `allowed_hosts`)",
    "literal": "it is not a public host name",
    "private": "it resolves to an address that is not public (setting `allowed_addresses`)",
    "port": "only the ports 443 (TLS) and 80 (unencrypted GET) are allowed",
    "sni": "the TLS handshake does not name the requested host",
    "upload": "the upload limit is reached (setting `max_upload_mb`)",
    "method": "unencrypted HTTP allows only GET and HEAD requests without a body",
    "unknown": "its name does not resolve",
    "unreachable": "it does not respond",
}
"""The message for each denial reason. It is shown after the host and a colon, as in `example.org: it does not
respond`. The reasons `unknown` and `unreachable` are network errors; the others come from the policy.
"""


class EgressDenied(Exception):
    """The proxy cannot open a connection, because the policy denies it or a network error occurred. The message goes to
    the sandbox, so it does not contain the `address` that is not public.
    """

    def __init__(self, reason: DenialReason, address: str = "") -> None:
        super().__init__(DENIAL_MESSAGES[reason])
        self.reason, self.address = reason, address


class EgressPolicy(FrozenModel):
    """Decides which connections the proxy permits."""

    allowed_hosts: frozenset[str] | None = DEFAULT_HOSTS
    """The allowed host names, in lower case. `*.example.org` matches every name below example.org. None
    allows every public host.
    """
    trusted_endpoints: frozenset[tuple[str, int]] = frozenset()
    """Hosts and ports of the operator's own servers, such as a package index. These servers may have any address.
    """
    public_endpoints: frozenset[tuple[str, int]] = frozenset()
    """Hosts and ports of the operator's own servers that must have public addresses."""
    allowed_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks whose addresses count as public. A closed network needs this for its mirrors of public hosts."""
    max_upload_bytes: int = Field(default=10 * _MIB, ge=0)
    """Total bytes that one sandbox may send."""

    @property
    def network(self) -> NetworkMode:
        return "open" if self.allowed_hosts is None else "allowlist"

    def fingerprint(self) -> str:
        """Return a text that is the same for policies that permit the same connections."""
        parts = (
            self.allowed_hosts or (),
            self.trusted_endpoints,
            self.public_endpoints,
            self.allowed_networks,
        )
        return repr((self.network, *(sorted(map(str, part)) for part in parts)))

    def check_host(self, host: str, port: int, is_plain_http: bool) -> None:
        """Check a host and port before the name is resolved. Raises EgressDenied."""
        if (host, port) in self.trusted_endpoints | self.public_endpoints:
            return
        if not is_public_name(host):
            raise EgressDenied("literal")
        if not self._is_allowed_host(host):
            raise EgressDenied("unlisted")
        if port != (HTTP_PORT if is_plain_http else HTTPS_PORT):
            raise EgressDenied("port")

    def check_addresses(self, host: str, port: int, resolved: Iterable[str]) -> list[Address]:
        """Check the addresses to which a host name resolves. Return the addresses to which the proxy may connect.

        Raises EgressDenied if any address is not public, because a legitimate public name has only public
        addresses. The addresses of `trusted_endpoints` need not be public.
        """
        addresses = [ipaddress.ip_address(each.partition("%")[0]) for each in resolved]
        if not addresses:
            raise EgressDenied("unknown")
        private = [str(each) for each in addresses if not self._is_allowed_address(each)]
        if private and (host, port) not in self.trusted_endpoints:
            raise EgressDenied("private", private[0])
        return addresses

    def _is_allowed_address(self, address: Address) -> bool:
        is_mirror = any(address in each for each in self.allowed_networks if each.version == address.version)
        return is_mirror or is_public(address)

    def _is_allowed_host(self, host: str) -> bool:
        if self.allowed_hosts is None or host in self.allowed_hosts:
            return True
        labels = host.split(".")
        return any("*." + ".".join(labels[cut:]) in self.allowed_hosts for cut in range(1, len(labels) - 1))


def build_policy(
    network: NetworkMode,
    allowed_hosts: Iterable[str] = (),
    package_index: str | None = None,
    max_upload_mb: int = 10,
    allowed_addresses: Iterable[str] = (),
) -> EgressPolicy | None:
    """Return the policy for a network mode, or None for a mode without network access."""
    if network == "none":
        return None
    trusted: frozenset[tuple[str, int]] = frozenset()
    if package_index and (host := urlsplit(package_index).hostname):
        parts = urlsplit(package_index)
        trusted = frozenset({(host, parts.port or (HTTPS_PORT if parts.scheme == "https" else HTTP_PORT))})
    hosts = DEFAULT_HOSTS | {each.lower().rstrip(".") for each in allowed_hosts}
    return EgressPolicy(
        allowed_hosts=None if network == "open" else hosts,
        trusted_endpoints=trusted,
        allowed_networks=tuple(map(ipaddress.ip_network, allowed_addresses)),
        max_upload_bytes=max_upload_mb * _MIB,
    )


class Origin(FrozenModel):
    """A server that the operator configured by its URL."""

    host: str
    port: int
    tls: bool

    @classmethod
    def from_url(cls, url: str) -> "Origin":
        """Parse a URL of the form http(s)://host[:port][/...]. Raises ValueError for other URLs, and for URLs
        with credentials.
        """
        parts = urlsplit(url)
        # The message does not contain the URL, because the URL may contain a password.
        if "@" in parts.netloc:
            raise ValueError("this URL must not contain credentials: put a key into a header")
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise ValueError(f"{url} is not an http(s) URL")
        tls = parts.scheme == "https"
        return cls(
            host=_to_ascii(parts.hostname), port=parts.port or (HTTPS_PORT if tls else HTTP_PORT), tls=tls
        )


def build_origin_policy(
    origin: Origin, max_upload_mb: int, allowed_addresses: Iterable[str] = ()
) -> EgressPolicy:
    """Return a policy that allows only this server.

    If the server's URL contains an IP address or an internal name, the server may have any address, because the
    operator configured it. A public name must resolve to public addresses, or to addresses in
    `allowed_addresses`.
    """
    endpoints = frozenset({(origin.host, origin.port)})
    is_public_host = is_public_name(origin.host)
    return EgressPolicy(
        allowed_hosts=frozenset(),
        trusted_endpoints=frozenset() if is_public_host else endpoints,
        public_endpoints=endpoints if is_public_host else frozenset(),
        allowed_networks=tuple(map(ipaddress.ip_network, allowed_addresses)),
        max_upload_bytes=max_upload_mb * _MIB,
    )


def _to_ascii(host: str) -> str:
    """Return a name in the form that DNS and TLS use. Raises ValueError (UnicodeError)."""
    return host if host.isascii() else host.encode("idna").decode()


class UpstreamProxy(FrozenModel):
    """The proxy through which the operator's own network reaches the internet. The egress proxy connects through it."""

    host: str
    port: int
    authorization: str | None = None
    """Value of the Proxy-Authorization header. No sandbox sees it."""

    @classmethod
    def from_url(cls, url: str) -> "UpstreamProxy":
        """Parse a proxy URL of the form http://[user:password@]host[:port]. Raises ValueError for other URLs."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError("write a proxy as http://host:port")
        authorization = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        return cls(host=parts.hostname, port=parts.port or HTTP_PORT, authorization=authorization)


_HOST_NAME = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z][a-z0-9-]{0,62}")


def is_public_name(host: str) -> bool:
    """True if this is a full host name. False if it is an IP address in any notation.

    Most clients treat a name as an IPv4 address if its last part is a number (decimal, octal or hexadecimal).
    Source: url.spec.whatwg.org/#ends-in-a-number-checker
    """
    return _HOST_NAME.fullmatch(host) is not None  # The last part of such a name begins with a letter.


def expected_sni(host: str) -> str:
    """Return the server name that a TLS client sends for a host. The name is "" for an IP address (RFC 6066
    section 3).
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host
    return ""


def is_host_pattern(text: str) -> bool:
    """True if this is a valid entry of `allowed_hosts`."""
    return is_public_name(text.lower().rstrip(".").removeprefix("*."))


def parse_mirror_network(text: str) -> str:
    """Validate an entry of `allowed_addresses`, and return it in normal form. Raises ValueError."""
    network = ipaddress.ip_network(text)
    forbidden = ("127.0.0.0/8", "169.254.0.0/16", "0.0.0.0/8", "::1/128", "fe80::/10", "fd00:ec2::254/128")
    if any(
        network.overlaps(each)
        for each in map(ipaddress.ip_network, forbidden)
        if each.version == network.version
    ):
        raise ValueError(f"{text} contains addresses of this machine or of a metadata service")
    return str(network)


# Networks that are not public, although `is_global` of Python 3.11 is True for their addresses. These are
# addresses that embed an IPv4 address, Oracle's metadata service, the old relays to IPv6, and the address
# through which Azure's hosts serve their machines.
_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "2001::/23", "2002::/16", "64:ff9b:1::/48"),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address.
_UNICAST = IPv6Network("2000::/3")


def is_public(address: Address) -> bool:
    """True if the address is on the internet. False for private, local, shared, multicast, metadata and
    reserved addresses.
    """
    if isinstance(address, IPv6Address):
        if (mapped := address.ipv4_mapped) is not None:
            return is_public(mapped)
        if address in _NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
        if address not in _UNICAST:
            return False
    is_special = any(address in network for network in _NOT_PUBLIC if network.version == address.version)
    return address.is_global and not address.is_multicast and not address.is_reserved and not is_special


# --- connection log --------------------------------------------------------------------------------

# Maximum number of entries in a log. It is limited because a sandbox may try any number of names.
MAX_SUMMARIES = 200


class ConnectionSummary(FrozenModel):
    """Statistics of the connections that have the same host, port and outcome."""

    host: str
    port: int
    denied: DenialReason | None = None
    address: str = ""
    """The address that is not public, if this is the reason of the denial."""
    count: int = 1
    bytes_sent: int = 0
    """Number of bytes that left the sandbox."""
    bytes_received: int = 0


class ConnectionLog:
    """Log of the connections that were permitted or denied for one sandbox."""

    def __init__(self) -> None:
        self.bytes_sent = 0
        self._summaries: dict[tuple[str, int, DenialReason | None], ConnectionSummary] = {}
        self._denied: dict[str, DenialReason] = {}

    def record(
        self,
        host: str,
        port: int,
        denied: DenialReason | None,
        count: int = 0,
        bytes_sent: int = 0,
        bytes_received: int = 0,
    ) -> bool:
        """Add a connection to the entry for its host, port and outcome. Return True if this entry is new."""
        numbers = {"count": count, "bytes_sent": bytes_sent, "bytes_received": bytes_received}
        return self.add(ConnectionSummary(host=host, port=port, denied=denied, **numbers))

    def add(self, visits: ConnectionSummary) -> bool:
        """Add connections to the entry for their host, port and outcome. Return True if this entry is new.

        If the log is full, adds the connections to the entry `(others)`.
        """
        key = (visits.host, visits.port, visits.denied)
        if key not in self._summaries and len(self._summaries) >= MAX_SUMMARIES:
            key = ("(others)", 0, visits.denied)
            visits = visits.model_copy(update={"host": "(others)", "port": 0, "address": ""})
        if (earlier := self._summaries.get(key)) is None:
            self._summaries[key] = visits
        else:
            names = ("count", "bytes_sent", "bytes_received")
            sums = {name: getattr(earlier, name) + getattr(visits, name) for name in names}
            self._summaries[key] = earlier.model_copy(update=sums)
        self.bytes_sent += visits.bytes_sent
        if visits.denied is not None and len(self._denied) < MAX_SUMMARIES:
            self._denied[visits.host] = visits.denied
        return earlier is None

    def take(self) -> tuple[ConnectionSummary, ...]:
        """Return all entries since the last call of this method."""
        summaries, self._summaries = tuple(self._summaries.values()), {}
        return summaries

    def take_denied(self) -> dict[str, DenialReason]:
        """Return the hosts that were denied since the last call of this method, each with the reason."""
        denied, self._denied = self._denied, {}
        return denied


def merge_summaries(summaries: Iterable[ConnectionSummary]) -> tuple[ConnectionSummary, ...]:
    """Merge the entries that have the same host, port and outcome."""
    connection_log = ConnectionLog()
    for summary in summaries:
        connection_log.add(summary)
    return connection_log.take()


def denial_note(denied: dict[str, DenialReason]) -> str | None:
    """Return a note for the agent about the connections that were denied during its command.

    Returns None if no connection was denied.
    """
    if not denied:
        return None
    reasons = [
        (host, *DENIAL_MESSAGES[reason].partition(" (setting ")) for host, reason in list(denied.items())[:5]
    ]
    denials = "; ".join(f"the sandbox refused a connection to {host}: {why}" for host, why, _, _ in reasons)
    settings = ", ".join(dict.fromkeys(setting.rstrip(")") for _, _, _, setting in reasons if setting))
    operator = f" (only the operator can allow this, with the setting {settings})" if settings else ""
    return (
        f"{denials}{operator}; continue without this connection, and say in your report if a check needed it"
    )
