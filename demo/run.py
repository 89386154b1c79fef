"""The first command of the README: a labelled issue becomes a pull request.

The forge is a stand-in and the model a recording; webhook, server, queue, worker, sandbox, git and tests are real.
"""

import asyncio
import contextlib
import json
import secrets
import shlex
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal, TextIO

import httpx

from bot.terminal.lines import folded, outcome_json, plain, print_json, tests_table
from bot.terminal.live import telling
from demo.model import Endpoint, Turn
from demo.world import Issue, Repository, World
from resolver.domain import Delivered, RunId
from resolver.errors import LogError, ResolverError
from resolver.events import Trajectory
from resolver.log import FileLogs, Listener

PATIENCE = 300.0  # seconds from the label to the end; the first time, an image is built meanwhile
# What the server may see of our environment: where programs and the engine are, and how a closed network is reached.
PASSED_ON = (
    "PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "DOCKER_HOST", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY",
    "PATCHWRIGHT_CA_BUNDLE", "PATCHWRIGHT_PACKAGE_INDEX", "PATCHWRIGHT_IMAGE", "SSL_CERT_FILE", "PIP_INDEX_URL",
)  # fmt: skip


class DemoFailed(ResolverError):
    """The demo did not come to its end; the message says where it stopped and where to look."""


@dataclass(frozen=True)
class Stage:
    """The world that the demo plays in."""

    world: World
    repository: Repository
    issue: Issue
    environment: Mapping[str, str]
    data: Path


async def demo(
    sandbox: Literal["docker", "local"],
    why: str | None,
    data: Path,
    environ: Mapping[str, str],
    *,
    as_json: bool,
) -> int:
    """Play the demo; the exit code.

    `why`: the notice that says why the sandbox is not Docker. `data`: where the run's log stays.
    """
    stream = sys.stderr if as_json else sys.stdout
    say = _say(stream)
    began = time.monotonic()
    async with stage(data, environ) as scene:
        say(
            f"A stand-in for GitHub is at {scene.world.server_url}, with the repository {scene.repository.full_name}."
        )
        if why:
            say(
                f"NOTICE: {why} The agent works in the local sandbox instead: a directory, and no wall around it."
            )
        async with server(scene, sandbox) as url:
            say(
                f"patchwright serve listens at {url}; the model is a recording behind an OpenAI-compatible endpoint."
            )
            scene.world.hook(f"{url}/webhook", scene.environment["PATCHWRIGHT_WEBHOOK_SECRET"])
            say(f'A maintainer labels issue #{scene.issue.number}, "{scene.issue.title}", with fix-me.\n')
            await scene.world.label(scene.issue, "fix-me", by="maintainer")
            async with telling(stream, environ) as tell:
                run, trajectory = await watch(scene, tell)
        settle(scene, run, trajectory, say, as_json=as_json)
    if not as_json:
        say(
            f"Done in {time.monotonic() - began:.0f} s. Every step is in {data / 'runs' / run / 'events.jsonl'}\n"
            f"See it in your browser: PATCHWRIGHT_DATA={shlex.quote(str(data))} {_program()} view {run}"
        )
    return 0


def _program() -> str:
    """What to type for our commands, from any directory: a checkout's own is not on the PATH."""
    own = Path(sys.executable).with_name("patchwright")
    return "patchwright" if shutil.which("patchwright") or not own.is_file() else shlex.quote(str(own))


def settle(
    scene: Stage, run: RunId, trajectory: Trajectory, say: Callable[[str], None], *, as_json: bool
) -> None:
    """Show what the run came to. Raises DemoFailed when there is no pull request."""
    settled = trajectory.settled
    assert settled is not None, "watch() returns a settled run"
    log = scene.data / "runs" / run
    if not isinstance(settled.outcome, Delivered):
        raise DemoFailed(f"there is no pull request; the log is in {log}")
    number, verdict = settled.outcome.number, settled.outcome.verdict
    pull = next(pull for pull in scene.repository.pulls if pull.number == number)
    if as_json:
        more = {"title": pull.title, "body": pull.body, "log": str(log)}
        print_json(outcome_json(run, settled.outcome, verdict, trajectory.spent(), **more))
        return
    rule = "─" * 78
    say(f"\n{rule}\nPull request #{number} ({'draft' if pull.draft else 'ready'}): {pull.title}\n{rule}")
    say(folded(plain(pull.body or "")))
    say(f"{rule}\nThe diff\n{rule}\n{plain(scene.repository.diff(pull))}")
    say(f"{rule}\nThe repository's tests\n{rule}\n{tests_table(verdict)}\n{rule}")


@contextlib.asynccontextmanager
async def stage(data: Path, environ: Mapping[str, str]) -> AsyncIterator[Stage]:
    """The stand-in with the sample repository and its issue, and the recorded model."""
    sample = files("demo") / "sample"
    recording = json.loads((sample / "recording.json").read_text(encoding="utf-8"))
    title, _, body = (sample / "issue.md").read_text(encoding="utf-8").partition("\n")
    key = secrets.token_urlsafe(24)
    async with (
        World() as world,
        Endpoint([Turn.model_validate(turn) for turn in recording], key=key) as endpoint,
    ):
        with as_file(sample / "repository") as path:
            repository = world.repository("acme/durations", files=path, permissions={"maintainer": "write"})
        app = world.app()
        world.install(app, repository)
        issue = world.issue(repository, title=title.lstrip("# "), body=body.strip(), by="reporter")
        environment = {name: environ[name] for name in PASSED_ON if name in environ} | {
            "PATCHWRIGHT_DATA": str(data),
            "PATCHWRIGHT_PLUGINS": "none",  # the recording needs none, and they take a minute to be made
            "PATCHWRIGHT_MODEL": "openai/recorded",
            "PATCHWRIGHT_MODEL_BASE_URL": endpoint.base_url,
            "PATCHWRIGHT_MODEL_API_KEY": key,
            "PATCHWRIGHT_APP_ID": str(app.id),
            "PATCHWRIGHT_PRIVATE_KEY": app.private_key_pem,
            "PATCHWRIGHT_WEBHOOK_SECRET": secrets.token_urlsafe(24),
            "GITHUB_API_URL": world.api_url,
            "GITHUB_GRAPHQL_URL": world.graphql_url,
            "GITHUB_SERVER_URL": world.server_url,
        }
        yield Stage(world, repository, issue, environment, data)


@contextlib.asynccontextmanager
async def server(scene: Stage, sandbox: str) -> AsyncIterator[str]:
    """`patchwright serve` as a process of its own, in an empty directory of the demo's; its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    scene.data.mkdir(parents=True, exist_ok=True)
    output = scene.data / "serve.log"
    with output.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bot.cli", "serve", "--port", str(port), "--sandbox", sandbox,
            cwd=scene.data, env=dict(scene.environment), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,  # Ctrl-C is ours; we stop the server with SIGTERM
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        await _healthy(url, process, output)
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(20):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _healthy(url: str, process: asyncio.subprocess.Process, output: Path) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if process.returncode is not None:
                raise DemoFailed(f"the server did not start: {_last_line(output)} (all of it: {output})")
            with contextlib.suppress(httpx.TransportError):
                if (await client.get(f"{url}/readyz")).status_code == httpx.codes.OK:
                    return
            await asyncio.sleep(0.1)
    raise DemoFailed(f"the server did not become healthy within 60 s; its output is in {output}")


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return plain(lines[-1]) if lines else "it said nothing"


async def watch(scene: Stage, tell: Listener) -> tuple[RunId, Trajectory]:
    """Tell the run's entries as its log grows, until it is settled."""
    logs = FileLogs(scene.data / "runs")
    told = 0
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        run = next(
            (RunId(path.name) for path in sorted((scene.data / "runs").glob("*/")) if path.is_dir()), None
        )
        if run is None:
            continue
        with contextlib.suppress(LogError):  # its first line is being written
            trajectory = logs.read(run)
            for entry in trajectory.entries[told:]:
                tell(entry)
            told = len(trajectory)
            if trajectory.settled:
                return run, trajectory
    raise DemoFailed(
        f"the run was not over after {PATIENCE:.0f} s; the server's output is in {scene.data / 'serve.log'}"
    )


def _say(stream: TextIO) -> Callable[[str], None]:
    def say(line: str) -> None:
        print(line, file=stream, flush=True)

    return say


def fresh_directory(data: Path) -> Path:
    """A directory for one demo, below the user's data directory."""
    return data / "demo" / datetime.now().strftime("%Y%m%d-%H%M%S")
