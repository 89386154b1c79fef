"""The demo from the README: turns a labeled issue into a pull request.

GitHub is a fake and the model is a recording. The webhook, server, queue, worker, sandbox, git and tests are
real.
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

from patchwright.bot.terminal.live_display import open_display
from patchwright.bot.terminal.output import (
    outcome_json,
    print_json,
    strip_control_chars,
    tests_table,
    wrap_text,
)
from patchwright.demo.github import FakeGitHub, Issue, Repository
from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.resolver.domain import Published, RunId
from patchwright.resolver.errors import LogError, ResolverError
from patchwright.resolver.events import Trajectory
from patchwright.resolver.rendering import filters
from patchwright.resolver.run_log import FileLogStore, Listener

MODEL = "openai/recorded"
# Dollars per million tokens: the prices of a model of the middle price level in docs/models.md.
MODEL_PRICE = {"input": "2", "cached": "0.20", "output": "10"}
RUN_TIMEOUT = 300.0  # seconds from the label to the end; the first demo also builds an image in this time
# Environment variables that the server gets: where to find programs and the Docker engine, and how to reach a
# closed network.
FORWARDED_VARIABLES = (
    "PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "DOCKER_HOST", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY",
    "PATCHWRIGHT_CA_BUNDLE", "PATCHWRIGHT_PACKAGE_INDEX", "PATCHWRIGHT_IMAGE", "SSL_CERT_FILE", "PIP_INDEX_URL",
)  # fmt: skip


class DemoFailed(ResolverError):
    """The demo failed. The message says which step failed, and which log to read."""


@dataclass(frozen=True)
class DemoSetup:
    """The services and objects of the demo."""

    github: FakeGitHub
    repository: Repository
    issue: Issue
    server_env: Mapping[str, str]
    data_dir: Path


async def run_demo(
    sandbox: Literal["docker", "local"],
    fallback_reason: str | None,
    data_dir: Path,
    environ: Mapping[str, str],
    *,
    as_json: bool,
) -> int:
    """Runs the demo and returns the exit code.

    `fallback_reason` is the reason why Docker is not used; None if Docker is used. The log of the run is written into
    `data_dir`.
    """
    stream = sys.stderr if as_json else sys.stdout
    say = _line_printer(stream)
    began = time.monotonic()
    async with set_up(data_dir, environ) as scene:
        say(
            f"a fake GitHub server (an API without web pages) is at {scene.github.server_url}, with the repository "
            f"{scene.repository.full_name}."
        )
        if fallback_reason:
            say(
                f"NOTICE: {fallback_reason} The agent uses the local sandbox instead: a directory without isolation."
            )
        async with run_server(scene, sandbox) as url:
            say(
                f"patchwright serve receives webhooks at {url}/webhook; the model is a recording behind an "
                "OpenAI-compatible endpoint."
            )
            scene.github.add_webhook(f"{url}/webhook", scene.server_env["PATCHWRIGHT_WEBHOOK_SECRET"])
            say(f'A maintainer labels issue #{scene.issue.number}, "{scene.issue.title}", with fix-me.\n')
            await scene.github.add_label(scene.issue, "fix-me", by="maintainer")
            async with open_display(stream, environ) as tell:
                run, trajectory = await follow_run(scene, tell)
        show_result(scene, run, trajectory, say, as_json=as_json)
    if not as_json:
        usage = trajectory.usage()
        say(
            f"Done in {time.monotonic() - began:.0f} s. With a mid-priced model, the run's {usage.tokens:,} tokens "
            f"would have cost {filters.format_usage(usage)}.\n"
            f"Every step is in {data_dir / 'runs' / run / 'events.jsonl'}\n"
            "See it in your browser (the fake GitHub has stopped, so links to it do not work):\n"
            f"PATCHWRIGHT_DATA={shlex.quote(str(data_dir))} {_command_name()} view {run}"
        )
    return 0


def _command_name() -> str:
    """Returns the `patchwright` command in a form that works in every directory.

    If the command is not on the PATH, as in a checkout, returns its full path.
    """
    own = Path(sys.executable).with_name("patchwright")
    return "patchwright" if shutil.which("patchwright") or not own.is_file() else shlex.quote(str(own))


def show_result(
    setup: DemoSetup,
    run_id: RunId,
    trajectory: Trajectory,
    print_line: Callable[[str], None],
    *,
    as_json: bool,
) -> None:
    """Prints the result of the run. Raises DemoFailed if there is no pull request."""
    settled = trajectory.job_completed
    assert settled is not None, "follow_run() returns a completed run"
    log = setup.data_dir / "runs" / run_id
    if not isinstance(settled.outcome, Published):
        raise DemoFailed(f"the run created no pull request; its log is in {log}")
    number, verdict = settled.outcome.number, settled.outcome.verdict
    pull = next(pull for pull in setup.repository.pulls if pull.number == number)
    if as_json:
        more = {"title": pull.title, "body": pull.body, "log": str(log)}
        print_json(outcome_json(run_id, settled.outcome, verdict, trajectory.usage(), **more))
        return
    rule = "─" * 78
    print_line(
        f"\n{rule}\nPull request #{number} ({'draft' if pull.draft else 'ready'}): {pull.title}\n{rule}"
    )
    print_line(wrap_text(strip_control_chars(pull.body or "")))
    print_line(f"{rule}\nThe diff\n{rule}\n{strip_control_chars(setup.repository.diff(pull))}")
    print_line(f"{rule}\nThe repository's tests\n{rule}\n{tests_table(verdict)}\n{rule}")


@contextlib.asynccontextmanager
async def set_up(data_dir: Path, environ: Mapping[str, str]) -> AsyncIterator[DemoSetup]:
    """Starts the recorded model and the fake server, which has the sample repository and its issue."""
    sample = files("patchwright.demo") / "sample"
    recording = json.loads((sample / "recording.json").read_text(encoding="utf-8"))
    title, _, body = (sample / "issue.md").read_text(encoding="utf-8").partition("\n")
    key = secrets.token_urlsafe(24)
    async with (
        FakeGitHub() as world,
        RecordedModel([RecordedTurn.model_validate(turn) for turn in recording], key=key) as endpoint,
    ):
        with as_file(sample / "repository") as path:
            repository = world.create_repository(
                "acme/durations", files=path, permissions={"maintainer": "write"}
            )
        app = world.create_app()
        world.install_app(app, repository)
        issue = world.create_issue(repository, title=title.lstrip("# "), body=body.strip(), by="reporter")
        environment = (
            {name: environ[name] for name in FORWARDED_VARIABLES if name in environ}
            | {
                "PATCHWRIGHT_DATA": str(data_dir),
                "PATCHWRIGHT_SANDBOX_FEATURES": "none",  # the recording uses none, and building them takes a minute
                "PATCHWRIGHT_MODEL": MODEL,
                "PATCHWRIGHT_MODEL_PRICES": json.dumps({MODEL: MODEL_PRICE}),
                "PATCHWRIGHT_MODEL_BASE_URL": endpoint.base_url,
                "PATCHWRIGHT_MODEL_API_KEY": key,
                "PATCHWRIGHT_APP_ID": str(app.id),
                "PATCHWRIGHT_PRIVATE_KEY": app.private_key_pem,
                "PATCHWRIGHT_WEBHOOK_SECRET": secrets.token_urlsafe(24),
                "GITHUB_SERVER_URL": world.server_url,
            }
        )
        yield DemoSetup(world, repository, issue, environment, data_dir)


@contextlib.asynccontextmanager
async def run_server(setup: DemoSetup, sandbox: str) -> AsyncIterator[str]:
    """Runs `patchwright serve` as a separate process in an empty directory, and yields the server's URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    setup.data_dir.mkdir(parents=True, exist_ok=True)
    output = setup.data_dir / "serve.log"
    with output.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "patchwright", "serve", "--port", str(port), "--sandbox", sandbox,
            cwd=setup.data_dir, env=dict(setup.server_env), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,  # this program handles Ctrl-C and stops the server with SIGTERM
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        await _wait_until_ready(url, process, output)
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


async def _wait_until_ready(url: str, process: asyncio.subprocess.Process, output: Path) -> None:
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
    return strip_control_chars(lines[-1]) if lines else "it said nothing"


async def follow_run(setup: DemoSetup, listener: Listener) -> tuple[RunId, Trajectory]:
    """Passes the run's log entries to `listener` as they are written, until the job is completed."""
    logs = FileLogStore(setup.data_dir / "runs")
    reported_count = 0
    deadline = time.monotonic() + RUN_TIMEOUT
    while time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        run = next(
            (RunId(path.name) for path in sorted((setup.data_dir / "runs").glob("*/")) if path.is_dir()), None
        )
        if run is None:
            continue
        with contextlib.suppress(LogError):  # the first line is still being written
            trajectory = logs.read(run)
            for entry in trajectory.entries[reported_count:]:
                listener(entry)
            reported_count = len(trajectory)
            if trajectory.job_completed:
                return run, trajectory
    raise DemoFailed(
        f"the run did not end within {RUN_TIMEOUT:.0f} s; the server's output is in {setup.data_dir / 'serve.log'}"
    )


def _line_printer(stream: TextIO) -> Callable[[str], None]:
    def say(line: str) -> None:
        print(line, file=stream, flush=True)

    return say


def new_data_dir(user_data_dir: Path) -> Path:
    """Returns a new directory for one demo, below the user's data directory."""
    return user_data_dir / "demo" / datetime.now().strftime("%Y%m%d-%H%M%S")
