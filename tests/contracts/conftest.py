"""Every implementation of `Sandbox` and of `Forge`, opened the way it is meant to be."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from patchwright.bot.docker_proxy.proxy import DockerProxy
from patchwright.bot.github.auth import AppAuth, TokenAuth
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.jobs import JobQueue
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.demo.github import FakeGitHub, GitHubApp, Repository
from patchwright.demo.github.bare_repository import BareRepository
from patchwright.resolver.secrets import MaskingSandbox, Secrets
from patchwright.runtime.docker.docker_sandboxes import DockerSandboxes, EngineAddress
from patchwright.runtime.docker.runtime_layer import BuildSettings
from patchwright.runtime.docker.sandbox_container import TransportKind
from patchwright.runtime.execution.action_server import BOOTSTRAP_CODE
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.features import ALL_FEATURES
from patchwright.runtime.remote_sandbox import RemoteSandbox, SocketTransport
from patchwright.runtime.sandbox import Sandbox, SandboxSpec
from patchwright.runtime.wire_protocol import KEY_FILE, SOCKET_NAME
from tests.bot.inline_queue import InlineQueue
from tests.contracts.forges import QUICK

CHECKOUT = Path(__file__).parents[2]
ENGINE = Path("/var/run/docker.sock")
DOCKER = pytest.param("docker", marks=pytest.mark.docker)
LOOPBACK = pytest.param("loopback", marks=pytest.mark.slow)  # Docker goes the same way, and further
MASKED = pytest.param("masked", marks=pytest.mark.slow)
EXEC = pytest.param("exec", marks=[pytest.mark.docker, pytest.mark.slow])


@asynccontextmanager
async def loopback(place: Path, code: Path = CHECKOUT) -> AsyncIterator[RemoteSandbox]:
    """The container's server as a process of this host, dialling in as it does from a container. `code` is the
    directory from which it imports the package.
    """
    root, scratch, door_at = place / "tree", place / "tmp", place / "d"
    for directory in (root, scratch, door_at):
        directory.mkdir()
    async with SocketTransport.listen(door_at) as door:
        serve = [
            "--socket",
            door_at / SOCKET_NAME,
            "--key",
            door_at / KEY_FILE,
            "--root",
            root,
            "--scratch",
            scratch,
        ]
        server = await asyncio.create_subprocess_exec(
            *[sys.executable, "-I", "-c", BOOTSTRAP_CODE, str(code), *map(str, serve)],
            cwd=root,
            env={"PATH": os.environ["PATH"], "HOME": str(place), "LANG": "C.UTF-8"},
        )
        try:
            await door.get_connection(timeout=30)
            yield RemoteSandbox(door, str(root), str(scratch))
        finally:
            server.terminate()
            await asyncio.wait_for(server.wait(), timeout=10)


@asynccontextmanager
async def opened(kind: str, place: Path) -> AsyncIterator[Sandbox]:
    match kind:
        case "executor":
            async with LocalSandboxes(place, os.environ).open("contract") as sandbox:
                yield sandbox
        case "loopback":
            async with loopback(place) as sandbox:
                yield sandbox
        case "masked":
            async with LocalSandboxes(place, os.environ).open("contract") as sandbox:
                yield MaskingSandbox(sandbox, Secrets(["a-secret-that-no-case-prints"]))
        case "exec":  # as in compose.yaml: through the gate, which leaves no other way
            async with (
                DockerProxy(ENGINE).listen(place / "engine"),
                docker("exec", f"unix://{place}/engine") as sandbox,
            ):
                yield sandbox
        case _:
            async with docker("socket") as sandbox:
                yield sandbox


@asynccontextmanager
async def docker(transport: TransportKind, engine_url: str | None = None) -> AsyncIterator[Sandbox]:
    bundle = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))
    build = BuildSettings(
        ALL_FEATURES, bundle if bundle.exists() else None, os.environ.get("PATCHWRIGHT_PACKAGE_INDEX")
    )
    sandboxes = DockerSandboxes(
        SandboxSpec(memory_mb=1024), build, engine=EngineAddress(engine_url, transport)
    )
    async with sandboxes.open(f"contract-{os.getpid()}") as sandbox:
        yield sandbox
    await sandboxes.close()


@pytest.fixture(params=["executor", LOOPBACK, MASKED, DOCKER, EXEC])
async def sandbox(request: pytest.FixtureRequest, short_tmp: Path) -> AsyncIterator[Sandbox]:
    """An empty sandbox of each kind."""
    async with opened(request.param, short_tmp) as sandbox:
        yield sandbox


@pytest.fixture(params=["loopback", DOCKER, EXEC])
async def remote(request: pytest.FixtureRequest, short_tmp: Path) -> AsyncIterator[Sandbox]:
    """Those behind a wire. The executor and its masked form are left out: no connection could drop."""
    async with opened(request.param, short_tmp) as sandbox:
        yield sandbox


# --- forges ---------------------------------------------------------------------------------------------------


@pytest.fixture
def repo(fake_github: FakeGitHub) -> Repository:
    return fake_github.create_repository(
        "acme/sample",
        {"calc.py": "def add(a, b):\n    return a - b\n"},
        permissions={"maintainer": "write", "boss": "maintain", "triager": "triage", "patchwright": "write"},
    )


@pytest.fixture
def app(fake_github: FakeGitHub, repo: Repository) -> GitHubApp:
    app = fake_github.create_app("patchwright-app")
    fake_github.install_app(app, repo)
    return app


@pytest.fixture(params=["token", "app"])
def another(
    request: pytest.FixtureRequest, fake_github: FakeGitHub, app: GitHubApp
) -> Callable[[], GitHubForge]:
    """A forge as a process that has just started has it."""
    access: TokenAuth | AppAuth
    if request.param == "token":
        access = TokenAuth(SecretStr(fake_github.create_token("patchwright")))
    else:
        access = AppAuth(str(app.id), SecretStr(app.private_key_pem))
    urls = fake_github.urls
    return lambda: GitHubForge(access, urls, policy=QUICK)


@pytest.fixture
async def forge(another: Callable[[], GitHubForge]) -> AsyncIterator[GitHubForge]:
    async with another() as forge:
        yield forge


@pytest.fixture
def clone(repo: Repository, tmp_path: Path) -> BareRepository:
    """A bare copy of acme/sample."""
    clone = BareRepository.create(tmp_path / "clone.git", "main")
    clone.git("fetch", "--quiet", str(repo.bare.path), "refs/heads/*:refs/heads/*")
    clone.git("remote", "add", "origin", str(repo.bare.path))
    clone.git("branch", "fix", "main")
    return clone


@pytest.fixture(params=[pytest.param("redis", marks=pytest.mark.redis), "inline"])
async def queue(request: pytest.FixtureRequest, short_tmp: Path) -> AsyncIterator[JobQueue]:
    if request.param == "inline":
        yield InlineQueue()
        return
    async with run_embedded_redis(short_tmp) as url:
        arq_queue = ArqQueue(url, is_only_worker=True)
        yield arq_queue
        await arq_queue.close()
