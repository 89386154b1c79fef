"""A server that was just installed and nobody has set up, before the stand-in for GitHub."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from demo.dialects import Dialect
from demo.model import Endpoint, Fault
from demo.world import Issue, Repository, World
from tests.bot.terminal.test_probing import FIT, UNFIT
from tests.plain_python import PROGRAMS
from tests.stories.conftest import CODE, KEY, MENDED, TESTS

LONGEST = 120.0  # seconds that anything is waited for


class Mind(Endpoint):
    """A model that can be tried, and then mends."""

    def __init__(self) -> None:
        super().__init__(MENDED, key=KEY)
        self.fit = True

    async def _complete(self, request: dict[str, Any], dialect: Dialect) -> Fault:
        tried = "report_number" in str(dialect.read(request))
        self._turns = ((FIT if self.fit else UNFIT),) if tried else MENDED
        return await super()._complete(request, dialect)


@dataclass
class Fresh:
    """The machine: GitHub, a model, and what the server is told."""

    world: World
    repo: Repository
    issue: Issue
    mind: Mind
    data: Path
    environment: dict[str, str]
    lines: list[str] = field(default_factory=list)
    """What the server has printed."""
    url: str = ""
    code: str = ""
    process: asyncio.subprocess.Process | None = None

    @asynccontextmanager
    async def serving(self, *arguments: str, **environment: str) -> AsyncIterator[None]:
        """`patchwright serve` as a process, until it has printed a code."""
        self.lines.clear()
        process = self.process = await self._start("serve", "--port", "0", *arguments, **environment)
        reading = asyncio.create_task(self._read(process))
        try:
            await until(lambda: self.printed(r"enter this code: (\S+)") or process.returncode is not None)
            self.code = self.printed(r"enter this code: (\S+)")
            self.url = self.printed(r"Open (\S+)/setup$")
            assert self.code, self.log
            yield
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            await reading

    @asynccontextmanager
    async def serving_again(self) -> AsyncIterator[list[str]]:
        """The same server, started anew, once it has printed something: its lines."""
        process = await self._start("serve", "--port", "0")
        self.lines.clear()
        reading = asyncio.create_task(self._read(process))
        try:
            await until(lambda: self.lines or process.returncode is not None)
            yield self.lines
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            await reading

    async def command(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Exit code of a command that ends by itself, and what it said."""
        process = await self._start(*arguments, **environment)
        said, _ = await asyncio.wait_for(process.communicate(), LONGEST)
        return process.returncode or 0, self.log + said.decode()

    async def _start(self, *arguments: str, **environment: str) -> asyncio.subprocess.Process:
        with (self.data / "server.log").open("wb") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bot.cli", *arguments,
                env=self.environment | environment, cwd=self.data,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.lines.append(line.decode())

    def printed(self, pattern: str) -> str:
        """What matches in what was printed; "" for nothing."""
        found = re.search(pattern, "".join(self.lines), re.M)
        return found[1] if found else ""

    @property
    def log(self) -> str:
        return (self.data / "server.log").read_text(errors="replace")

    @asynccontextmanager
    async def visitor(self) -> AsyncIterator[httpx.AsyncClient]:
        """A browser without a screen, in which the code was entered."""
        async with self.stranger() as http:
            answer = await http.post("/setup/code", data={"code": self.code})
            assert answer.status_code == 303, answer.text
            yield http

    def stranger(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=30)

    def know_a_model(self) -> None:
        """The operator has set it in the environment."""
        self.environment |= {
            "PATCHWRIGHT_MODEL": "openai/scripted",
            "PATCHWRIGHT_MODEL_BASE_URL": self.mind.base_url,
            "PATCHWRIGHT_MODEL_API_KEY": KEY,
        }


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(LONGEST):
        while not holds():
            await asyncio.sleep(0.05)


@pytest.fixture
async def fresh(short_tmp: Path) -> AsyncIterator[Fresh]:
    async with World() as world, Mind() as mind:
        files: dict[str, str | bytes] = {"calc.py": CODE, "tests/test_calc.py": TESTS}
        repo = world.repository("acme/calc", files, permissions={"maintainer": "write"})
        issue = world.issue(repo, title="add(2, 3) gives -1", body="It should give 5.", by="reporter")
        world.sit_down("maintainer")
        environment = {
            "PATH": f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(short_tmp),
            "PATCHWRIGHT_DATA": str(short_tmp / "data"),
            "PATCHWRIGHT_SANDBOX": "local",
            "PATCHWRIGHT_PLUGINS": "none",
            "PATCHWRIGHT_REFUSE_RISK": "never",  # the scripts leave traces outside of the work tree
            "PATCHWRIGHT_BETWEEN_WRITES": "0",  # the stand-in has no rate limits
            "PYTHONPATH": str(Path.cwd()),
            "GITHUB_API_URL": world.api_url,
            "GITHUB_GRAPHQL_URL": world.graphql_url,
            "GITHUB_SERVER_URL": world.server_url,
        }
        yield Fresh(world, repo, issue, mind, short_tmp, environment)
