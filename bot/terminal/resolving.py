"""`patchwright resolve`: one issue, told to the person at the terminal while it is worked on."""

import argparse
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from bot import compose
from bot.terminal.exits import ASKED, DELIVERED, ERROR, NOTHING, REFUSED, UNPROVEN
from bot.terminal.lines import folded, outcome_json, plain, print_json, tests_table, to_stderr
from bot.terminal.live import telling
from bot.terminal.local_files import absolute, check_writable, read_issue, write_patch
from bot.terminal.names import issue_named, run_name, safe
from bot.terminal.naming import named
from bot.terminal.unfinished import unfinished
from resolver.actions import Finish
from resolver.domain import (
    Asked,
    Commented,
    Delivered,
    Issue,
    Job,
    Outcome,
    Refused,
    Repo,
    Spent,
    VerdictKind,
)
from resolver.errors import LogError, UsageError
from resolver.events import Trajectory
from resolver.forge import DRY
from resolver.gate import last_account
from resolver.log import FileLogs, Listener
from resolver.settings.settings import Settings
from resolver.words import wording


async def resolved(options: argparse.Namespace, settings: Settings) -> int:
    """Work on what the command line names: an issue, a path, or a run to go on with; the exit code."""
    if options.answer and not options.run:
        raise UsageError("--answer belongs to --continue RUN: it answers the question that this run asked")
    if options.run:
        if options.url or options.repo or options.issue:
            raise UsageError("--continue goes on with the issue that its run began with: name no other one")
        return await _go_on(options, settings)
    if options.url:
        if options.repo or options.issue or options.out:
            raise UsageError("give an issue's URL, or --repo with --issue, not both")
        repo, number = issue_named(options.url, settings.github_server_url)
        job = Job(id=run_name(f"{repo.owner}-{repo.name}-{number}"), repo=repo, number=number, requester=None)
        return await _from_forge(job, options, settings, Trajectory())
    if not options.repo or not options.issue:
        raise UsageError(
            "give an issue's URL, or --repo PATH with --issue FILE (see patchwright resolve --help)"
        )
    path = absolute(options.repo)
    if options.out:
        check_writable(Path(options.out))
    job = Job(
        id=run_name(path.name), repo=Repo(owner="local", name=safe(path.name)), number=1, requester=None
    )
    return await _from_path(job, read_issue(Path(options.issue)), path, options, settings, Trajectory())


async def _go_on(options: argparse.Namespace, settings: Settings) -> int:
    logs = FileLogs(settings.data / "runs")
    run = named(options.run, settings.data / "runs")
    try:
        so_far = logs.read(run)
    except LogError as exc:
        raise UsageError(f"{run} cannot be continued: {exc}") from exc
    if (started := so_far.started) is None:
        raise UsageError(f"the run {run} was stopped before it began: start it anew")
    if "://" not in started.source:
        if so_far.ended and not so_far.decisions():
            raise UsageError(f"the run {run} ended before the model had answered: start it anew")
        assert isinstance(started.thread, Issue)
        return await _from_path(started.job, started.thread, Path(started.source), options, settings, so_far)
    if options.out:
        raise UsageError(
            f"--out is for a repository on this machine: the run {run} goes on to a pull request"
        )
    if options.answer:
        raise UsageError(
            f"the run {run} asked in {started.thread.url}: answer there, with a comment that begins with "
            f"{settings.mention}"
        )
    return await _from_forge(started.job, options, settings, so_far)


async def _from_forge(job: Job, options: argparse.Namespace, settings: Settings, so_far: Trajectory) -> int:
    from bot.progress import silent
    from resolver.forge import DryRun, Masked
    from resolver.resolve import resolve

    show = to_stderr if options.json else print
    async with (
        _telling(options, so_far) as tell,
        compose.forge(settings) as real,  # first: a missing token is told before an image is built
        compose.kit(settings, trusted=False, say=to_stderr, listeners=(tell,)) as kit,
    ):
        forge = (
            DryRun(real, lambda title, body: show(f"\n--- {plain(title)}\n{plain(body)}"))
            if options.dry_run
            else real
        )
        with unfinished(job, settings, None):
            outcome = await resolve(job, kit, Masked(forge, kit.secrets.mask), silent)
    trajectory = FileLogs(settings.data / "runs").read(job.id)
    if options.json:
        verdict = getattr(outcome, "verdict", None)
        print_json(outcome_json(job.id, outcome, verdict, trajectory.spent()))
    else:
        print(plain(_told(outcome)))
        print(_where(job, settings, trajectory.spent()))
    return _code(outcome, trajectory)


async def _from_path(
    job: Job,
    issue: Issue,
    path: Path,
    options: argparse.Namespace,
    settings: Settings,
    so_far: Trajectory,
) -> int:
    from resolver.resolve import resolve_path

    async with (
        _telling(options, so_far) as tell,
        compose.kit(settings, trusted=True, say=to_stderr, listeners=(tell,)) as kit,
    ):
        with unfinished(job, settings, options.out):
            tried, trajectory = await resolve_path(job, issue, path, kit, options.answer or "")
    if tried.ending.reason == "asked":
        return _asked(job, tried.ending.detail, trajectory, options)
    failed = tried.ending.detail if tried.ending.reason == "error" else None
    diff = tried.patch.diff.decode("utf-8", errors="surrogateescape")
    kept = write_patch(options.out, tried.patch)
    told = last_account(trajectory)
    if options.json:
        text = tried.patch.diff.decode("utf-8", errors="replace")
        account = told.model_dump(include={"cause", "change", "checked"}) if told else None
        more = {"account": account, "patch": text, "patch_file": kept, "error": failed}
        print_json(outcome_json(job.id, None, tried.verdict, trajectory.spent(), **more))
    else:
        print(plain(f"verdict: {tried.verdict.kind}. {tried.verdict.reason}"))
        print(tests_table(tried.verdict))
        print(folded(plain(_account(told))) if told else "the agent gave no account")
        sys.stdout.flush()
        sys.stdout.buffer.write(_shown(diff).encode("utf-8", errors="surrogateescape"))
        sys.stdout.flush()
        if kept:
            to_stderr(f"patch: {kept}")
        to_stderr(_where(job, settings, trajectory.spent()))
    code = _code_of_verdict(tried.verdict.kind, trajectory)
    if code != DELIVERED and tried.ending.reason != "finished" and trajectory.decisions():
        to_stderr(f"go on: patchwright resolve --continue {job.id}")
    if failed is not None:
        to_stderr(f"patchwright: {plain(failed)}")
    return code


def _account(told: Finish) -> str:
    return (
        f"what was wrong: {told.cause}\nwhat was changed: {told.change}\nhow it was checked: {told.checked}"
    )


def _shown(diff: str) -> str:
    """A diff as it is, for a file or a program; at a terminal, what would steer it is left out."""
    return plain(diff) if sys.stdout.isatty() else diff


def _telling(options: argparse.Namespace, so_far: Trajectory) -> AbstractAsyncContextManager[Listener]:
    environ = compose.environment()
    return telling(sys.stderr, environ, quiet=options.quiet, verbose=options.verbose, earlier=so_far)


def _where(job: Job, settings: Settings, spent: Spent) -> str:
    """What the run cost, and where more of it is."""
    steps = f"{spent.steps} step{'' if spent.steps == 1 else 's'}"
    took = f"{wording.duration(spent.seconds)}, {steps}, {spent.tokens:,} tokens, {wording.money(spent)}"
    return f"took: {took}\nlog: {settings.data / 'runs' / job.id}\nsee it: patchwright view {job.id}"


def _asked(job: Job, question: str, trajectory: Trajectory, options: argparse.Namespace) -> int:
    """Pass the question on to the person at the command line."""
    if options.json:
        print_json(outcome_json(job.id, Asked(url="", question=question), None, trajectory.spent()))
    else:
        print(f"asked: {plain(question)}")
    to_stderr(f"Answer with: patchwright resolve --continue {job.id} --answer TEXT")
    return ASKED


def _told(outcome: Outcome) -> str:
    match outcome:
        case Delivered(url=url, draft=draft, verdict=verdict):
            return f"{'draft ' if draft else ''}pull request: {_at(url)}\nverdict: {verdict.kind}. {verdict.reason}"
        case Commented(url=url, reason=reason, branch=branch):
            kept = f"\nthe work is kept on the branch {branch}" if branch else ""
            return f"no pull request: {reason}{kept}\ncomment: {_at(url)}"
        case Asked(url=url, question=question):
            return f"asked: {question}\ncomment: {_at(url)}"
        case Refused(explanation=explanation):
            return f"refused: {explanation}"


def _at(url: str) -> str:
    return "nowhere, as this was a dry run" if url == DRY else url


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
