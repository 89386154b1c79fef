"""Where a sandbox may go on the network: the policy, the verdicts and the account of both. Pure; proxy.py does it."""

import base64
import ipaddress
import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal
from urllib.parse import unquote, urlsplit

from pydantic import Field

from runtime.frozen import Frozen

Address = IPv4Address | IPv6Address
Network = Literal["none", "allow-list", "open"]

# Where dependencies come from. github.com is not among them, and must not be: whoever may read there may also
# write there (gists, issues, forks), so that a secret of the repository could be carried out under its name.
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
TLS, PLAIN = 443, 80  # the only ports
_MIB = 1 << 20

Refusal = Literal[
    "unlisted", "literal", "private", "port", "sni", "upload", "method", "unknown", "unreachable"
]
WHY: dict[Refusal, str] = {
    "unlisted": "it is not on the allow-list (setting `allow_hosts`)",
    "literal": "it is no public host name",
    "private": "it leads to an address that is not public (setting `allow_addresses`)",
    "port": "only ports 443 (TLS) and 80 (plain GET) are open",
    "sni": "the TLS handshake does not name the host that was asked for",
    "upload": "more would be sent than the sandbox may (setting `upload_mb`)",
    "method": "plain HTTP may only read: GET and HEAD, without a body",
    "unknown": "its name does not resolve",
    "unreachable": "it does not answer",
}
"""Each refusal as the end of a sentence. Only the last two are not the policy's."""


class Refused(Exception):
    """A connection that is not made."""

    def __init__(self, why: Refusal) -> None:
        super().__init__(WHY[why])
        self.why = why


class Policy(Frozen):
    """What the proxy lets through."""

    hosts: frozenset[str] | None = DEFAULT_HOSTS
    """Names, lower-case; `*.example.org` stands for every name below. None: every public host."""
    trusted: frozenset[tuple[str, int]] = frozenset()
    """Hosts and ports that the operator named as their own (a package index): at any port, at any address."""
    named: frozenset[tuple[str, int]] = frozenset()
    """The same, but at public addresses alone."""
    addresses: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that count as public: where a closed network keeps the mirrors that public names lead to."""
    upload: int = Field(default=10 * _MIB, ge=0)
    """Bytes that one sandbox may send in all."""

    @property
    def network(self) -> Network:
        return "open" if self.hosts is None else "allow-list"

    def admit(self, host: str, port: int, plain: bool) -> None:
        """Raises Refused for a host and port that are not to be resolved."""
        if (host, port) in self.trusted | self.named:
            return
        if not is_public_name(host):
            raise Refused("literal")
        if not self._lists(host):
            raise Refused("unlisted")
        if port != (PLAIN if plain else TLS):
            raise Refused("port")

    def pin(self, host: str, port: int, found: Iterable[str]) -> list[Address]:
        """The addresses of a name that may be dialled. Raises Refused.

        One that is not public spoils all: an honest name has no such company.
        """
        addresses = [ipaddress.ip_address(each.partition("%")[0]) for each in found]
        if not addresses:
            raise Refused("unknown")
        if (host, port) not in self.trusted and not all(map(self._is_open, addresses)):
            raise Refused("private")
        return addresses

    def _is_open(self, address: Address) -> bool:
        mirrored = any(address in each for each in self.addresses if each.version == address.version)
        return mirrored or is_public(address)

    def _lists(self, host: str) -> bool:
        if self.hosts is None or host in self.hosts:
            return True
        labels = host.split(".")
        return any("*." + ".".join(labels[cut:]) in self.hosts for cut in range(1, len(labels) - 1))


def policy(
    network: Network,
    allow_hosts: Iterable[str] = (),
    package_index: str | None = None,
    upload_mb: int = 10,
    allow_addresses: Iterable[str] = (),
) -> Policy | None:
    """The policy of a mode. None: no network at all."""
    if network == "none":
        return None
    trusted: frozenset[tuple[str, int]] = frozenset()
    if package_index and (host := urlsplit(package_index).hostname):
        parts = urlsplit(package_index)
        trusted = frozenset({(host, parts.port or (TLS if parts.scheme == "https" else PLAIN))})
    hosts = DEFAULT_HOSTS | {each.lower().rstrip(".") for each in allow_hosts}
    return Policy(
        hosts=None if network == "open" else hosts,
        trusted=trusted,
        addresses=tuple(map(ipaddress.ip_network, allow_addresses)),
        upload=upload_mb * _MIB,
    )


class Origin(Frozen):
    """A server that the operator named by its URL."""

    host: str
    port: int
    tls: bool

    @classmethod
    def of(cls, url: str) -> "Origin":
        """Raises ValueError for anything but http(s)://host[:port][/...], without a user's name."""
        parts = urlsplit(url)
        if "@" in parts.netloc:  # not shown: it may hold a password
            raise ValueError("a URL here holds no name and password: put a key into a header")
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise ValueError(f"{url} is not an http(s) URL")
        tls = parts.scheme == "https"
        return cls(host=_as_asked(parts.hostname), port=parts.port or (TLS if tls else PLAIN), tls=tls)


def policy_for(origin: Origin, upload_mb: int, allow_addresses: Iterable[str] = ()) -> Policy:
    """To this server and nowhere else.

    An address, or a name that only the operator's own network knows, is taken at his word; a public name has to
    lead to public addresses, or to those of `allow_addresses`.
    """
    there = frozenset({(origin.host, origin.port)})
    public = is_public_name(origin.host)
    return Policy(
        hosts=frozenset(),
        trusted=frozenset() if public else there,
        named=there if public else frozenset(),
        addresses=tuple(map(ipaddress.ip_network, allow_addresses)),
        upload=upload_mb * _MIB,
    )


def _as_asked(host: str) -> str:
    """A name as DNS and TLS know it. Raises ValueError (UnicodeError)."""
    return host if host.isascii() else host.encode("idna").decode()


class Upstream(Frozen):
    """The proxy through which the operator's own network is left."""

    host: str
    port: int
    authorization: str | None = None
    """Value of Proxy-Authorization; stays on the host."""

    @classmethod
    def of(cls, url: str) -> "Upstream":
        """Raises ValueError for anything but http://[user:password@]host[:port]."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError("a proxy is given as http://host:port")
        authorization = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        return cls(host=parts.hostname, port=parts.port or PLAIN, authorization=authorization)


_NAME = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z][a-z0-9-]{0,62}")
_HEX = re.compile(r"0x[0-9a-f]*")


def is_public_name(host: str) -> bool:
    """Whether this is a full host name, and not an address in any spelling.

    A name whose last part is a number, decimal, octal or hexadecimal, is an IPv4 address to most clients.
    Source: url.spec.whatwg.org/#ends-in-a-number-checker
    """
    return _NAME.fullmatch(host) is not None and not _HEX.fullmatch(host.rpartition(".")[2])


def name_in_handshake(host: str) -> str:
    """What TLS calls a host: its name; nothing where it has only an address (RFC 6066 section 3)."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host
    return ""


def is_host_pattern(text: str) -> bool:
    """Whether this may stand in `allow_hosts`."""
    return is_public_name(text.lower().rstrip(".").removeprefix("*."))


def network_of_mirrors(text: str) -> str:
    """The same network, if it may stand in `allow_addresses`. Raises ValueError."""
    network = ipaddress.ip_network(text)
    inner = ("127.0.0.0/8", "169.254.0.0/16", "0.0.0.0/8", "::1/128", "fe80::/10", "fd00:ec2::254/128")
    if any(
        network.overlaps(each) for each in map(ipaddress.ip_network, inner) if each.version == network.version
    ):
        raise ValueError(f"{text} holds addresses of this machine or of a metadata service")
    return str(network)


# What Python 3.11's `is_global` takes for public: addresses that carry an IPv4 address in them, Oracle's metadata
# service, the old relays to IPv6, and the address at which Azure's hosts talk to their machines.
_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "2001::/23", "2002::/16", "64:ff9b:1::/48"),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address
_UNICAST = IPv6Network("2000::/3")


def is_public(address: Address) -> bool:
    """Whether this is an address of the internet: not private, local, shared, multicast, metadata or reserved."""
    if isinstance(address, IPv6Address):
        if (mapped := address.ipv4_mapped) is not None:
            return is_public(mapped)
        if address in _NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
        if address not in _UNICAST:
            return False
    known = any(address in network for network in _NOT_PUBLIC if network.version == address.version)
    return address.is_global and not address.is_multicast and not address.is_reserved and not known


# --- the account ------------------------------------------------------------------------------------------------

MOST_VISITS = 200  # lines of an account; a sandbox may try any number of names


class Visit(Frozen):
    """Connections of one kind: the same host and port, with the same end."""

    host: str
    port: int
    refused: Refusal | None = None
    times: int = 1
    sent: int = 0
    """Bytes that left the sandbox."""
    received: int = 0


class Ledger:
    """What went through a sandbox's proxy, and what did not."""

    def __init__(self) -> None:
        self.sent = 0
        self._visits: dict[tuple[str, int, Refusal | None], Visit] = {}
        self._refused: dict[str, Refusal] = {}

    def note(
        self, host: str, port: int, refused: Refusal | None, times: int = 0, sent: int = 0, received: int = 0
    ) -> bool:
        """Add to the line of a host, and whether that is a new one.

        What is too much for the account goes to the line of `(others)`.
        """
        if (host, port, refused) not in self._visits and len(self._visits) >= MOST_VISITS:
            host, port = "(others)", 0
        new = (host, port, refused) not in self._visits
        known = self._visits.get((host, port, refused)) or Visit(
            host=host, port=port, refused=refused, times=0
        )
        self._visits[host, port, refused] = known.model_copy(
            update={
                "times": known.times + times,
                "sent": known.sent + sent,
                "received": known.received + received,
            }
        )
        self.sent += sent
        if refused is not None and len(self._refused) < MOST_VISITS:
            self._refused[host] = refused
        return new

    def take(self) -> tuple[Visit, ...]:
        """Everything since the last time."""
        taken, self._visits = tuple(self._visits.values()), {}
        return taken

    def take_refused(self) -> dict[str, Refusal]:
        """The hosts that were refused since the last time, and why."""
        taken, self._refused = self._refused, {}
        return taken


def merged(visits: Iterable[Visit]) -> tuple[Visit, ...]:
    """The same visits with one line for each host, port and end."""
    ledger = Ledger()
    for visit in visits:
        ledger.note(visit.host, visit.port, visit.refused, visit.times, visit.sent, visit.received)
    return ledger.take()


def remark(refused: dict[str, Refusal]) -> str | None:
    """What the agent must hear of connections that were refused while its command ran; None: there were none."""
    if not refused:
        return None
    told = "; ".join(
        f"the sandbox refused a connection to {host}: {WHY[why]}" for host, why in list(refused.items())[:5]
    )
    return f"{told}; work without it, or say in your account that it is needed"
