"""Network access of a container, with and without the proxy. Each attack has a control without isolation."""

import asyncio
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import pytest

from patchwright.runtime.actions import Execute, RunShell
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.egress.proxy import EgressConfig
from patchwright.runtime.egress_forwarder import PROXY_PORT
from patchwright.runtime.egress_policy import ConnectionSummary
from patchwright.runtime.observations import ExecuteResult, ShellResult
from patchwright.runtime.sandbox import Sandbox
from tests.runtime.conftest import CA_BUNDLE
from tests.runtime.fake_internet import ALLOWED, PUBLIC, Internet, UncheckedPolicy, internet

pytestmark = pytest.mark.docker
NAME = f"network-{os.getpid()}"
CHECKOUT = Path(__file__).parents[3]
Make = Callable[..., DockerSandboxes]


@pytest.fixture
async def net() -> AsyncIterator[Internet]:
    async with internet() as made:
        yield made


@pytest.fixture
async def offline(docker_sandboxes: Make) -> AsyncIterator[Sandbox]:
    async with docker_sandboxes().open(NAME) as sandbox:
        yield sandbox


@pytest.fixture
async def online(docker_sandboxes: Make, net: Internet) -> AsyncIterator[Sandbox]:
    async with docker_sandboxes(egress=net.egress()).open(NAME, online=True) as sandbox:
        yield sandbox


async def sh(sandbox: Sandbox, command: str, timeout: int = 30) -> ShellResult:
    ran = await sandbox.act(RunShell(command=command, timeout=timeout))
    assert isinstance(ran, ShellResult)
    return ran


# --- without the proxy ------------------------------------------------------------------------------------------

ATTACKS = {
    "tcp": "import socket; socket.create_connection((HOST, PORT), 3).send(b'out')",
    "udp": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'out', (HOST, PORT))",
    "dns": "import socket; socket.socket(2, 2).sendto(bytes.fromhex('000101000001000000000000016101620000010001'), "
    "(HOST, 53))",
    "icmp": "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1); s.settimeout(3); "
    "s.sendto(bytes.fromhex('0800f7ff00000000'), (HOST, 0)); s.recv(99)",
    "ipv6": "import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'out', ('2a04:4e42::223', 53))",
}
PLACES = {"the internet": "1.1.1.1", "the metadata service": "169.254.169.254", "the host": "172.17.0.1"}


def script(attack: str, host: str, port: int) -> str:
    return f"HOST, PORT = {host!r}, {port}\n{ATTACKS[attack]}\nprint('sent')"


async def test_nothing_leaves_directly(offline: Sandbox) -> None:
    for attack, host in itertools.product(ATTACKS, PLACES.values()):
        result = await offline.act(Execute(argv=("python3", "-c", script(attack, host, 80))))
        assert isinstance(result, ExecuteResult)
        assert result.exit_code != 0 and b"sent" not in result.stdout
        assert any(
            sign in result.stderr for sign in (b"unreachable", b"Cannot assign", b"Permission denied")
        ), result


async def test_an_online_sandbox_has_only_the_proxy(online: Sandbox) -> None:
    for attack in ATTACKS:
        result = await online.act(Execute(argv=("python3", "-c", script(attack, "1.1.1.1", 443))))
        assert isinstance(result, ExecuteResult) and b"sent" not in result.stdout
    result = await online.act(Execute(argv=("getent", "hosts", "pypi.org")))
    assert isinstance(result, ExecuteResult) and result.exit_code != 0


async def test_the_same_reaches_the_host_where_the_engine_gives_a_network() -> None:
    """Control of the cases above, with listeners on the bridge's own address."""
    received: set[str] = set()

    class Heard(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            received.add("udp" if data == b"out" else "dns")

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.add("tcp")
        writer.close()

    gateway = await bridge()
    server = await asyncio.start_server(accept, gateway, 0)
    port = server.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    listener, _ = await loop.create_datagram_endpoint(Heard, (gateway, port))
    attacked = "\n".join(script(attack, gateway, port) for attack in ("tcp", "udp", "dns"))
    try:
        argv = ("python3", "-c", attacked.replace("(HOST, 53)", "(HOST, PORT)"))
        await weakened("--network", "bridge", "debian:bookworm-slim", *argv)
        await asyncio.sleep(0.1)
        assert received == {"tcp", "udp", "dns"}
    finally:
        server.close()
        listener.close()


async def test_a_ping_is_answered_and_packets_leave_for_anywhere_on_the_engines_network() -> None:
    """Control of the same cases for ICMP, and for addresses without a listener of ours."""
    attacks = [script("icmp", await bridge(), 0), *(script("udp", host, 80) for host in PLACES.values())]
    output = await weakened(
        "--network", "bridge", "debian:bookworm-slim", "python3", "-c", "\n".join(attacks)
    )
    assert output.splitlines() == ["sent"] * 4


@pytest.mark.slow
async def test_the_host_is_reached_by_ipv6_where_a_container_has_it() -> None:
    """Control of the same cases for IPv6, over the link of the engine's network."""
    name = f"pw-link-{os.getpid()}"
    await weakened("-d", "--name", name, "--network", "bridge", "debian:bookworm-slim", "sleep", "60")
    try:
        here = await own_ipv6("docker0")  # the link has it only while a container is on it
        await reached_by_ipv6(here)
    finally:
        await run("docker", "rm", "-f", name)


async def own_ipv6(link: str) -> int:
    """Return this host's address on a link, in the scope of the link."""
    if Path(f"/proc/sys/net/ipv6/conf/{link}/disable_ipv6").read_text().strip() != "0":
        pytest.skip("this host has no IPv6 on the engine's network, so no container reaches it that way")
    async with asyncio.timeout(15):
        while True:
            for line in Path("/proc/net/if_inet6").read_text().splitlines():
                address, _, _, scope, flags, name = line.split()
                if name == link and scope == "20" and not int(flags, 16) & 0x40:  # no longer tentative
                    return int(address, 16)
            await asyncio.sleep(0.1)


async def reached_by_ipv6(here: int) -> None:
    receiver = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    with receiver:
        receiver.bind((str(IPv6Address(here)), 0, 0, socket.if_nametoindex("docker0")))
        receiver.settimeout(5)
        there = f"{IPv6Address(here)}%eth0", receiver.getsockname()[1]
        send = ATTACKS["ipv6"].replace("('2a04:4e42::223', 53)", str(there))
        # until it has an address
        late = f"import time\nfor _ in range(80):\n  try: {send}; print('sent'); break\n"
        attack = f"{late}  except OSError: time.sleep(0.1)"
        flags = ("--sysctl", "net.ipv6.conf.all.disable_ipv6=0", "--network", "bridge")
        output = await weakened(*flags, "debian:bookworm-slim", "python3", "-c", attack)
        assert output == "sent\n" and receiver.recv(9) == b"out"


@pytest.mark.slow
async def test_another_container_is_unreachable(docker_sandboxes: Make) -> None:
    sandboxes = docker_sandboxes()
    serve = "python3 -m http.server 8000 --bind 0.0.0.0 >/dev/null 2>&1 & sleep 0.5"
    async with sandboxes.open(f"{NAME}-a") as one, sandboxes.open(f"{NAME}-b") as other:
        await sh(one, serve)
        fetch = "python3 -c \"import urllib.request as u; print(u.urlopen('http://{}:8000').status)\""
        assert (await sh(one, fetch.format("127.0.0.1"))).output == "200\n"
        for address in ("127.0.0.1", "172.17.0.2", "172.17.0.3"):
            assert (await sh(other, fetch.format(address))).exit_code == 1


async def test_the_same_container_is_reached_on_the_engines_network() -> None:
    """Control of the case above."""
    name = f"pw-neighbour-{os.getpid()}"
    serve = ["python3", "-m", "http.server", "8000"]
    await weakened("-d", "--name", name, "--network", "bridge", "debian:bookworm-slim", *serve)
    try:
        form = "{{.NetworkSettings.IPAddress}}"
        address = (await run("docker", "inspect", "-f", form, name)).strip()
        fetch = (
            "import time, urllib.request as u\nfor _ in range(50):\n"
            f"  try: print(u.urlopen('http://{address}:8000', timeout=3).status); break\n"
            "  except OSError: time.sleep(0.1)"
        )
        output = await weakened("--network", "bridge", "debian:bookworm-slim", "python3", "-c", fetch)
        assert output == "200\n"
    finally:
        await run("docker", "rm", "-f", name)


async def weakened(*arguments: str) -> str:
    """Run a command in a container of the base image as this user, without our isolation."""
    return await run(
        "docker", "run", "--rm", "--label", "io.patchwright.test=network", "--user", "10001", *arguments
    )


async def bridge() -> str:
    """Return the host's address on the engine's own network, as a container sees it."""
    routes = await weakened("--network", "bridge", "debian:bookworm-slim", "cat", "/proc/net/route")
    default = next(line.split() for line in routes.splitlines() if line.split()[1] == "00000000")
    return str(ip_address(bytes.fromhex(default[2])[::-1]))


async def run(*argv: str) -> str:
    ended = await asyncio.to_thread(subprocess.run, argv, capture_output=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.decode()


FETCH = "python3 -c \"import urllib.request as u; print(u.urlopen('{}', timeout=9).read())\" 2>&1 | tail -n 1"

# --- through the proxy ------------------------------------------------------------------------------------------


async def test_a_listed_host_is_read_and_another_is_named_to_the_agent(
    docker_sandboxes: Make, net: Internet
) -> None:
    net.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n"
    sandboxes = docker_sandboxes(egress=net.egress())
    assert sandboxes.network == "allowlist"
    async with sandboxes.open(NAME, online=True) as sandbox:
        ran = await sh(sandbox, FETCH.format(f"http://{ALLOWED}/x"))
        assert (ran.output, ran.note) == ("b'hello\\n'\n", None)
        ran = await sh(sandbox, FETCH.format("https://github.com/x"))
        assert "403 github.com: it is not on the allowlist (setting `allowed_hosts`)" in ran.output
        assert ran.note == (
            "the sandbox refused a connection to github.com: it is not on the allowlist (only the operator can "
            "allow this, with the setting `allowed_hosts`); continue without this connection, and say in your report "
            "if a check needed it"
        )
        assert (await sh(sandbox, "true")).note is None
        again = await sh(sandbox, FETCH.format("https://github.com/x"))
        assert again.note is None  # The agent is told once, and the output says it again.
        read, refused = sandboxes.take_connections(NAME)
        assert (read.host, read.port, read.bytes_received) == (ALLOWED, 80, len(net.answer))
        assert refused == ConnectionSummary(host="github.com", port=443, denied="unlisted", count=2)
        assert sandboxes.take_connections(NAME) == ()
    assert net.dialed == [(PUBLIC, 80)]


async def test_the_network_works_over_exec(docker_sandboxes: Make, net: Internet) -> None:
    net.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n"
    sandboxes = docker_sandboxes(egress=net.egress(), transport="exec")
    async with sandboxes.open(NAME, online=True) as sandbox:
        many = " & ".join([FETCH.format(f"http://{ALLOWED}/x")] * 5) + "; wait"
        ran = await sh(sandbox, many)
        assert ran.output.count("b'hello\\n'\n") == 5
        ran = await sh(sandbox, FETCH.format("https://github.com/x"))
        assert "refused a connection to github.com" in (ran.note or "")
        assert {visit.host: visit.count for visit in sandboxes.take_connections(NAME)} == {
            ALLOWED: 5,
            "github.com": 1,
        }
        for attack in ATTACKS:
            result = await sandbox.act(Execute(argv=("python3", "-c", script(attack, "1.1.1.1", 443))))
            assert isinstance(result, ExecuteResult) and b"sent" not in result.stdout
        name = "import socket; s = socket.socket(1); s.connect('\\0patchwright-egress'); print(s.recv(1))"
        # an unauthenticated connection: it is rejected
        result = await sandbox.act(Execute(argv=("python3", "-c", name)))
        assert isinstance(result, ExecuteResult) and result.stdout == b"b''\n"
    async with sandboxes.open(NAME) as sandbox:
        assert (await sh(sandbox, "env | grep -ic proxy")).output == "0\n"


OWNER = """
import asyncio, sys
sys.path.insert(0, {checkout!r})
from pathlib import Path
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.egress_policy import build_policy
from patchwright.runtime.egress.proxy import EgressConfig
from patchwright.runtime.sandbox import SandboxSpec

async def main():
    bundle = Path({bundle!r})
    build = BuildSettings(ca_bundle=bundle if bundle.exists() else None)
    sandboxes = DockerSandboxes(
        SandboxSpec(memory_mb=512), build, egress=EgressConfig(build_policy("allowlist"))
    )
    async with sandboxes.open({name!r}, online=True, adoptable=True):
        print("ready", flush=True)
        await asyncio.sleep(300)

asyncio.run(main())
"""


async def test_an_adopted_sandbox_has_its_network_again(docker_sandboxes: Make, net: Internet) -> None:
    net.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n"
    sandboxes = docker_sandboxes(egress=net.egress())
    await sandboxes.prepare()
    program = OWNER.format(checkout=str(CHECKOUT), bundle=str(CA_BUNDLE), name=NAME)
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE)
    assert owner.stdout is not None and await owner.stdout.readline() == b"ready\n"
    owner.kill()
    await owner.wait()
    async with sandboxes.adopt(NAME) as sandbox:
        assert sandbox is not None
        ran = await sh(sandbox, FETCH.format(f"http://{ALLOWED}/x"))
        assert (ran.output, ran.note) == ("b'hello\\n'\n", None)
        ran = await sh(sandbox, FETCH.format("https://github.com/x"))
        assert "refused a connection to github.com" in (ran.note or "")
        assert [visit.host for visit in sandboxes.take_connections(NAME)] == [ALLOWED, "github.com"]


async def test_git_pip_and_http_clients_use_the_proxy(online: Sandbox, net: Internet) -> None:
    for command, host in (
        ("git ls-remote https://git.test/x.git", "git.test"),
        ("pip download --no-deps --retries 0 --index-url https://index.test/simple x", "index.test"),
        ("python3 -c \"import urllib.request as u; u.urlopen('https://plain.test')\"", "plain.test"),
    ):
        ran = await sh(online, f"{command} >/dev/null 2>&1")
        assert ran.exit_code != 0
        assert f"refused a connection to {host}" in (ran.note or ""), command
    assert net.dialed == []


async def test_a_server_of_the_tests_own_is_reached_without_the_proxy(online: Sandbox) -> None:
    await sh(online, "python3 -m http.server 8123 >/dev/null 2>&1 & sleep 0.5")
    fetch = "python3 -c \"import urllib.request as u; print(u.urlopen('http://localhost:8123').status)\""
    ran = await sh(online, fetch)
    assert (ran.output, ran.note) == ("200\n", None)


AROUND = {
    "inside.test:443": "private",
    "169.254.169.254:80": "literal",
    "2130706433:443": "literal",
    "[::1]:443": "literal",
    "metadata:443": "literal",
    f"{ALLOWED}:22": "port",
    "out.test:443": "unlisted",
}


async def test_the_proxy_cannot_be_bypassed(docker_sandboxes: Make, net: Internet) -> None:
    everywhere(net)
    sandboxes = docker_sandboxes(egress=net.egress(allowed_hosts=frozenset({ALLOWED, "inside.test"})))
    async with sandboxes.open(NAME, online=True) as sandbox:
        for target, why in AROUND.items():
            assert await connect(sandbox, target) == "403"
            assert [visit.denied for visit in sandboxes.take_connections(NAME)] == [why]
    assert net.dialed == []


async def test_a_proxy_without_a_policy_allows_the_same_requests(
    docker_sandboxes: Make, net: Internet
) -> None:
    """Control of the case above."""
    everywhere(net)
    naive = EgressConfig(UncheckedPolicy(), resolve=net.resolve, dial=net.dial)
    async with docker_sandboxes(egress=naive).open(NAME, online=True) as sandbox:
        assert {await connect(sandbox, target) for target in AROUND} == {"200"}
    assert len(net.dialed) == len(AROUND)


def everywhere(net: Internet) -> None:
    """Resolve every name, as an open resolver does."""
    net.names |= {"inside.test": ["10.0.0.1"], "169.254.169.254": ["169.254.169.254"], "::1": ["::1"]}
    net.names |= {"2130706433": ["127.0.0.1"], "metadata": ["169.254.169.254"], "out.test": [PUBLIC]}


async def connect(sandbox: Sandbox, target: str) -> str:
    """Return the status of the proxy's response."""
    ask = (
        f"import socket; s = socket.create_connection(('127.0.0.1', {PROXY_PORT}), 9); "
        f"s.send(b'CONNECT {target} HTTP/1.1\\r\\n\\r\\n'); print(s.recv(99).split()[1].decode())"
    )
    result = await sandbox.act(Execute(argv=("python3", "-c", ask)))
    assert isinstance(result, ExecuteResult)
    return result.stdout.decode().strip()


async def test_an_offline_sandbox_has_no_proxy(docker_sandboxes: Make, net: Internet) -> None:
    """Tests of a patch run in offline sandboxes."""
    sandboxes = docker_sandboxes(egress=net.egress())
    async with sandboxes.open(NAME) as sandbox:
        assert (await sh(sandbox, "env | grep -ic proxy")).output == "0\n"
        assert (await sh(sandbox, f"echo > /dev/tcp/127.0.0.1/{PROXY_PORT}")).exit_code == 1
        assert (await sh(sandbox, "ls /run/patchwright")).output == "s\n"
        assert sandboxes.take_connections(NAME) == ()


async def test_the_sandbox_can_change_nothing_about_the_proxys_socket(online: Sandbox) -> None:
    for attempt in (
        "rm /run/patchwright/e",
        "mv /run/patchwright/e /run/patchwright/f",
        "ln -sf /x /run/patchwright/e",
    ):
        assert "Read-only file system" in (await sh(online, attempt)).output
