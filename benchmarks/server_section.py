"""Measures the README's server section exactly as written: from a clone to the pull request for a labeled
issue.

The environment is that of a bare machine. HOME is empty (no pip cache, nothing of ours), and only the
variables of a restricted network are passed on. The Docker engine is a separate one, started here, that
contains only debian:bookworm-slim. So bundle, features, and layer are built while the forms are filled in.
Already present: Python and git, as in the README, the engine's programs, that base image (which an engine
with access to a registry pulls), and Chromium.

GitHub is the fake server on this machine, so it can reach the server's webhook; its address is typed into the
form. The model is the demo's recording and answers immediately. A program fills in the forms, so reading and
typing are not included. `server_section_again` repeats it with another clone and HOME, on the engine that now
has the images. `server_section_installed` is the time until the first run shows the server's address and
code.

It needs root, port 8000, and five minutes: `script/bench long`.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from playwright.async_api import Page, async_playwright

from benchmarks.measure import Result, report
from benchmarks.reaction import until
from benchmarks.viewer import CHROMIUM, FLAGS
from patchwright.demo.api_formats import ApiFormat
from patchwright.demo.github import FakeGitHub, Issue, Repository
from patchwright.demo.recorded_model import ModelFault, RecordedCall, RecordedModel, RecordedTurn
from patchwright.resolver.llm.probe import PROBE_NUMBER
from patchwright.runtime.docker.runtime_layer import BUNDLE_SOURCE_IMAGE

ROOT = Path(__file__).parents[1]
KEY = "sk-server-section"
LIMIT = 900.0  # seconds for each wait
THROUGH_A_CLOSED_NETWORK = (
    "PATCHWRIGHT_CA_BUNDLE", "PATCHWRIGHT_PACKAGE_INDEX", "SSL_CERT_FILE", "PIP_CERT", "PIP_INDEX_URL",
)  # fmt: skip
BRIDGE, SUBNET, GATEWAY = "patchwright0", "172.31.250.0/24", "172.31.250.1/24"
TRIED = RecordedTurn("", calls=(RecordedCall(name="report_number", arguments={"number": PROBE_NUMBER}),))


def commands(readme: str) -> str:
    """Returns the commands of the section."""
    section = readme.partition("\n### On a server\n")[2].partition("\n##")[0]
    typed = section.partition("```sh\n")[2].partition("```")[0]
    if not typed.strip():
        raise RuntimeError("The README has no commands under 'On a server'")
    return typed


class SetupModel(RecordedModel):
    """The recorded model, which also answers the test call of the setup."""

    def __init__(self) -> None:
        recording = json.loads((files("demo") / "sample" / "recording.json").read_text(encoding="utf-8"))
        self._recorded = tuple(RecordedTurn.model_validate(turn) for turn in recording)
        super().__init__(self._recorded, key=KEY)

    async def _complete(self, request: dict[str, Any], api_format: ApiFormat) -> ModelFault:
        tried = TRIED.calls[0].name in str(api_format.parse_messages(request))
        self._turns = (TRIED,) if tried else self._recorded
        return await super()._complete(request, api_format)


@dataclass(frozen=True)
class GitHub:
    """The fake server with the sample repository and its issue, without an App."""

    fake_github: FakeGitHub
    repository: Repository
    issue: Issue

    @classmethod
    def with_an_issue(cls, fake_github: FakeGitHub) -> "GitHub":
        sample = files("demo") / "sample"
        with as_file(sample / "repository") as path:
            repository = fake_github.create_repository(
                "acme/durations", path, permissions={"maintainer": "admin"}
            )
        title, _, body = (sample / "issue.md").read_text(encoding="utf-8").partition("\n")
        issue = fake_github.create_issue(
            repository, title=title.lstrip("# "), body=body.strip(), by="reporter"
        )
        fake_github.sign_in("maintainer")
        return cls(fake_github, repository, issue)


@dataclass
class Typed:
    """What was typed at the terminal, and its output since."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)

    async def wait_for(self, pattern: str) -> str:
        """Waits for this output. Raises RuntimeError if it does not appear."""
        await self.until(lambda: self._found(pattern), pattern)
        return self._found(pattern)

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Waits until the condition is true. Raises RuntimeError with the terminal's output if it never is."""
        with contextlib.suppress(TimeoutError):
            await until(lambda: bool(condition()) or self.process.returncode is not None, LIMIT)
        if not condition():
            raise RuntimeError(f"{what} did not appear:\n" + "".join(self.lines[-30:]))

    def _found(self, pattern: str) -> str:
        found = re.search(pattern, "".join(self.lines), re.MULTILINE)
        return found[1] if found else ""

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode(errors="replace"))


@contextlib.contextmanager
def bridge() -> Iterator[str]:
    """Yields a network for the second engine, with access to the outside.

    Not `--bridge none`, which removes the first engine's docker0. Nor the second engine's own rules, which
    would replace the first one's.
    """
    rules = (
        ["-t", "nat", "{}", "POSTROUTING", "-s", SUBNET, "!", "-o", BRIDGE, "-j", "MASQUERADE"],
        ["{}", "FORWARD", "-i", BRIDGE, "-j", "ACCEPT"],
        ["{}", "FORWARD", "-o", BRIDGE, "-j", "ACCEPT"],
    )

    def ruled(verb: str) -> None:
        for rule in rules:
            subprocess.run(["iptables", *(part.format(verb) for part in rule)], check=True)

    subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], check=True)
    try:
        subprocess.run(["ip", "addr", "add", GATEWAY, "dev", BRIDGE], check=True)
        subprocess.run(["ip", "link", "set", BRIDGE, "up"], check=True)
        ruled("-I")
        try:
            yield BRIDGE
        finally:
            ruled("-D")
    finally:
        subprocess.run(["ip", "link", "del", BRIDGE], check=True)


@contextlib.contextmanager
def bare_engine(directory: Path) -> Iterator[str]:
    """Yields the address of a Docker engine with only the base image, next to the machine's own."""
    with bridge() as network:
        yield from _engine(directory, network)


def _engine(directory: Path, network: str) -> Iterator[str]:
    address, log = f"unix://{directory}/engine.sock", directory / "engine.log"
    with log.open("wb") as output:
        engine = subprocess.Popen(
            ["dockerd", "--host", address, "--data-root", directory / "data", "--exec-root", directory / "exec",
             "--pidfile", directory / "pid", "--bridge", network, "--iptables=false", "--ip6tables=false"],
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        for _ in range(300):
            answers = subprocess.run(["docker", "--host", address, "version"], capture_output=True)
            if answers.returncode == 0 or engine.poll() is not None:
                break
            time.sleep(0.1)
        else:
            raise RuntimeError("The engine does not answer")
        if engine.poll() is not None:
            raise RuntimeError(f"The engine did not start:\n{log.read_text()[-2000:]}")
        base = directory / "base.tar"
        subprocess.run(["docker", "save", "--output", base, BUNDLE_SOURCE_IMAGE], check=True)
        subprocess.run(["docker", "--host", address, "load", "--quiet", "--input", base], check=True)
        yield address
    finally:
        engine.terminate()  # ends its containers
        engine.wait()
        for left in (directory / "exec" / "netns").glob("*"):
            subprocess.run(["umount", left], check=True)


@contextlib.asynccontextmanager
async def typed(clone: Path, home: Path, engine: str) -> AsyncIterator[Typed]:
    """Runs the section's commands in a clone, unchanged, until the end of the context."""
    python = Path(sys.base_prefix) / "bin"  # not the environment of this process
    environment = {name: os.environ[name] for name in THROUGH_A_CLOSED_NETWORK if name in os.environ}
    environment |= {"HOME": str(home), "LANG": "C.UTF-8", "DOCKER_HOST": engine}
    process = await asyncio.create_subprocess_exec(
        "sh", "-ec", commands((clone / "README.md").read_text(encoding="utf-8")),
        cwd=clone, env=environment | {"PATH": f"{python}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    terminal = Typed(process)
    reading = asyncio.create_task(terminal.read())
    try:
        yield terminal
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        await reading  # until the last process that may write there ends
        await process.wait()


async def set_up(page: Page, address: str, code: str, model: SetupModel, github: GitHub) -> None:
    """Fills in every form, and adds the label at the end."""
    await page.goto(address)
    await page.get_by_label("Enter the code that the server printed").fill(code)
    await page.get_by_role("button", name="Continue", exact=True).click()
    await page.get_by_label("Model name, as provider/model").fill("openai/recorded")
    await page.get_by_label("Key").fill(KEY)
    await page.get_by_label("Base URL of your own OpenAI-compatible").fill(model.base_url)
    await page.get_by_role("button", name="Test and save").click()
    await page.get_by_role("button", name="Continue without a price").click()
    await page.get_by_label("GitHub URL").fill(github.fake_github.server_url)
    await page.get_by_label("GitHub sends events to this server's URL").check()
    await page.get_by_role("button", name="Continue", exact=True).click()
    await page.get_by_role("button", name="Continue on").click()
    await page.get_by_role("button", name="Create GitHub App for maintainer").click()
    await page.get_by_role("link", name="Install the App").click()
    await page.get_by_role("button", name="Install").click()
    await page.get_by_text("Installed for acme.").wait_for()
    await github.fake_github.add_label(github.issue, "fix-me", by="maintainer")


async def once(directory: Path, engine: str) -> tuple[float, float]:
    """Returns the seconds from the clone to the server's address and code, and to the pull request."""
    clone, home = directory / "patchwright", directory / "home"
    home.mkdir(parents=True)
    async with FakeGitHub() as fake_github, SetupModel() as model, async_playwright() as play:
        github = GitHub.with_an_issue(fake_github)
        chromium = await play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        began = time.perf_counter()
        cloning = ["git", "clone", "--quiet", "--no-local", str(ROOT), str(clone)]
        await asyncio.to_thread(subprocess.run, cloning, check=True)
        async with typed(clone, home, engine) as terminal:
            address = await terminal.wait_for(r"open (\S+/setup)$")
            code = await terminal.wait_for(r"enter this code: (\S+)")
            installed = time.perf_counter() - began
            page = await chromium.new_page()
            page.set_default_timeout(LIMIT * 1000)
            await set_up(page, address, code, model, github)
            await terminal.until(lambda: bool(github.repository.pulls), "a pull request")
            answered = time.perf_counter() - began
        await chromium.close()
        (pull,) = github.repository.pulls
        if pull.draft:
            raise RuntimeError(f"The pull request is a draft:\n{pull.body}")
    return installed, answered


def measure() -> list[Result]:
    """Returns seconds."""
    with tempfile.TemporaryDirectory(prefix="patchwright-") as name:
        directory = Path(name)
        with bare_engine(directory) as engine:
            installed, pull_request_seconds = asyncio.run(once(directory / "first", engine))
            _, there = asyncio.run(once(directory / "second", engine))
    return [
        Result(name="server_section", value=round(pull_request_seconds, 1), unit="s", floor=None, target=300),
        Result(name="server_section_again", value=round(there, 1), unit="s", floor=None, target=300),
        Result(name="server_section_installed", value=round(installed, 1), unit="s", floor=None, target=None),
    ]


if __name__ == "__main__":
    report(measure())
