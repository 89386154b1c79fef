"""A newly installed server without configuration, and a fake GitHub."""

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from patchwright.demo.api_formats import ApiFormat
from patchwright.demo.github import FakeGitHub, Issue, Repository
from patchwright.demo.recorded_model import ModelFault, RecordedModel
from tests.bot.commands.test_probe_command import FIT, UNSUITABLE
from tests.end_to_end.conftest import CODE, FIX_TURNS, KEY, TESTS
from tests.plain_python import get_fast_programs
from tests.preloaded_command import preloaded_command

TIMEOUT_SECONDS = 120.0  # for any wait


class ProbedModel(RecordedModel):
    """A scripted model that answers the probe, and then fixes the issue."""

    def __init__(self) -> None:
        super().__init__(FIX_TURNS, key=KEY, answers_probes=False)
        self.passes_probe = True

    async def _complete(self, request: dict[str, Any], api_format: ApiFormat) -> ModelFault:
        is_probe = "report_number" in str(api_format.parse_messages(request))
        self._turns = ((FIT if self.passes_probe else UNSUITABLE),) if is_probe else FIX_TURNS
        return await super()._complete(request, api_format)


@dataclass
class UnconfiguredServer:
    """A server process without configuration, with a fake GitHub and a scripted model."""

    fake_github: FakeGitHub
    repo: Repository
    issue: Issue
    fake_model: ProbedModel
    data: Path
    environment: dict[str, str]
    lines: list[str] = field(default_factory=list)
    """Lines that the server printed."""
    url: str = ""
    code: str = ""
    process: asyncio.subprocess.Process | None = None

    @asynccontextmanager
    async def started(
        self, *arguments: str, program: tuple[str, ...] | None = None, **environment: str
    ) -> AsyncIterator[None]:
        """Starts `patchwright serve` as a process, and waits until it prints a setup code."""
        self.lines.clear()
        process = self.process = await self._start(
            "serve", "--port", "0", *arguments, program=program, **environment
        )
        reading = asyncio.create_task(self._read(process))
        try:
            await wait_until(
                lambda: self.find_printed(r"enter this code: (\S+)") or process.returncode is not None
            )
            self.code = self.find_printed(r"enter this code: (\S+)")
            self.url = self.find_printed(r"open (\S+)/setup$")
            assert self.code, self.log
            yield
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            await reading

    @asynccontextmanager
    async def restarted(self) -> AsyncIterator[list[str]]:
        """Starts the server again, and yields its output once there is some."""
        process = await self._start("serve", "--port", "0")
        self.lines.clear()
        reading = asyncio.create_task(self._read(process))
        try:
            await wait_until(lambda: self.lines or process.returncode is not None)
            yield self.lines
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            await reading

    async def command(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Runs a command to its end; returns its exit code and its output."""
        process = await self._start(*arguments, **environment)
        output, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)
        return process.returncode or 0, self.log + output.decode()

    async def _start(
        self,
        *arguments: str,
        program: tuple[str, ...] | None = None,
        **environment: str,
    ) -> asyncio.subprocess.Process:
        with (self.data / "server.log").open("wb") as log:
            return await asyncio.create_subprocess_exec(
                *(program or preloaded_command()), *arguments,
                env=self.environment | environment, cwd=self.data,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.lines.append(line.decode())

    def find_printed(self, pattern: str) -> str:
        """Returns the first match in the printed lines; "" if there is none."""
        found = re.search(pattern, "".join(self.lines), re.M)
        return found[1] if found else ""

    @property
    def log(self) -> str:
        return (self.data / "server.log").read_text(errors="replace")

    @asynccontextmanager
    async def authorized_browser(self) -> AsyncIterator[httpx.AsyncClient]:
        """Opens an HTTP client that has entered the setup code."""
        async with self.browser() as http:
            answer = await http.post("/setup/code", data={"code": self.code})
            assert answer.status_code == 303, answer.text
            yield http

    def browser(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=120)

    def configure_model(self) -> None:
        """Sets the model in the server's environment."""
        self.environment |= {
            "PATCHWRIGHT_MODEL": "openai/scripted",
            "PATCHWRIGHT_MODEL_BASE_URL": self.fake_model.base_url,
            "PATCHWRIGHT_MODEL_API_KEY": KEY,
        }


async def wait_until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not holds():
            await asyncio.sleep(0.05)


@pytest.fixture
async def server(short_tmp: Path) -> AsyncIterator[UnconfiguredServer]:
    async with FakeGitHub() as fake_github, ProbedModel() as fake_model:
        files: dict[str, str | bytes] = {"calc.py": CODE, "tests/test_calc.py": TESTS}
        repo = fake_github.create_repository("acme/calc", files, permissions={"maintainer": "write"})
        issue = fake_github.create_issue(
            repo, title="add(2, 3) gives -1", body="It should give 5.", by="reporter"
        )
        fake_github.sign_in("maintainer")
        environment = {
            "PATH": f"{get_fast_programs()}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(short_tmp),
            "PATCHWRIGHT_DATA": str(short_tmp / "data"),
            "PATCHWRIGHT_SANDBOX": "local",
            "PATCHWRIGHT_SANDBOX_FEATURES": "none",
            "PATCHWRIGHT_RISK_THRESHOLD": "never",  # the scripts write outside of the work tree
            "PYTHONPATH": str(Path.cwd()),
            "GITHUB_SERVER_URL": fake_github.server_url,
        }
        yield UnconfiguredServer(fake_github, repo, issue, fake_model, short_tmp, environment)
