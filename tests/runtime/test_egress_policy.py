"""The egress policy, without any network."""

import contextlib
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchwright.runtime.egress.sni import NotTls, parse_server_name
from patchwright.runtime.egress_policy import (
    DEFAULT_HOSTS,
    MAX_SUMMARIES,
    ConnectionLog,
    ConnectionSummary,
    DenialReason,
    EgressDenied,
    EgressPolicy,
    Origin,
    build_origin_policy,
    build_policy,
    denial_note,
    is_host_pattern,
    is_public,
    merge_summaries,
    parse_mirror_network,
)
from tests.runtime.fake_internet import client_hello


def refused(policy: EgressPolicy, host: str, port: int = 443, plain: bool = False) -> DenialReason | None:
    try:
        policy.check_host(host, port, plain)
    except EgressDenied as no:
        return no.reason
    return None


# --- names ------------------------------------------------------------------------------------------------------


def test_by_default_only_package_indexes_are_reached() -> None:
    default = build_policy("allowlist")
    assert default is not None and default.network == "allowlist"
    assert refused(default, "pypi.org") is None
    assert refused(default, "deb.debian.org", 80, plain=True) is None
    for host in ("github.com", "api.github.com", "raw.githubusercontent.com", "example.org", "evil.pypi.org"):
        assert refused(default, host) == "unlisted"
    assert not any("github" in host or "gitlab" in host for host in DEFAULT_HOSTS)


def test_allowed_hosts_are_reached_and_wildcards_match_subdomains() -> None:
    added = build_policy("allowlist", ["Mirror.Example.org.", "*.example.net"])
    assert added is not None
    assert refused(added, "mirror.example.org") is None
    assert refused(added, "a.b.example.net") is None and refused(added, "b.example.net") is None
    assert refused(added, "example.net") == "unlisted"
    assert refused(added, "notexample.net") == "unlisted"
    assert [is_host_pattern(each) for each in ("*.example.net", "*", "http://x.y", "10.0.0.1", "a b.c")] == [
        *(True, False, False, False, False)
    ]


def test_open_network_means_every_public_name_only() -> None:
    everything = build_policy("open")
    assert everything is not None and everything.network == "open"
    assert refused(everything, "example.org") is None
    assert refused(everything, "localhost") == "literal"


def test_no_network_is_no_policy() -> None:
    assert build_policy("none", ["example.org"]) is None


@pytest.mark.parametrize(
    "host",
    [
        *(
            "127.0.0.1",
            "0177.0.0.1",
            "0x7f.0.0.1",
            "2130706433",
            "0x7f000001",
            "127.1",
            "1.1.1.1",
            "10.0.0x1",
        ),
        *(
            "::1",
            "[::1]",
            "::ffff:127.0.0.1",
            "fe80::1%eth0",
            "localhost",
            "metadata",
            "",
            ".",
            "a..b",
            "-a.org",
        ),
        *(
            "exa mple.org",
            "example.org\r\nX: y",
            "пример.рф",
            "a" * 64 + ".org",
            "a." * 127 + "org",
            "x.0x",
            "x.09",
        ),
    ],
)
def test_incomplete_names_and_addresses_are_denied_in_any_notation(host: str) -> None:
    everything = build_policy("open")
    assert everything is not None
    assert refused(everything, host) == "literal"


@pytest.mark.parametrize(
    ("port", "plain"), [(22, False), (80, False), (443, True), (8443, False), (25, True)]
)
def test_other_ports_are_refused(port: int, plain: bool) -> None:
    everything = build_policy("open")
    assert everything is not None
    assert refused(everything, "example.org", port, plain) == "port"


def test_the_operators_own_index_may_lie_in_a_private_network_and_on_any_port() -> None:
    mine = build_policy("allowlist", package_index="http://10.1.2.3:3141/simple")
    assert mine is not None
    assert refused(mine, "10.1.2.3", 3141, plain=True) is None
    assert mine.check_addresses("10.1.2.3", 3141, ["10.1.2.3"]) == [ip_address("10.1.2.3")]
    assert refused(mine, "10.1.2.3", 22) == "literal"
    assert refused(mine, "10.1.2.4", 3141, plain=True) == "literal"


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://mcp.example.org/mcp", Origin(host="mcp.example.org", port=443, tls=True)),
        ("http://10.1.2.3", Origin(host="10.1.2.3", port=80, tls=False)),
        ("https://straße.example:8443/", Origin(host="strasse.example", port=8443, tls=True)),
    ],
)
def test_an_origin_is_read_from_its_url(url: str, origin: Origin) -> None:
    assert Origin.from_url(url) == origin


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://me:s3cret@example.org", "^this URL must not contain credentials: put a key into a header$"),
        ("ftp://example.org", r"^ftp://example\.org is not an http\(s\) URL$"),
        ("https:///path", r"is not an http\(s\) URL$"),
    ],
)
def test_a_url_that_is_no_origin_is_refused_without_its_password(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Origin.from_url(url)


def test_a_configured_server_is_the_only_one_reached() -> None:
    public = build_origin_policy(Origin.from_url("https://mcp.example.org:8443"), 3, ["10.9.0.0/16"])
    inside = build_origin_policy(Origin.from_url("http://10.1.2.3:80"), 3)
    assert refused(public, "mcp.example.org", 8443) is None and refused(inside, "10.1.2.3", 80) is None
    for policy in (public, inside):
        assert policy.max_upload_bytes == 3 * 1024 * 1024
        assert refused(policy, "pypi.org") == "unlisted" and refused(policy, "mcp.example.org") == "unlisted"
    # A public name must not lead into the operator's network, unless it is a mirror there.
    assert public.check_addresses("mcp.example.org", 8443, ["10.9.0.7"]) == [ip_address("10.9.0.7")]
    with pytest.raises(EgressDenied):
        public.check_addresses("mcp.example.org", 8443, ["10.1.2.3"])
    assert inside.check_addresses("10.1.2.3", 80, ["10.1.2.3"]) == [ip_address("10.1.2.3")]


def test_the_upload_limit_is_the_operators() -> None:
    for policy in (build_policy("open", max_upload_mb=3), build_policy("allowlist", max_upload_mb=3)):
        assert policy is not None and policy.max_upload_bytes == 3 * 1024 * 1024


# --- addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "172.17.0.1", "192.168.1.1", "0.0.0.0", "255.255.255.255"),
        *(
            "169.254.169.254",
            "168.63.129.16",
            "192.0.0.192",
            "100.100.100.200",
            "100.64.0.1",
            "224.0.0.1",
            "240.0.0.1",
        ),
        *("192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1", "192.88.99.1"),
        *("::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "100::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1"),
        *("2002:7f00:1::", "2001::1", "2001:20::1", "5f00::1"),
    ],
)
def test_non_public_addresses_are_denied(address: str) -> None:
    assert not is_public(ip_address(address))
    everything = build_policy("open")
    assert everything is not None
    for found in ([address], ["1.1.1.1", address]):  # it is denied beside a public one, too
        with pytest.raises(EgressDenied) as caught:
            everything.check_addresses("example.org", 443, found)
        assert caught.value.reason == "private"


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "151.101.0.223", "2a04:4e42::223", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_public_addresses_are_dialed(address: str) -> None:
    assert is_public(ip_address(address))


def test_the_mirrors_of_a_closed_network_count_as_public_and_nothing_else_does() -> None:
    closed = build_policy("allowlist", allowed_addresses=["10.9.0.0/16"])
    assert closed is not None
    assert closed.check_addresses("pypi.org", 443, ["10.9.0.7"]) == [ip_address("10.9.0.7")]
    for inside in ("10.8.0.1", "127.0.0.1", "169.254.169.254", "::ffff:10.9.0.7"):
        with pytest.raises(EgressDenied):
            closed.check_addresses("pypi.org", 443, [inside])


@pytest.mark.parametrize(
    "network", ["0.0.0.0/0", "169.254.169.254", "127.0.0.0/8", "::/0", "fe80::/64", "10.0.0.1/8"]
)
def test_no_setting_makes_this_machine_or_a_metadata_service_public(network: str) -> None:
    with pytest.raises(ValueError, match=r"metadata|host bits"):
        parse_mirror_network(network)


# --- the connection log
# -----------------------------------------------------------------------------------------


def test_the_connection_log_has_one_entry_per_outcome_and_a_limit() -> None:
    connection_log = ConnectionLog()
    connection_log.record("a.org", 443, None, count=1)
    connection_log.record("a.org", 443, None, bytes_sent=10)
    connection_log.record("a.org", 443, None, count=1, bytes_sent=5, bytes_received=7)
    connection_log.record("b.org", 443, "unlisted", count=1)
    assert connection_log.take() == (
        ConnectionSummary(host="a.org", port=443, count=2, bytes_sent=15, bytes_received=7),
        ConnectionSummary(host="b.org", port=443, denied="unlisted", count=1),
    )
    assert connection_log.take() == ()
    for number in range(1000):
        connection_log.record(f"{number}.org", 443, "unlisted", count=1)
    taken = connection_log.take()
    assert len(taken) == MAX_SUMMARIES + 1
    assert taken[-1] == ConnectionSummary(host="(others)", port=0, denied="unlisted", count=800)
    assert len(connection_log.take_denied()) == MAX_SUMMARIES


def test_connection_summaries_are_merged() -> None:
    one = ConnectionSummary(host="a.org", port=443, count=1, bytes_sent=1, bytes_received=2)
    assert merge_summaries([one, one]) == (
        ConnectionSummary(host="a.org", port=443, count=2, bytes_sent=2, bytes_received=4),
    )


def test_the_agent_is_told_the_denied_host_and_the_setting() -> None:
    assert denial_note({}) is None
    several = denial_note({"github.com": "unlisted", "slow.test": "unreachable"})
    assert several and "`allowed_hosts`); the sandbox refused" not in several
    assert "; the sandbox refused a connection to slow.test: it does not respond" in several
    assert denial_note({"slow.test": "unreachable"}) == (
        "the sandbox refused a connection to slow.test: it does not respond; continue without this connection, and "
        "say in your report if a check needed it"
    )
    assert denial_note({"github.com": "unlisted"}) == (
        "the sandbox refused a connection to github.com: it is not on the allowlist (only the operator can "
        "allow this, with the setting `allowed_hosts`); continue without this connection, and say in your report "
        "if a check needed it"
    )


# --- ClientHello
# ------------------------------------------------------------------------------------------------


def in_records(hello: bytes, size: int) -> bytes:
    """Split a message into records of a few bytes each."""
    message = hello[5:]
    parts = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(hello[:3] + len(part).to_bytes(2, "big") + part for part in parts)


def test_the_name_is_read_from_a_real_hello_however_it_is_cut() -> None:
    hello = client_hello("Pypi.org")
    assert parse_server_name(hello) == "pypi.org"
    assert parse_server_name(hello + b"more") == "pypi.org"
    for size in (1, 7, 100):
        assert parse_server_name(in_records(hello, size)) == "pypi.org"
    assert all(parse_server_name(hello[:cut]) is None for cut in range(len(hello)))
    assert parse_server_name(client_hello(None)) == ""


@pytest.mark.parametrize(
    "data",
    [
        *(b"GET / HTTP/1.1\r\n", b"SSH-2.0-OpenSSH", b"\x16\x02", b"\x15\x03\x01\x00\x02\x01\x00"),
        b"\x16\x03\x01\x00\x00",  # an empty record, which could be repeated endlessly
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x01",  # a ServerHello
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",  # a ClientHello of 16 MB
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03",  # a ClientHello that ends at once
    ],
)
def test_bytes_that_are_no_client_hello_are_rejected_early(data: bytes) -> None:
    with pytest.raises(NotTls):
        parse_server_name(data)


def test_two_names_in_one_client_hello_are_rejected() -> None:
    hello = client_hello("a.org")
    name = b"\x00\x00\x00\x0a\x00\x08\x00\x00\x05a.org"
    assert name in hello
    at = hello.index(name)
    twice = bytearray(hello[:at] + name + hello[at:])
    for field in (3, 7, _extensions_at(hello)):
        grown = int.from_bytes(twice[field : field + 2], "big") + len(name)
        twice[field : field + 2] = grown.to_bytes(2, "big")
    with pytest.raises(NotTls):
        parse_server_name(bytes(twice))


def _extensions_at(hello: bytes) -> int:
    at = 5 + 4 + 2 + 32
    at += 1 + hello[at]
    at += 2 + int.from_bytes(hello[at : at + 2], "big")
    return at + 1 + hello[at]


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    for each in (data, b"\x16\x03\x01" + data, b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03" + data):
        with contextlib.suppress(NotTls):
            assert parse_server_name(each) is None or isinstance(parse_server_name(each), str)
