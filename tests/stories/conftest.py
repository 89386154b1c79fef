"""A whole run in one room: the stand-in forge, a scripted model over HTTP, and the product as it is composed."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot import compose
from bot.github.rest import Pace
from bot.progress import EVERY, commenting
from demo.model import Endpoint, Hook, Turn
from demo.world import App, Delivery, Issue, Pull, Repository, World
from demo.world.state import APP_PERMISSIONS
from resolver.actions import Finish
from resolver.domain import Job, JobId, Outcome, Repo, User
from resolver.events import Trajectory
from resolver.forge import Masked
from resolver.log import FileLogs
from resolver.resolve import resolve
from runtime.actions import ReplaceText, RunShell
from tests.plain_python import PROGRAMS
from tests.runtime.kept_layers import remove_layers_of
from tests.stories.parcels import Depot

CODE = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a * 2\n"
TESTS = "from calc import double\n\n\ndef test_double():\n    assert double(4) == 8\n"
FIX = ReplaceText(path="calc.py", old="a - b", new="a + b")
NEW_TEST = ReplaceText(
    path="tests/test_calc.py",
    old="from calc import double\n",
    new="from calc import add, double\n\n\ndef test_add():\n    assert add(2, 3) == 5\n",
)
DONE = Finish(cause="add() subtracted.", change="It adds now.", checked="python3 -m pytest: all pass.")
RUN_TESTS = RunShell(command="python3 -m pytest -q 2>&1 | tail -n 3")
MENDED = (
    Turn("Mend it.", FIX),
    Turn("Test it.", NEW_TEST),
    Turn("Run them.", RUN_TESTS),
    Turn("Done.", DONE),
)
"""A model that does it right."""

KEY = "sk-story-model-key"


@dataclass
class Scene:
    """One repository with one issue, and a model that follows a script."""

    world: World
    repo: Repository
    issue: Issue
    data: Path
    stack: AsyncExitStack
    environment: dict[str, str]
    endpoint: Endpoint = field(init=False)

    async def will(
        self, *turns: Turn, delay: float = 0.0, on_request: Hook | None = None, key: str | None = KEY
    ) -> None:
        """What the model says, reply by reply. `key` None: its endpoint takes any."""
        endpoint = Endpoint(turns, key=key, delay=delay, on_request=on_request)
        self.endpoint = await self.stack.enter_async_context(endpoint)
        self.environment["PATCHWRIGHT_MODEL_BASE_URL"] = endpoint.base_url

    def job(self, requester: str = "maintainer") -> Job:
        """The same job whenever it is asked for, and no other scene's: its name is that of its containers."""
        person = self.world.user(requester)
        return Job(
            id=JobId(f"acme-calc-1-{self.data.name}"),
            repo=Repo(owner="acme", name="calc"),
            number=self.issue.number,
            requester=User(id=person.id, login=person.login),
        )

    async def resolve(self, job: Job | None = None, every: float = EVERY, **beyond: Any) -> Outcome:
        """The job done in this process, composed as the server composes it; told `every` so many seconds.

        `beyond`: settings that no operator may have, such as a run of two seconds.
        """
        settings = compose.read_settings({}, self.environment, None, None).model_copy(update=beyond)
        async with (
            compose.kit(settings, trusted=False, say=print) as kit,
            compose.forge(settings, Pace(between_writes=0, first_pause=0.01)) as forge,
        ):
            masked = Masked(forge, kit.secrets.mask)
            return await resolve(job or self.job(), kit, masked, commenting(masked, settings, every))

    async def cli(
        self, *arguments: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> asyncio.subprocess.Process:
        """`patchwright ARGUMENTS` as a process of its own, its output in pipes."""
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bot.cli", *arguments,
            env=self.environment | dict(environment or {}), cwd=cwd or self.data,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    async def command(self, *arguments: str, **more: Any) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of `patchwright ARGUMENTS`."""
        process = await self.cli(*arguments, **more)
        async with asyncio.timeout(120):
            out, error = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), error.decode()

    def event(self, delivery: Delivery) -> dict[str, str]:
        """What the step of a workflow is given that this delivery has started."""
        payload = self.data / "event.json"
        payload.write_bytes(delivery.body)
        return {
            "GITHUB_EVENT_NAME": delivery.event,
            "GITHUB_EVENT_PATH": str(payload),
            "GITHUB_OUTPUT": str(self.data / "output"),
            "GITHUB_STEP_SUMMARY": str(self.data / "summary.md"),
        }

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Served"]:
        """`patchwright serve` as a process, told of what happens in the world."""
        process = await self.cli("serve", "--port", "0")
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(60):
                line = (await process.stdout.readline()).decode()
            assert line.startswith("patchwright listens on "), (await process.stderr.read()).decode()
            yield Served(process, line.split()[-1])
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(sorted(path.name for path in (self.data / "runs").glob("*")))

    def trajectory(self, run: str | None = None) -> Trajectory:
        return FileLogs(self.data / "runs").read(JobId(run or self.runs[0]))

    async def settled(self, runs: int = 1) -> None:
        """Wait until so many runs have become something."""
        async with asyncio.timeout(90):
            while len([run for run in self.runs if self._is_settled(run)]) < runs:
                await asyncio.sleep(0.1)

    def _is_settled(self, run: str) -> bool:
        path = self.data / "runs" / run / "events.jsonl"
        return path.exists() and '{"kind":"settled"' in path.read_text(errors="replace")

    @property
    def comments(self) -> list[str]:
        """What a person sees: without the hidden tag in the first line."""
        return [comment.body.partition("\n")[2] for comment in self.repo.comments(self.issue.number)]

    @property
    def pull(self) -> Pull:
        (pull,) = self.repo.pulls
        return pull


@dataclass
class Served:
    process: asyncio.subprocess.Process
    webhook: str

    async def health(self) -> int:
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(self.webhook.replace("/webhook", "/readyz"))).status_code


@pytest.fixture
def for_images() -> dict[str, str]:
    """What an image build needs on a closed network."""
    return dict(compose.only(os.environ, compose.FOR_IMAGES))


@pytest.fixture
async def sources() -> AsyncIterator[list[str]]:
    """The repositories whose layers are removed in the end."""
    sources: list[str] = []
    yield sources
    for source in sources:
        await remove_layers_of(source)


def environment_of(world: World, app: App, data: Path) -> dict[str, str]:
    """What a server is told that acts as this App, without Docker."""
    return {
        "PATH": f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(data),
        "PATCHWRIGHT_DATA": str(data),
        "PATCHWRIGHT_SANDBOX": "local",
        "PATCHWRIGHT_PLUGINS": "none",
        "PATCHWRIGHT_REFUSE_RISK": "never",  # the scripts leave traces outside of the work tree
        "PATCHWRIGHT_BETWEEN_WRITES": "0",  # the stand-in has no rate limits
        "PATCHWRIGHT_MODEL": "openai/scripted",
        "PATCHWRIGHT_MODEL_API_KEY": KEY,
        "PATCHWRIGHT_APP_ID": str(app.id),
        "PATCHWRIGHT_PRIVATE_KEY": app.private_key_pem,
        "PATCHWRIGHT_WEBHOOK_SECRET": "story-webhook-secret",
        "GITHUB_API_URL": world.api_url,
        "GITHUB_GRAPHQL_URL": world.graphql_url,
        "GITHUB_SERVER_URL": world.server_url,
    }


@pytest.fixture
async def a_scene(short_tmp: Path, for_images: dict[str, str]) -> AsyncIterator[Callable[..., Scene]]:
    """Makes the scene: `a_scene(files=..., title=..., body=...)`."""
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(World())

        def make(
            files: Mapping[str, str | bytes] | None = None,
            title: str = "add(2, 3) gives -1",
            body: str = "It should give 5.",
        ) -> Scene:
            files = {"calc.py": CODE, "tests/test_calc.py": TESTS} if files is None else files
            permissions = {"maintainer": "write", "triager": "triage"}
            repo = world.repository("acme/calc", files or None, permissions=permissions)  # type: ignore[arg-type]
            app = world.app()
            world.install(app, repo)
            issue = world.issue(repo, title=title, body=body, by="reporter")
            environment = for_images | environment_of(world, app, short_tmp)
            return Scene(world, repo, issue, short_tmp, stack, environment)

        yield make


@pytest.fixture
async def scene(a_scene: Callable[..., Scene]) -> Scene:
    """acme/calc: add() subtracts, and one test passes."""
    return a_scene()


@pytest.fixture
async def depot(tmp_path: Path) -> AsyncIterator[Depot]:
    """acme/calc with one issue, where a run's work is to be delivered; no agent works."""
    async with World() as world:
        repo = world.repository(
            "acme/calc",
            {"calc.py": "def add(a, b):\n    return a - b\n"},
            permissions={"maintainer": "write"},
        )
        app = world.app(permissions={**APP_PERMISSIONS, "checks": "write"})
        world.install(app, repo)
        issue = world.issue(repo, title="add(2, 3) gives -1", body="It should give 5.", by="reporter")
        yield Depot(world, repo, app, issue, tmp_path)
