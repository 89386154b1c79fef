"""Chromium in a container: certificates of the operator's network, and pages that use up the memory."""

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from patchwright.runtime.actions import BrowseLinks, RunShell, UseBrowser, WriteBytes
from patchwright.runtime.docker.build_context import PYTHON
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes
from patchwright.runtime.docker.sandbox_container import container_name
from patchwright.runtime.egress.proxy import EgressConfig
from patchwright.runtime.egress_forwarder import PROXY_PORT
from patchwright.runtime.egress_policy import build_policy
from patchwright.runtime.observations import PageSnapshot, ShellResult
from patchwright.runtime.sandbox import Sandbox
from tests.runtime.linked_site import LINKED, html, linked_site

pytestmark = pytest.mark.docker

Make = Callable[..., DockerSandboxes]
RECIPE = Path(__file__).parents[3] / "runtime/image_build/install_layer.py"
MAIN = '\n\nif __name__ == "__main__":\n    main()\n'
SERVE = """
from http.server import HTTPServer, SimpleHTTPRequestHandler
from ssl import PROTOCOL_TLS_SERVER, SSLContext
context = SSLContext(PROTOCOL_TLS_SERVER)
context.load_cert_chain("server.pem")
server = HTTPServer(("127.0.0.1", 8443), SimpleHTTPRequestHandler)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
ANSWERS = "until (: < /dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.05; done"
END_CHROMIUM = """for each in /proc/[0-9]*; do
grep -qs remote-debugging-pipe $each/cmdline && kill -9 ${each#/proc/}; done; sleep 0.5"""
HUNGRY = b"""<!doctype html><title>Hungry</title><button onclick="
const kept = []; for (;;) kept.push(new Uint8Array(1 << 26).fill(1))">Eat</button>"""
FORM = b"<title>Sign in</title><form><input name=email type=email><input name=password type=password></form>"
PAGE = b"<!doctype html><title>Ours</title><button>Press me</button>"


async def run(sandbox: Sandbox, command: str) -> str:
    ran = await sandbox.act(RunShell(command=command, timeout=60))
    assert isinstance(ran, ShellResult) and ran.exit_code == 0, ran
    return ran.output


async def serve(sandbox: Sandbox, certificate: bytes) -> None:
    for path, content in (
        ("server.pem", certificate),
        ("serve.py", SERVE.encode()),
        ("index.html", PAGE),
        ("hungry.html", HUNGRY),
    ):
        await sandbox.act(WriteBytes(path=path, content=content))
    await run(sandbox, f"python3 serve.py >/dev/null 2>&1 &\n{ANSWERS.format(port=8443)}")


async def browse(sandbox: Sandbox, code: str) -> PageSnapshot:
    page = await sandbox.act(UseBrowser(code=code, allowed_calls=("goto", "click")))
    assert isinstance(page, PageSnapshot), page
    return page


def authority() -> tuple[bytes, bytes]:
    """Return the certificate of an operator's CA, and one for localhost that it signed with its key, as PEM."""
    root, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def signed(
        name: str, more: x509.ExtensionType, whose: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Network")]))
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .public_key(whose.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(more, critical=True)
        )

    own = signed("Network", x509.BasicConstraints(ca=True, path_length=None), root)
    served = signed("localhost", x509.SubjectAlternativeName([x509.DNSName("localhost")]), key)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    both = (made.sign(root, hashes.SHA256()).public_bytes(Encoding.PEM) for made in (own, served))
    return next(both), next(both) + secret


async def trust(name: str, certificate: bytes) -> None:
    """Install the operator's `ca_bundle` as a layer's build does, which would take a minute."""
    recipe = RECIPE.read_text()
    assert recipe.endswith(MAIN)
    as_root = ["docker", "exec", "-i", "-u", "0", container_name(name), PYTHON, "-I", "-"]
    program = await asyncio.create_subprocess_exec(*as_root, stdin=asyncio.subprocess.PIPE)
    await program.communicate(
        f"{recipe.removesuffix(MAIN)}\nwrite_chromium_policy({certificate!r}, b'')\n".encode()
    )
    assert program.returncode == 0


@pytest.mark.slow
async def test_the_browser_trusts_the_operators_network_and_survives_a_page_that_takes_all_memory(
    docker_sandboxes: Make,
) -> None:
    own, served = authority()
    sandboxes = docker_sandboxes(memory_mb=1024, plugins=("browser",))
    name = f"trust-{os.getpid()}"
    async with sandboxes.open(name) as sandbox:
        await serve(sandbox, served)
        page = await browse(sandbox, "goto('https://localhost:8443/')")
        assert "the server's certificate is not trusted" in (page.error or "")

        await trust(name, own)
        await run(sandbox, END_CHROMIUM)
        page = await browse(sandbox, "goto('https://localhost:8443/')")
        assert page.error is None and "button 'Press me'" in page.tree

        # A page that uses up the memory loses its tab, and nothing else: the shell's server continues.
        page = await browse(sandbox, "goto('https://localhost:8443/hungry.html')\nclick('2')")
        assert any("crashed (out of memory, perhaps)" in note for note in page.notes), page
        assert any("the memory limit was reached: the kernel killed" in note for note in page.notes), page
        page = await browse(sandbox, "goto('https://localhost:8443/')")
        assert page.error is None and "button 'Press me'" in page.tree
    await sandboxes.close()


@pytest.mark.slow
async def test_the_browser_makes_no_background_requests(docker_sandboxes: Make) -> None:
    """Background requests to Google would be reported to agent and operator as denied."""
    allowed = build_policy("allowlist")
    assert allowed is not None
    sandboxes = docker_sandboxes(memory_mb=1024, plugins=("browser",), egress=EgressConfig(allowed))
    name = f"quiet-{os.getpid()}"
    async with sandboxes.open(name, online=True) as sandbox:
        await sandbox.act(WriteBytes(path="form.html", content=FORM))
        await run(sandbox, f"python3 -m http.server 8000 >/dev/null 2>&1 &\n{ANSWERS.format(port=8000)}")
        page = await browse(sandbox, "goto('http://localhost:8000/form.html')")
        assert page.title == "Sign in"
        await asyncio.sleep(5)  # it asked about the form within one second
        assert sandboxes.take_connections(name) == ()
    await sandboxes.close()


@pytest.mark.slow
async def test_only_the_browser_reads_a_linked_host_and_no_command_does(
    docker_sandboxes: Make, short_tmp: Path
) -> None:
    async with linked_site(short_tmp) as site:
        site.pages["/"] = html("<title>Linked</title><h1>The bug, step by step</h1>")
        sandboxes = docker_sandboxes(memory_mb=1024, plugins=("browser",), egress=site.egress())
        name = f"links-{os.getpid()}"
        async with sandboxes.open(name, online=True) as sandbox:
            # A command that runs at the same time gets nothing, with either form of a request.
            attempt = (
                f"curl -sk https://{LINKED}/; python3 -c \"import http.client as h; c = h.HTTPConnection('127.0.0.1', "
                f"{PROXY_PORT}); c.request('GET', 'https://{LINKED}/'); print(c.getresponse().read())\""
            )
            await run(sandbox, f"(while sleep 0.2; do {attempt}; done) > /tmp/got 2>&1 &")
            use = UseBrowser(code=f"goto('https://{LINKED}/')\nnoop(2000)", allowed_calls=("goto", "noop"))
            refused = await browse(sandbox, f"goto('https://{LINKED}/')")
            assert refused.error is not None and site.requests == []
            page = await sandbox.act(BrowseLinks(browser=use, hosts=(LINKED,)))
            assert isinstance(page, PageSnapshot)
            assert (page.error, page.title) == (None, "Linked") and "step by step" in page.tree
            assert {request.split(" ")[0] for request in site.requests} == {"GET"}
            got = await run(sandbox, "cat /tmp/got")
            assert "step by step" not in got and "not a valid proxy request" in got
            visits = [(each.host, each.denied) for each in sandboxes.take_connections(name)]
            assert (LINKED, None) in visits and (LINKED, "unlisted") in visits
        await sandboxes.close()
