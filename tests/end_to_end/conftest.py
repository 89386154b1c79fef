"""End-to-end fixtures: a fake GitHub, a scripted model over HTTP, and the product as it is composed in production."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from patchwright.bot.comment_tags import parse_tag
from patchwright.bot.composition import composition_root
from patchwright.bot.github.auth import RequestPolicy
from patchwright.bot.status_comment import EDIT_INTERVAL_SECONDS, comment_reporter
from patchwright.demo.github import Delivery, FakeGitHub, FakePullRequest, GitHubApp, Issue, Repository
from patchwright.demo.github.state import APP_PERMISSIONS
from patchwright.demo.recorded_model import RecordedModel, RecordedTurn, RequestHook
from patchwright.resolver.domain import Job, JobId, Outcome, Repo, User
from patchwright.resolver.events import Trajectory
from patchwright.resolver.forge import MaskingForge
from patchwright.resolver.pipeline.resolve import resolve_job
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import ReplaceText, RunShell
from tests.end_to_end.publish_scenario import PublishScenario
from tests.plain_python import get_fast_programs
from tests.preloaded_command import preloaded_command
from tests.runtime.repository_layers import remove_layers_of

CODE = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a * 2\n"
TESTS = "from calc import double\n\n\ndef test_double():\n    assert double(4) == 8\n"
FIX = ReplaceText(path="calc.py", old="a - b", new="a + b")
NEW_TEST = ReplaceText(
    path="tests/test_calc.py",
    old="from calc import double\n",
    new="from calc import add, double\n\n\ndef test_add():\n    assert add(2, 3) == 5\n",
)
DONE = Finish(cause="add() subtracted.", change="It adds now.", testing="python3 -m pytest: all pass.")
RUN_TESTS = RunShell(command="python3 -m pytest -q 2>&1 | tail -n 3")
FIX_TURNS = (
    RecordedTurn("Fix it.", FIX),
    RecordedTurn("Test it.", NEW_TEST),
    RecordedTurn("Run them.", RUN_TESTS),
    RecordedTurn("Done.", DONE),
)
"""The turns of a model that fixes the issue and adds a test."""

KEY = "sk-story-model-key"


@dataclass
class Scenario:
    """A repository with one issue, and a scripted model."""

    fake_github: FakeGitHub
    repo: Repository
    issue: Issue
    data: Path
    stack: AsyncExitStack
    environment: dict[str, str]
    endpoint: RecordedModel = field(init=False)

    async def script_model(
        self,
        *turns: RecordedTurn,
        delay: float = 0.0,
        on_request: RequestHook | None = None,
        key: str | None = KEY,
    ) -> None:
        """Starts a model with these replies, in order. `key` None: its endpoint accepts any key."""
        endpoint = RecordedModel(turns, key=key, delay=delay, on_request=on_request)
        self.endpoint = await self.stack.enter_async_context(endpoint)
        self.environment["PATCHWRIGHT_MODEL_BASE_URL"] = endpoint.base_url

    def job(self, requester: str = "maintainer") -> Job:
        """Returns the same job on each call. Its id is unique to this scenario, since it names containers."""
        person = self.fake_github.user(requester)
        return Job(
            id=JobId(f"acme-calc-1-{self.data.name}"),
            repo=Repo(owner="acme", name="calc"),
            number=self.issue.number,
            requester=User(id=person.id, login=person.login),
        )

    async def resolve(
        self, job: Job | None = None, interval: float = EDIT_INTERVAL_SECONDS, **overrides: Any
    ) -> Outcome:
        """Runs the job in this process, composed as in the server. Edits the comment every `interval` seconds.

        `overrides` are settings that bypass validation, such as a timeout of two seconds.
        """
        settings = composition_root.read_settings({}, self.environment, None, None).model_copy(
            update=overrides
        )
        async with (
            composition_root.build_run_dependencies(settings, notify=print) as dependencies,
            composition_root.open_forge(
                settings, RequestPolicy(write_interval=0, initial_backoff=0.01)
            ) as forge,
        ):
            masked = MaskingForge(forge, dependencies.secrets.mask)
            return await resolve_job(
                job or self.job(), dependencies, masked, comment_reporter(masked, settings, interval)
            )

    async def cli(
        self,
        *arguments: str,
        program: tuple[str, ...] | None = None,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> asyncio.subprocess.Process:
        """Starts `patchwright ARGUMENTS` as a process with piped output."""
        return await asyncio.create_subprocess_exec(
            *(program or preloaded_command()), *arguments,
            env=self.environment | dict(environment or {}), cwd=cwd or self.data,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    async def command(self, *arguments: str, **more: Any) -> tuple[int, str, str]:
        """Returns exit code, standard output, and standard error of `patchwright ARGUMENTS`."""
        process = await self.cli(*arguments, **more)
        async with asyncio.timeout(120):
            out, error = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), error.decode()

    def event(self, delivery: Delivery) -> dict[str, str]:
        """Returns the environment of a workflow step that this delivery triggered."""
        payload = self.data / "event.json"
        payload.write_bytes(delivery.body)
        return {
            "GITHUB_EVENT_NAME": delivery.event,
            "GITHUB_EVENT_PATH": str(payload),
            "GITHUB_OUTPUT": str(self.data / "output"),
            "GITHUB_STEP_SUMMARY": str(self.data / "summary.md"),
        }

    @asynccontextmanager
    async def serve(self, program: tuple[str, ...] | None = None) -> AsyncIterator["RunningServer"]:
        """Runs `patchwright serve` as a process that receives the fake server's webhooks."""
        process = await self.cli("serve", "--port", "0", program=program)
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(60):
                line = (await process.stdout.readline()).decode()
            assert line.startswith("patchwright is listening on "), (await process.stderr.read()).decode()
            yield RunningServer(process, line.split()[-1])
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(sorted(path.name for path in (self.data / "runs").glob("*")))

    def trajectory(self, run: str | None = None) -> Trajectory:
        return FileLogStore(self.data / "runs").read(JobId(run or self.runs[0]))

    async def wait_for_completion(self, runs: int = 1) -> None:
        """Waits until this number of runs is completed."""
        async with asyncio.timeout(90):
            while len([run for run in self.runs if self._is_completed(run)]) < runs:
                await asyncio.sleep(0.1)

    def _is_completed(self, run: str) -> bool:
        path = self.data / "runs" / run / "events.jsonl"
        return path.exists() and '{"kind":"job_completed"' in path.read_text(errors="replace")

    @property
    def comments(self) -> list[str]:
        """The comments on the issue without the hidden tag in the first line."""
        return [comment.body.partition("\n")[2] for comment in self.repo.comments(self.issue.number)]

    @property
    def comments_in_progress(self) -> list[str]:
        """The comments whose hidden tag says that the run is queued or running."""
        ours = [parse_tag(comment.body) for comment in self.repo.comments(self.issue.number)]
        return [one.text.removeprefix("\n") for one in ours if one.is_in_progress]

    @property
    def pull(self) -> FakePullRequest:
        (pull,) = self.repo.pulls
        return pull


@dataclass
class RunningServer:
    process: asyncio.subprocess.Process
    webhook: str

    async def health(self) -> int:
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(self.webhook.replace("/webhook", "/readyz"))).status_code


@pytest.fixture(autouse=True)
def _fast_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sandboxes without Docker, in the test's own process, have fast programs, too."""
    monkeypatch.setenv("PATH", f"{get_fast_programs()}:{os.environ['PATH']}")


@pytest.fixture
def image_build_environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """Environment variables that an image build needs on a closed network. Empty if the test builds none."""
    if not any(map(request.node.get_closest_marker, ("docker", "internet"))):
        return {}
    return dict(composition_root.select_variables(os.environ, composition_root.IMAGE_VARIABLES))


@pytest.fixture
async def sources() -> AsyncIterator[list[str]]:
    """Repositories whose image layers are removed after the test."""
    sources: list[str] = []
    yield sources
    for source in sources:
        await remove_layers_of(source)


def server_environment(fake_github: FakeGitHub, app: GitHubApp, data: Path) -> dict[str, str]:
    """Returns the environment of a server that acts as this App, without Docker."""
    return {
        "PATH": f"{get_fast_programs()}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(data),
        "PATCHWRIGHT_DATA": str(data),
        "PATCHWRIGHT_SANDBOX": "local",
        "PATCHWRIGHT_SANDBOX_FEATURES": "none",
        **{name: os.environ[name] for name in ("SSL_CERT_FILE",) if name in os.environ},
        "PATCHWRIGHT_RISK_THRESHOLD": "never",  # the scripted models write outside of the work tree
        "PATCHWRIGHT_MODEL": "openai/scripted",
        "PATCHWRIGHT_MODEL_API_KEY": KEY,
        "PATCHWRIGHT_APP_ID": str(app.id),
        "PATCHWRIGHT_PRIVATE_KEY": app.private_key_pem,
        "PATCHWRIGHT_WEBHOOK_SECRET": "story-webhook-secret",
        "GITHUB_SERVER_URL": fake_github.server_url,
    }


@pytest.fixture
async def make_scenario(
    short_tmp: Path, image_build_environment: dict[str, str]
) -> AsyncIterator[Callable[..., Scenario]]:
    """Returns a factory: `make_scenario(files=..., title=..., body=...)`."""
    async with AsyncExitStack() as stack:
        fake_github = await stack.enter_async_context(FakeGitHub())

        def make(
            files: Mapping[str, str | bytes] | None = None,
            title: str = "add(2, 3) gives -1",
            body: str = "It should give 5.",
        ) -> Scenario:
            files = {"calc.py": CODE, "tests/test_calc.py": TESTS} if files is None else files
            permissions = {"maintainer": "write", "triager": "triage"}
            repo = fake_github.create_repository("acme/calc", files or None, permissions=permissions)  # type: ignore[arg-type]
            app = fake_github.create_app()
            fake_github.install_app(app, repo)
            issue = fake_github.create_issue(repo, title=title, body=body, by="reporter")
            environment = image_build_environment | server_environment(fake_github, app, short_tmp)
            return Scenario(fake_github, repo, issue, short_tmp, stack, environment)

        yield make


@pytest.fixture
async def scenario(make_scenario: Callable[..., Scenario]) -> Scenario:
    """acme/calc: add() subtracts, and one test passes."""
    return make_scenario()


@pytest.fixture
async def publish_scenario(tmp_path: Path) -> AsyncIterator[PublishScenario]:
    """acme/calc with one issue, for publishing a prepared result without an agent."""
    async with FakeGitHub() as fake_github:
        repo = fake_github.create_repository(
            "acme/calc",
            {"calc.py": "def add(a, b):\n    return a - b\n"},
            permissions={"maintainer": "write"},
        )
        app = fake_github.create_app(permissions={**APP_PERMISSIONS, "checks": "write"})
        fake_github.install_app(app, repo)
        issue = fake_github.create_issue(
            repo, title="add(2, 3) gives -1", body="It should give 5.", by="reporter"
        )
        yield PublishScenario(fake_github, repo, app, issue, tmp_path)
