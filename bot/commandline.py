"""What each command does, and which exit code its ending gets."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from bot import compose
from bot.errors import WorkerFailed
from bot.local_files import check_writable, read_issue, write_patch
from bot.logs import LogLine, listen
from bot.names import issue_url, run_name, safe
from bot.terminal import Narrator, outcome_json, plain, print_json, tests_table
from bot.unfinished import unfinished
from resolver.domain import (
    Asked,
    Commented,
    Delivered,
    Issue,
    Job,
    Outcome,
    Refused,
    Repo,
    VerdictKind,
)
from resolver.errors import (
    Forbidden,
    LogError,
    ModelRefused,
    NotFound,
    RepositoryUnusable,
    ResolverError,
    SettingsError,
    Unauthorized,
    UsageError,
)
from resolver.events import Trajectory
from resolver.settings import Settings
from runtime.errors import SandboxError

DELIVERED, ERROR, USAGE, NOTHING, REFUSED, UNPROVEN, ASKED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130

ForOperators = (
    SettingsError, UsageError, RepositoryUnusable, ModelRefused, NotFound, Unauthorized, Forbidden,
)  # fmt: skip
"""What only a change of the command, the settings or the rights can mend."""
MENDS = {
    Unauthorized: "Check GITHUB_TOKEN, or PATCHWRIGHT_APP_ID and its private key.",
    Forbidden: "The token needs to read and write contents, issues and pull requests of the repository.",
    NotFound: "Check the address, and that GITHUB_TOKEN or the App may see the repository.",
}

SHARED = {
    "model": "model", "model_base_url": "base-url", "sandbox": "sandbox", "image": "image",
    "max_steps": "max-steps", "max_usd": "max-usd", "timeout": "timeout", "config": "config",
}  # fmt: skip
"""Settings that may stand on the command line, and their options."""

T = TypeVar("T")


def run(options: argparse.Namespace, top: argparse.ArgumentParser) -> int:
    """Run the chosen command; the exit code. Every error becomes one sentence on standard error."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(LogLine())
    logging.basicConfig(level=logging.WARNING, handlers=[lines])
    try:
        command: Callable[[argparse.Namespace], Coroutine[Any, Any, int]] = {
            "resolve": resolve,
            "serve": serve,
            "work": work,
            "gate": gate,
            "action": action,
            "demo": demo,
            "runs": look,
            "view": look,
            "export": look,
            "replay": replay,
            "probe": probe,
        }[options.command]
        return _runner(options.command)(_until_stopped(command(options)))
    except WorkerFailed as exc:
        return exc.exit_code if exc.exit_code in range(1, 128) else ERROR  # it has said why
    except ForOperators as exc:
        return complain(options, exc, USAGE)
    except (ResolverError, SandboxError) as exc:
        return complain(options, exc, ERROR)
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("Stopped.", file=sys.stderr)
        if options.json:
            print_json({"outcome": "interrupted", "exit_code": INTERRUPTED})
        return INTERRUPTED


def _runner(command: str) -> Callable[[Coroutine[Any, Any, int]], int]:
    """The event loop: uvloop halves what a delivery costs (benchmarks/receiver.py), and nothing else would gain."""
    if command != "serve":
        return asyncio.run
    import uvloop

    return uvloop.run


async def _until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """The work; SIGTERM stops it as Ctrl-C does, with everything closed."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def complain(options: argparse.Namespace, error: Exception, code: int) -> int:
    """Say what is wrong, where people and machines look for it."""
    mend = next((mend for kind, mend in MENDS.items() if isinstance(error, kind)), None)
    sentence = plain(f"{str(error).rstrip('.')}. {mend}" if mend else str(error))
    print(f"patchwright: {sentence}", file=sys.stderr)
    if options.json:
        print_json({"outcome": "error", "error": sentence, "kind": type(error).__name__, "exit_code": code})
    return code


async def resolve(options: argparse.Namespace) -> int:
    """One issue, from a URL, a path, or a run to go on with."""
    settings = _settings(options)
    if options.answer and not options.run:
        raise UsageError("--answer belongs to --continue RUN: it answers the question that this run asked")
    if options.run:
        return await _go_on(options, settings)
    if options.url:
        if options.repo or options.issue or options.out:
            raise UsageError("give an issue URL, or --repo with --issue, not both")
        repo, number = issue_url(options.url, settings.github_server_url)
        job = Job(id=run_name(f"{repo.owner}-{repo.name}-{number}"), repo=repo, number=number, requester=None)
        return await _from_forge(job, options, settings)
    if not options.repo or not options.issue:
        raise UsageError(
            "give an issue URL, or --repo PATH with --issue FILE (see patchwright resolve --help)"
        )
    path = _absolute(options.repo)
    if options.out:
        check_writable(Path(options.out))
    job = Job(
        id=run_name(path.name), repo=Repo(owner="local", name=safe(path.name)), number=1, requester=None
    )
    return await _from_path(job, read_issue(Path(options.issue)), path, options, settings)


async def _go_on(options: argparse.Namespace, settings: Settings) -> int:
    from resolver.log import FileLogs

    try:
        started = FileLogs(settings.data / "runs").read(options.run).started
    except LogError as exc:
        raise UsageError(f"{options.run} cannot be continued: {exc}") from exc
    if started is None:
        raise UsageError(f"the run {options.run} was stopped before it began: start it anew")
    if "://" not in started.source:
        assert isinstance(started.thread, Issue)
        return await _from_path(started.job, started.thread, Path(started.source), options, settings)
    if options.answer:
        raise UsageError(
            f"the run {options.run} asked in {started.thread.url}: answer there, with a comment that begins with "
            f"{settings.mention}"
        )
    return await _from_forge(started.job, options, settings)


async def _from_forge(job: Job, options: argparse.Namespace, settings: Settings) -> int:
    from bot.progress import silent
    from resolver.forge import DryRun, Masked
    from resolver.log import FileLogs
    from resolver.resolve import resolve as resolve_job

    show = _to_stderr if options.json else print
    async with (
        compose.forge(settings) as real,  # first: a missing token is told before an image is built
        compose.kit(settings, trusted=False, say=_to_stderr, listeners=(Narrator(_to_stderr),)) as kit,
    ):
        forge = (
            DryRun(real, lambda title, body: show(f"\n--- {plain(title)}\n{plain(body)}"))
            if options.dry_run
            else real
        )
        with unfinished(job, settings, None, _to_stderr):
            outcome = await resolve_job(job, kit, Masked(forge, kit.secrets.mask), silent)
        trajectory = FileLogs(settings.data / "runs").read(job.id)
    spent = trajectory.spent()
    if options.json:
        print_json(outcome_json(job.id, outcome, getattr(outcome, "verdict", None), spent))
    else:
        print(_told(outcome))
        print(f"log: {settings.data / 'runs' / job.id}\nsee it: patchwright view {job.id}")
    return _code(outcome, trajectory)


async def _from_path(
    job: Job, issue: Issue, path: Path, options: argparse.Namespace, settings: Settings
) -> int:
    from resolver.resolve import resolve_path

    async with compose.kit(settings, trusted=True, say=_to_stderr, listeners=(Narrator(_to_stderr),)) as kit:
        with unfinished(job, settings, options.out, _to_stderr):
            tried, trajectory = await resolve_path(job, issue, path, kit, options.answer or "")
    if tried.ending.reason == "asked":
        return _asked(job, tried.ending.detail, trajectory, options)
    diff = tried.patch.diff.decode("utf-8", errors="surrogateescape")
    kept = write_patch(options.out, tried.patch)
    if options.json:
        text = tried.patch.diff.decode("utf-8", errors="replace")
        print_json(outcome_json(job.id, None, tried.verdict, trajectory.spent(), patch=text, patch_file=kept))
    else:
        print(f"verdict: {tried.verdict.kind}. {tried.verdict.reason}")
        print(tests_table(tried.verdict))
        sys.stdout.flush()
        sys.stdout.buffer.write(diff.encode("utf-8", errors="surrogateescape"))
        if kept:
            _to_stderr(f"patch: {kept}")
        _to_stderr(f"log: {settings.data / 'runs' / job.id}\nsee it: patchwright view {job.id}")
    return _code_of_verdict(tried.verdict.kind, trajectory)


def _asked(job: Job, question: str, trajectory: Trajectory, options: argparse.Namespace) -> int:
    """Pass the question on to the person at the command line."""
    if options.json:
        print_json(outcome_json(job.id, Asked(url="", question=question), None, trajectory.spent()))
    else:
        print(f"asked: {plain(question)}")
    _to_stderr(f"Answer with: patchwright resolve --continue {job.id} --answer TEXT")
    return ASKED


async def serve(options: argparse.Namespace) -> int:
    """The server: receiver, queue and worker in one process tree."""
    settings = _listening(options)
    command: list[str] = []
    if not options.no_worker:
        alone = ["--alone"] if settings.redis_url is None else []
        command = [sys.executable, "-P", "-m", "bot.cli", "work", *_shared(options), *alone]
    elif settings.redis_url is None:
        raise SettingsError(
            "REDIS_URL is not set: with --no-worker, name the Redis that workers take jobs from."
        )
    probe = [sys.executable, "-P", "-m", "bot.cli", "probe", "--json", *_shared(options, only="config")]
    serving = compose.serve(settings, lambda: _listening(options), command, probe, options.host, options.port)
    return INTERRUPTED if await serving else 0


async def work(options: argparse.Namespace) -> int:
    """A worker, for a server here or elsewhere."""
    interrupted = await compose.work(_listening(options), _to_stderr, sole=options.alone)
    return INTERRUPTED if interrupted else 0


async def gate(options: argparse.Namespace) -> int:
    """A door to the engine for workers, until Ctrl-C or SIGTERM."""
    from bot.gate.gate import Gate
    from bot.signals import signals

    logging.getLogger("bot").setLevel(logging.INFO)
    group = int(options.group) if (options.group or "").isdigit() else options.group
    with signals() as told:
        async with Gate(Path(options.engine)).listening(_absolute(options.listen), group):
            print(f"patchwright lets sandboxes through at {options.listen}", flush=True)
            return INTERRUPTED if await told == signal.SIGINT else 0


def _listening(options: argparse.Namespace) -> Settings:
    """The settings of a server, which logs by them from here on."""
    settings = _settings(options)
    secrets = compose.secrets_of(settings, compose.environment())
    listen(settings, secrets, terminal=sys.stderr.isatty())
    return settings


def _shared(options: argparse.Namespace, only: str = "") -> list[str]:
    """The settings of this command line, or this one of them, for another one."""
    given = {name: getattr(options, key) for key, name in SHARED.items() if only in ("", key)}
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


async def action(options: argparse.Namespace) -> int:
    """The event of a workflow."""
    from bot.action_parts import action as work_on_event

    leave, publish = (Path(place) if place else None for place in (options.leave, options.publish))
    return await work_on_event(_settings(options, directory=None), _to_stderr, leave=leave, publish=publish)


async def look(options: argparse.Namespace) -> int:
    """Runs on this disk, to be read."""
    from bot.runs import looked

    settings = _settings(options)
    return looked(options, settings, compose.secrets_of(settings, compose.environment()))


async def replay(options: argparse.Namespace) -> int:
    """A run again, from its log."""
    from bot.runs import replayed

    return replayed(options, _settings(options))


async def probe(options: argparse.Namespace) -> int:
    """Which of the configured models can drive the agent."""
    from bot.probing import probed

    return DELIVERED if await probed(_settings(options), as_json=options.json) else NOTHING


async def demo(options: argparse.Namespace) -> int:
    """The first command of the README."""
    from bot.sandboxes import sandbox_kind
    from demo.run import demo as play
    from demo.run import fresh_directory

    environ = compose.environment()
    kept = Path(environ.get("PATCHWRIGHT_DATA") or compose.data_directory(environ))
    data = _absolute(options.keep) if options.keep else fresh_directory(kept)
    wanted = {"sandbox": options.sandbox, "data": data, "plugins": "none"}
    settings = compose.read_settings(wanted, compose.only(environ, compose.FOR_IMAGES), None, None)
    sandbox, why = await sandbox_kind(settings, environ, _to_stderr)
    return await play(sandbox, why, data, environ, as_json=options.json)


def _settings(options: argparse.Namespace, directory: Path | None = Path()) -> Settings:
    overrides = {key: getattr(options, key, None) for key in (*SHARED, "poll") if key != "config"}
    config = Path(options.config) if options.config else None
    return compose.read_settings(overrides, compose.environment(), config, directory and directory.resolve())


def _absolute(path: str) -> Path:
    return Path(path).resolve()


def _told(outcome: Outcome) -> str:
    match outcome:
        case Delivered(url=url, draft=draft, verdict=verdict):
            return (
                f"{'draft ' if draft else ''}pull request: {url}\nverdict: {verdict.kind}. {verdict.reason}"
            )
        case Commented(url=url, reason=reason, branch=branch):
            kept = f"\nthe work is kept on the branch {branch}" if branch else ""
            return f"no pull request: {reason}{kept}\ncomment: {url}"
        case Asked(url=url, question=question):
            return f"asked: {question}\ncomment: {url}"
        case Refused(explanation=explanation):
            return f"refused: {explanation}"


def _code(outcome: Outcome, trajectory: Trajectory) -> int:
    match outcome:
        case Delivered():
            return DELIVERED
        case Refused():
            return REFUSED
        case Asked():
            return ASKED
        case Commented():
            return _failed_or_nothing(trajectory)


def _code_of_verdict(kind: VerdictKind, trajectory: Trajectory) -> int:
    if kind == "fixed":
        return DELIVERED
    if kind in ("unproven", "untested"):
        return UNPROVEN
    return _failed_or_nothing(trajectory)


def _failed_or_nothing(trajectory: Trajectory) -> int:
    return ERROR if trajectory.ended and trajectory.ended.reason == "error" else NOTHING


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
