"""The README's server section word for word: from a clone to the pull request that answers a labelled issue.

What a bare machine lacks is not there: HOME is empty (no cache of pip's, nothing of ours), nothing of our environment
is passed on but what leads through a closed network, and the Docker engine is one of its own, started here, that holds
nothing but debian:bookworm-slim: bundle, plugins and layer are made while the forms are filled. What was there before:
Python and git, as the README says, the engine's programs, that base image (which an engine that reaches a registry
pulls), and Chromium.

GitHub is the stand-in, on this machine, so it reaches the server's webhook; its address is typed into the form. The
model is the demo's recording, and answers at once. The forms are filled by a program: what a person takes to read and
to type is not in these seconds. `server_section_again` is the same with another clone and HOME, on the engine that has
the images by then; `server_section_installed` is the first time's way to the server's address and code.

It needs root, port 8000 and five minutes: `script/bench long`.
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
from demo.dialects import Dialect
from demo.model import Endpoint, Fault, Turn, WrittenCall
from demo.world import Issue, Repository, World
from resolver.llm.probe import NUMBER
from runtime.docker.layers import SOURCE

ROOT = Path(__file__).parents[1]
KEY = "sk-server-section"
LIMIT = 900.0  # seconds for each thing that is waited for
THROUGH_A_CLOSED_NETWORK = (
    "PATCHWRIGHT_CA_BUNDLE", "PATCHWRIGHT_PACKAGE_INDEX", "SSL_CERT_FILE", "PIP_CERT", "PIP_INDEX_URL",
)  # fmt: skip
BRIDGE, SUBNET, GATEWAY = "patchwright0", "172.31.250.0/24", "172.31.250.1/24"
TRIED = Turn("", calls=(WrittenCall(name="report_number", arguments={"number": NUMBER}),))


def commands(readme: str) -> str:
    """What the section says to type."""
    section = readme.partition("\n### On a server\n")[2].partition("\n##")[0]
    typed = section.partition("```sh\n")[2].partition("```")[0]
    if not typed.strip():
        raise RuntimeError("The README has no commands under 'On a server'")
    return typed


class Mind(Endpoint):
    """The recorded model, which does what it is asked when it is tried as well."""

    def __init__(self) -> None:
        recording = json.loads((files("demo") / "sample" / "recording.json").read_text(encoding="utf-8"))
        self._recorded = tuple(Turn.model_validate(turn) for turn in recording)
        super().__init__(self._recorded, key=KEY)

    async def _complete(self, request: dict[str, Any], dialect: Dialect) -> Fault:
        tried = TRIED.calls[0].name in str(dialect.read(request))
        self._turns = (TRIED,) if tried else self._recorded
        return await super()._complete(request, dialect)


@dataclass(frozen=True)
class GitHub:
    """The stand-in, with the sample repository and its issue, and nobody's App."""

    world: World
    repository: Repository
    issue: Issue

    @classmethod
    def with_an_issue(cls, world: World) -> "GitHub":
        sample = files("demo") / "sample"
        with as_file(sample / "repository") as path:
            repository = world.repository("acme/durations", path, permissions={"maintainer": "admin"})
        title, _, body = (sample / "issue.md").read_text(encoding="utf-8").partition("\n")
        issue = world.issue(repository, title=title.lstrip("# "), body=body.strip(), by="reporter")
        world.sit_down("maintainer")
        return cls(world, repository, issue)


@dataclass
class Typed:
    """What was typed at the terminal, and what it has shown since."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)

    async def shown(self, pattern: str) -> str:
        """What it says. Raises RuntimeError when that does not come."""
        await self.until(lambda: self._found(pattern), pattern)
        return self._found(pattern)

    async def until(self, seen: Callable[[], object], what: str) -> None:
        """Raises RuntimeError, with what the terminal shows, when it does not come to pass."""
        with contextlib.suppress(TimeoutError):
            await until(lambda: bool(seen()) or self.process.returncode is not None, LIMIT)
        if not seen():
            raise RuntimeError(f"{what} did not come:\n" + "".join(self.lines[-30:]))

    def _found(self, pattern: str) -> str:
        found = re.search(pattern, "".join(self.lines), re.MULTILINE)
        return found[1] if found else ""

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode(errors="replace"))


@contextlib.contextmanager
def bridge() -> Iterator[str]:
    """A network of the second engine's own, with a way out.

    Not `--bridge none`: that removes the first engine's docker0. Nor the second engine's own rules: they would
    replace the first one's.
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
def bare_engine(place: Path) -> Iterator[str]:
    """The address of a Docker engine that has the base image alone, beside the machine's own."""
    with bridge() as network:
        yield from _engine(place, network)


def _engine(place: Path, network: str) -> Iterator[str]:
    address, log = f"unix://{place}/engine.sock", place / "engine.log"
    with log.open("wb") as output:
        engine = subprocess.Popen(
            ["dockerd", "--host", address, "--data-root", place / "data", "--exec-root", place / "exec",
             "--pidfile", place / "pid", "--bridge", network, "--iptables=false", "--ip6tables=false"],
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
        base = place / "base.tar"
        subprocess.run(["docker", "save", "--output", base, SOURCE], check=True)
        subprocess.run(["docker", "--host", address, "load", "--quiet", "--input", base], check=True)
        yield address
    finally:
        engine.terminate()  # it ends its containers
        engine.wait()
        for left in (place / "exec" / "netns").glob("*"):
            subprocess.run(["umount", left], check=True)


@contextlib.asynccontextmanager
async def typed(clone: Path, home: Path, engine: str) -> AsyncIterator[Typed]:
    """The section's commands in a clone, as they stand, until they are no longer needed."""
    python = Path(sys.base_prefix) / "bin"  # not the environment that this process is in
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
        await reading  # to the end of the last process that may write there
        await process.wait()


async def set_up(page: Page, address: str, code: str, mind: Mind, github: GitHub) -> None:
    """Every form, and the label at its end."""
    await page.goto(address)
    await page.get_by_label("The code that the server printed").fill(code)
    await page.get_by_role("button", name="Go on").click()
    await page.get_by_label("Name, as provider/model").fill("openai/recorded")
    await page.get_by_label("Key").fill(KEY)
    await page.get_by_label("Address, for an OpenAI-compatible").fill(mind.base_url)
    await page.get_by_role("button", name="Try and keep it").click()
    await page.get_by_role("button", name="Use it without a price").click()
    await page.get_by_label("Your GitHub").fill(github.world.server_url)
    await page.get_by_label("GitHub reaches that address").check()
    await page.get_by_role("button", name="Go on").click()
    await page.get_by_role("button", name="Make the App on").click()
    await page.get_by_role("button", name="Create GitHub App for maintainer").click()
    await page.get_by_role("link", name="Install the App").click()
    await page.get_by_role("button", name="Install").click()
    await page.get_by_text("It is installed for acme.").wait_for()
    await github.world.label(github.issue, "fix-me", by="maintainer")


async def once(place: Path, engine: str) -> tuple[float, float]:
    """Seconds from the clone to the server's address and code, and to the pull request."""
    clone, home = place / "patchwright", place / "home"
    home.mkdir(parents=True)
    async with World() as world, Mind() as mind, async_playwright() as play:
        github = GitHub.with_an_issue(world)
        chromium = await play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        began = time.perf_counter()
        cloning = ["git", "clone", "--quiet", "--no-local", str(ROOT), str(clone)]
        await asyncio.to_thread(subprocess.run, cloning, check=True)
        async with typed(clone, home, engine) as terminal:
            address = await terminal.shown(r"Open (\S+/setup)$")
            code = await terminal.shown(r"enter this code: (\S+)")
            installed = time.perf_counter() - began
            page = await chromium.new_page()
            page.set_default_timeout(LIMIT * 1000)
            await set_up(page, address, code, mind, github)
            await terminal.until(lambda: bool(github.repository.pulls), "a pull request")
            answered = time.perf_counter() - began
        await chromium.close()
        (pull,) = github.repository.pulls
        if pull.draft:
            raise RuntimeError(f"The pull request is a draft:\n{pull.body}")
    return installed, answered


def measure() -> list[Result]:
    """Seconds."""
    with tempfile.TemporaryDirectory(prefix="patchwright-") as directory:
        place = Path(directory)
        with bare_engine(place) as engine:
            installed, made = asyncio.run(once(place / "first", engine))
            _, there = asyncio.run(once(place / "second", engine))
    return [
        Result(name="server_section", value=round(made, 1), unit="s", floor=None, target=300),
        Result(name="server_section_again", value=round(there, 1), unit="s", floor=None, target=300),
        Result(name="server_section_installed", value=round(installed, 1), unit="s", floor=None, target=None),
    ]


if __name__ == "__main__":
    report(measure())
