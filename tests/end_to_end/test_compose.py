"""Starts compose.yaml as in docs/self-hosting.md, adds a label, upgrades during a run, and restores a backup."""

import asyncio
import contextlib
import html
import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from patchwright import LLM, Conversation, RemoteWorkspace, default_agent
from tests.end_to_end.conftest import CODE, FIX_TURNS, TESTS, Scenario
from tests.end_to_end.conftest import KEY as MODEL_KEY

CHECKOUT = Path(__file__).parents[2]
IMAGE = f"patchwright-test-compose:{os.getpid()}"
BUNDLE = Path(os.environ.get("PATCHWRIGHT_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt"))
OF_THE_APP = ("PATCHWRIGHT_APP_ID", "PATCHWRIGHT_PRIVATE_KEY", "PATCHWRIGHT_WEBHOOK_SECRET")
pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.compose, pytest.mark.timeout(1200)]


def program() -> list[str]:
    """Returns the available Docker Compose command."""
    return ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]


def run(*command: str, timeout: float = 900, **more: object) -> str:
    """Runs a command and returns its output. Raises AssertionError with the output if it fails."""
    environment = {**os.environ, "DOCKER_BUILDKIT": "0"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=environment, check=False, **more
    )  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """Builds the checkout's Dockerfile. Its base image, a build argument, trusts this machine's certificates."""
    base = f"{IMAGE.replace(':', '-base:')}"
    with tempfile.TemporaryDirectory() as place:
        lines = ["FROM debian:bookworm-slim"]
        if BUNDLE.exists():
            shutil.copy(BUNDLE, Path(place) / "trusted.crt")
            lines += ["COPY trusted.crt /etc/ssl/certs/ca-certificates.crt"]
            lines += ["ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt"]
        (Path(place) / "Dockerfile").write_text("\n".join(lines) + "\n")
        run("docker", "build", "--quiet", "--tag", base, place)
    arguments = ["--build-arg", f"BASE={base}"]
    if index := os.environ.get("PATCHWRIGHT_PACKAGE_INDEX"):
        arguments += ["--build-arg", f"PIP_INDEX_URL={index}"]
    run("docker", "build", "--quiet", "--network", "host", *arguments, "--tag", IMAGE, str(CHECKOUT))
    yield IMAGE
    run("docker", "image", "rm", "--force", IMAGE, base)


@dataclass
class Compose:
    """A project of compose.yaml and compose.conversations.yaml with the settings of a scenario."""

    place: Path
    name: str
    port: int

    async def __call__(self, *arguments: str) -> str:
        files = [
            CHECKOUT / "compose.yaml",
            CHECKOUT / "compose.conversations.yaml",
            self.place / "override.yaml",
        ]
        place = ["--project-directory", str(self.place), "--project-name", self.name]
        named = (argument for file in files for argument in ("--file", str(file)))
        return await asyncio.to_thread(run, *program(), *named, *place, *arguments)

    async def ready(self, path: str = "/readyz") -> None:
        async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(120):
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(f"http://127.0.0.1:{self.port}{path}")).status_code == 200:
                        return
                await asyncio.sleep(0.5)

    async def runs(self) -> dict[str, str]:
        """Returns the runs that `patchwright runs` lists in a worker, with their states."""
        listed = json.loads(await self("exec", "-T", "worker", "patchwright", "runs", "--json"))
        return {each["run"]: each["state"] for each in listed["runs"]}


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@asynccontextmanager
async def forward_ports(address: str, urls: Sequence[str]) -> AsyncIterator[None]:
    """Makes ports on this machine's loopback interface available to the containers of a network."""

    async def meet(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far, on = await asyncio.open_connection("127.0.0.1", port)

        async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while piece := await source.read(1 << 16):
                    target.write(piece)
                    await target.drain()
            target.close()

        await asyncio.gather(carry(reader, on), carry(far, writer))

    async with contextlib.AsyncExitStack() as stack:
        for port in {urlsplit(url).port or 80 for url in urls}:
            server = await asyncio.start_server(lambda r, w, port=port: meet(port, r, w), address, port)
            await stack.enter_async_context(server)
        yield


@asynccontextmanager
async def run_compose(
    scenario: Scenario, image: str, tmp_path: Path, *, is_set_up: bool = True
) -> AsyncIterator[Compose]:
    """Starts the project, and removes it with its volumes at the end. The model must be running."""
    name = f"pw{secrets.token_hex(4)}"
    await asyncio.to_thread(run, "docker", "network", "create", name)
    try:
        form = "{{(index .IPAM.Config 0).Gateway}}"
        address = (
            await asyncio.to_thread(run, "docker", "network", "inspect", name, "--format", form)
        ).strip()
        compose = Compose(tmp_path, name, free_port())
        key = tmp_path / "key.pem"
        key.write_text(scenario.environment["PATCHWRIGHT_PRIVATE_KEY"])
        key.chmod(0o644)
        left_out = ("PATH", "HOME", "PATCHWRIGHT_DATA", "PATCHWRIGHT_SANDBOX", "PATCHWRIGHT_PRIVATE_KEY")
        data = {name: value for name, value in scenario.environment.items() if name not in left_out}
        data |= {"PATCHWRIGHT_PRIVATE_KEY": "/run/key.pem", "PATCHWRIGHT_SANDBOX": "docker"}
        if not is_set_up:
            data = {name: value for name, value in data.items() if name not in OF_THE_APP}
        lines = [f"{name}={value.replace('127.0.0.1', address)}\n" for name, value in data.items()]
        (tmp_path / "patchwright.env").write_text("".join(lines))
        (tmp_path / ".env").write_text(f"PATCHWRIGHT_LISTEN=127.0.0.1:{compose.port}\n")
        service = {"image": image, "volumes": [f"{key}:/run/key.pem:ro"]}
        services = dict.fromkeys(("server", "worker"), service) | {
            one: {"image": image} for one in ("docker-proxy", "redis")
        }
        override = {"services": services, "networks": {"default": {"external": {"name": name}}}}
        (tmp_path / "override.yaml").write_text(json.dumps(override))
        urls = [
            scenario.fake_github.api_url,
            scenario.fake_github.server_url,
            scenario.environment["PATCHWRIGHT_MODEL_BASE_URL"],
        ]
        async with forward_ports(address, urls):
            try:
                await compose("up", "--detach", "--no-build")
                await compose.ready("/readyz" if is_set_up else "/healthz")
                if is_set_up:
                    scenario.fake_github.add_webhook(
                        f"http://127.0.0.1:{compose.port}/webhook", "story-webhook-secret"
                    )
                yield compose
            finally:
                print(await compose("logs", "--no-color", "--tail", "100"))
                await compose("down", "--volumes", "--timeout", "30")
    finally:
        await asyncio.to_thread(run, "docker", "network", "rm", name)


def fix_in_a_conversation(url: str, key: str, llm: LLM) -> str:
    """Lets an agent of the HTTP API fix the code of the scenario. Returns the fixed code."""
    with RemoteWorkspace(url, api_key=key) as workspace:
        workspace.file_upload("calc.py", CODE.encode())
        workspace.file_upload("tests/test_calc.py", TESTS.encode())
        conversation = Conversation(default_agent(llm), workspace)
        conversation.send_message("Make add() add.")
        state = conversation.run()
        assert state.status == "finished", state.detail
        return workspace.file_download("calc.py").decode()


async def wait_for_pulls(scenario: Scenario, pulls: int) -> None:
    async with asyncio.timeout(180):
        while len(scenario.repo.pulls) < pulls:
            await asyncio.sleep(0.3)


async def test_a_compose_deployment_handles_labels_upgrades_and_backups(
    scenario: Scenario, image: str, tmp_path: Path
) -> None:
    requested = asyncio.Event()

    def note(turn: int, body: object) -> None:
        if turn == 2 and "add() again" in str(body):
            requested.set()

    await scenario.script_model(*FIX_TURNS, delay=0.5, on_request=note)
    async with run_compose(scenario, image, tmp_path) as compose:
        await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
        await wait_for_pulls(scenario, 1)
        assert scenario.pull.draft is False
        key = (await compose("exec", "-T", "server", "patchwright", "api-key", "create", "client")).strip()
        settings = dict(
            line.split("=", 1) for line in (tmp_path / "patchwright.env").read_text().splitlines()
        )
        llm = LLM(model="openai/recorded", api_key=MODEL_KEY, base_url=settings["PATCHWRIGHT_MODEL_BASE_URL"])
        url = f"http://127.0.0.1:{compose.port}"
        fixed = await asyncio.to_thread(fix_in_a_conversation, url, key, llm)
        assert fixed == CODE.replace("a - b", "a + b")

        another = scenario.fake_github.create_issue(
            scenario.repo, title="add() again", body="It should add.", by="reporter"
        )
        await scenario.fake_github.add_label(another, "fix-me", by="maintainer")
        async with asyncio.timeout(120):
            await requested.wait()
        await compose("up", "--detach", "--no-build", "--force-recreate", "worker", "server", "redis")
        await wait_for_pulls(scenario, 2)
        assert len(scenario.repo.comments(another.number)) == 1

        async with asyncio.timeout(60):
            while sorted((before := await compose.runs()).values()) != ["published", "published"]:
                await asyncio.sleep(0.5)
        await compose("stop")
        volume = f"{compose.name}_data"
        copy = ["docker", "run", "--rm", "--network", "none", "--volume", f"{volume}:/data"]
        copy += ["--volume", f"{tmp_path}:/backup", "--user", "0", "--entrypoint", "tar", image]
        await asyncio.to_thread(run, *copy, "-C", "/data", "-cf", "/backup/data.tar", ".")
        await compose("down", "--volumes")
        await asyncio.to_thread(run, *copy, "-C", "/data", "-xf", "/backup/data.tar")
        await compose("up", "--detach", "--no-build")
        await compose.ready()
        assert await compose.runs() == before


async def test_a_compose_deployment_is_set_up_in_the_browser_and_its_worker_starts(
    scenario: Scenario, image: str, tmp_path: Path
) -> None:
    await scenario.script_model(*FIX_TURNS)
    scenario.fake_github.sign_in("maintainer")
    async with run_compose(scenario, image, tmp_path, is_set_up=False) as compose:
        url = f"http://127.0.0.1:{compose.port}"
        (code,) = re.findall(r"enter this code: (\S+)", await compose("logs", "--no-color", "server"))
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as browser:
            assert (await browser.post("/setup/code", data={"code": code})).status_code == 303
            page = await browser.post(
                "/setup/app", data={"reach": "webhook", "public_url": url, "confirmed_url": url}
            )
            (address,) = re.findall(r'action="(http[^"]+/settings/apps/new[^"]*)"', page.text)
            (manifest,) = re.findall(r'name="manifest" value="([^"]*)"', page.text)
            form = {"manifest": html.unescape(manifest), "agreed": "yes"}
            made = await browser.post(html.unescape(address), data=form)
            assert (await browser.get(made.headers["location"])).headers["location"] == "/welcome"
            app = scenario.fake_github.apps[-1]
            scenario.fake_github.install_app(app, scenario.repo)
            await compose.ready()  # the worker too: it restarted until the App existed
            assert "Installed for acme." in (await browser.get("/welcome")).text
        checked = json.loads(
            await compose("exec", "-T", "worker", "sh", "-c", "patchwright doctor --json || true")
        )
        failed = [one for one in checked["checks"] if one["state"] == "failed"]
        await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
        await wait_for_pulls(scenario, 1)
    there = {"data directory", "GitHub App", "installations", "engine", "sandbox limits"}
    assert not there & {one["name"] for one in failed}, failed
    (webhook,) = [one for one in failed if one["name"] == "webhook"]  # a loopback URL was confirmed above
    assert webhook["detail"].startswith(f"GitHub cannot reach {url}/webhook")
