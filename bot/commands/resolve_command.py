"""`patchwright resolve`: resolves one issue and shows its progress in the terminal."""

import argparse
import re
import sys
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from patchwright.bot.commands.attempt_output import has_model_failed, print_attempt, print_attempt_json
from patchwright.bot.commands.confirmation import find_person, offer_local_sandbox
from patchwright.bot.composition import composition_root
from patchwright.bot.terminal.exit_codes import (
    ERROR,
    INPUT_REQUIRED,
    OUTCOME_EXIT_CODES,
    SUCCESS,
    UNPROVEN,
    UNSUCCESSFUL,
)
from patchwright.bot.terminal.interrupts import resume_command, save_partial_patch
from patchwright.bot.terminal.live_display import open_display
from patchwright.bot.terminal.local_files import (
    absolute_path,
    apply_command,
    check_writable,
    print_old_file_notice,
    read_issue,
    write_patch,
)
from patchwright.bot.terminal.output import (
    describe_usage,
    end_sentence,
    outcome_json,
    print_json,
    print_stderr,
    print_stdout,
    strip_control_chars,
    verdict_line,
)
from patchwright.bot.terminal.run_ids import create_run_id, find_run, sanitize_name
from patchwright.bot.usage_report import get_last_job
from patchwright.resolver.activity.summary import find_reached_setting
from patchwright.resolver.domain import (
    InputRequired,
    Issue,
    Job,
    Outcome,
    Patch,
    Published,
    Rejected,
    Repo,
    Reported,
    Usage,
    VerdictKind,
)
from patchwright.resolver.errors import LogError, SettingsError, UsageError
from patchwright.resolver.events import AgentStopped, Trajectory
from patchwright.resolver.forge import DRY_RUN_URL
from patchwright.resolver.llm.model_check import check_endpoint, check_models
from patchwright.resolver.run_limits import is_complete
from patchwright.resolver.run_log import FileLogStore, Listener
from patchwright.resolver.settings.connection_check import find_connection_problem
from patchwright.resolver.settings.settings import Settings, environment_variable


async def run_resolve(options: argparse.Namespace, settings: Settings) -> int:
    """Resolves an issue or resumes a run, depending on the command-line options. Returns the exit code."""
    if options.answer and not options.run:
        raise UsageError("--answer needs --continue RUN, where RUN is the run that asked the question")
    if options.include_changes and not options.repo:
        raise UsageError("--include-changes works only with --repo PATH")
    if options.run:
        if options.url or options.repo or options.issue:
            raise UsageError("--continue RUN works on the issue of that run. Do not pass another issue")
        return await _resume_run(options, settings)
    if options.url:
        if options.repo or options.issue or options.out:
            raise UsageError("Pass the URL of an issue, or --repo with --issue, not both")
        repo, number = parse_issue_reference(options.url, settings.github_server_url)
        job = Job(
            id=create_run_id(f"{repo.owner}-{repo.name}-{number}"), repo=repo, number=number, requester=None
        )
        return await _resolve_on_forge(job, options, settings, Trajectory())
    if options.repo and not options.issue:
        raise UsageError("--repo also needs --issue FILE, a file that describes the problem")
    if options.issue and not options.repo:
        raise UsageError("--issue also needs --repo PATH, a local git repository")
    if not options.repo:
        raise UsageError(
            "Pass the URL of an issue, or --repo PATH with --issue FILE (see patchwright resolve --help)"
        )
    path = absolute_path(options.repo)
    if options.out:
        check_writable(Path(options.out))
    job = Job(
        id=create_run_id(path.name),
        repo=Repo(owner="local", name=sanitize_name(path.name)),
        number=1,
        requester=None,
    )
    return await _resolve_on_disk(job, read_issue(Path(options.issue)), path, options, settings, Trajectory())


async def _check_model(settings: Settings) -> None:
    """Checks the configured models before a sandbox is built."""
    check_models(settings, composition_root.read_environment())
    await check_endpoint(settings)


async def _check_repository(path: Path, settings: Settings, *, include_changes: bool) -> Patch | None:
    """Checks that the repository is usable before a sandbox is built. Prints a notice that says whether the run
    includes uncommitted changes. If the run includes these changes, returns them.
    """
    from patchwright.resolver.git import local_repository
    from patchwright.resolver.git.workspaces import WorkspaceFactory

    composition_root.check_data_directory(settings.data)
    async with WorkspaceFactory(settings.data / "cache", settings.ca_bundle).local(path) as workspace:
        if notice := await local_repository.describe_uncommitted_changes(
            workspace, path, is_included=include_changes
        ):
            print_stderr(notice)
        return await local_repository.read_uncommitted_changes(workspace, path) if include_changes else None


async def _resume_run(options: argparse.Namespace, settings: Settings) -> int:
    logs = FileLogStore(settings.data / "runs")
    run = find_run(options.run, settings.data / "runs")
    try:
        earlier = logs.read(run)
        if earlier.run_resumed:  # A job of a server: its work is in the log of the run that it resumed.
            run, earlier = earlier.run_resumed.run, logs.read(earlier.run_resumed.run)
    except LogError as exc:
        raise UsageError(f"Cannot resume {run}: {exc}") from exc
    if (started := earlier.run_started) is None:
        raise UsageError(f"The run {run} ended before its work began. Start a new one")
    if "://" not in started.source:
        if earlier.agent_stopped and not earlier.replies():
            raise UsageError(_describe_unstarted_run(run, earlier, earlier.agent_stopped))
        if is_complete(earlier) and not options.answer:
            print_stderr(
                f"NOTICE: The run {run} is complete: nothing is left to continue. This is its result:"
            )
        assert isinstance(started.thread, Issue)
        return await _resolve_on_disk(
            started.job, started.thread, Path(started.source), options, settings, earlier
        )
    if options.out:
        raise UsageError(f"--out works only with a local repository; the run {run} opens a pull request")
    if options.answer:
        raise UsageError(
            f"The run {run} asked its question in {started.thread.url}. Answer with a comment there "
            f"that starts with {settings.mention}"
        )
    return await _resolve_on_forge(started.job, options, settings, earlier)


def _describe_unstarted_run(run: str, earlier: Trajectory, stopped: AgentStopped) -> str:
    """Returns why a run without a reply of the model cannot be resumed, and what to do instead."""
    text = f"The run {run} ended before the model replied, so there is nothing to resume. {stopped.detail}"
    setting = find_reached_setting(earlier)
    fix = f"Raise {environment_variable(setting)}, and run" if setting else "Run"
    return f"{text} {fix} the first command again"


async def _resolve_on_forge(
    job: Job, options: argparse.Namespace, settings: Settings, earlier: Trajectory
) -> int:
    from patchwright.bot.commands.server_logs import continuation_reporter, share_with_server
    from patchwright.bot.errors import WriteAccessMissing
    from patchwright.bot.github.write_check import with_write_check
    from patchwright.bot.status_comment import null_reporter
    from patchwright.resolver.forge import DryRunForge, MaskingForge
    from patchwright.resolver.pipeline.resolve import resolve_job
    from patchwright.resolver.pipeline.resumption import record_operator_resume, replace_stopped_comment

    check_models(settings, composition_root.read_environment())
    composition_root.check_github_credentials(settings)
    await check_endpoint(settings)
    if problem := await find_connection_problem(settings.github_api_url):
        raise SettingsError(f"GitHub's API at {problem}. Check the network and GITHUB_SERVER_URL.")
    show = print_stderr if options.json else print_stdout
    async with (
        _open_display(options, earlier) as listener,
        composition_root.open_forge(settings) as github,
        composition_root.build_run_dependencies(settings, notify=print_stderr, listeners=(listener,)) as deps,
    ):
        to_publish = (
            DryRunForge(
                github,
                lambda title, body: show(f"\n--- {strip_control_chars(title)}\n{strip_control_chars(body)}"),
            )
            if options.dry_run
            else github
        )
        forge = MaskingForge(to_publish, deps.secrets.mask)
        is_shown = earlier.run_started is not None and not options.dry_run
        reporter = continuation_reporter(forge, settings, deps) if is_shown else null_reporter
        reporter = reporter if options.dry_run else with_write_check(reporter, github.write_check)
        async with share_with_server(
            job, settings, FileLogStore(settings.data / "runs"), reporter, print_stderr
        ) as (logs, reporter):
            person = find_person(listener, is_json=options.json)
            deps = replace(deps, logs=logs, ask_person=person)
            with save_partial_patch(job, settings, options):
                if earlier.run_started and earlier.agent_stopped is None:
                    async with deps.logs.open(job.id, deps.listeners) as log:
                        await record_operator_resume(job, log)
                try:
                    outcome = await resolve_job(job, deps, forge, reporter)
                except WriteAccessMissing as exc:
                    advice = "Grant this access, or pass --dry-run to see the result without publishing it"
                    raise UsageError(f"{exc} {advice}") from exc
                await replace_stopped_comment(forge, job, get_last_job(earlier), getattr(outcome, "url", ""))
    trajectory = FileLogStore(settings.data / "runs").read(job.id)
    if options.json:
        verdict = getattr(outcome, "verdict", None)
        print_json(outcome_json(job.id, outcome, verdict, trajectory.usage()))
    else:
        print_stdout(strip_control_chars(_outcome_text(outcome)))
        print_stdout(_cost_and_log_text(job, settings, trajectory.usage()))
    return _failure_exit_code(trajectory) if outcome.kind == "reported" else OUTCOME_EXIT_CODES[outcome.kind]


async def _resolve_on_disk(
    job: Job,
    issue: Issue,
    path: Path,
    options: argparse.Namespace,
    settings: Settings,
    earlier: Trajectory,
) -> int:
    # In a thread, because the checks below mainly wait for other programs.
    composition_root.start_import("patchwright.resolver.pipeline.resolve")
    await _check_model(settings)
    changes = None
    if earlier.run_started is None:
        changes = await _check_repository(path, settings, include_changes=options.include_changes)
    if not options.json:
        settings = await offer_local_sandbox(settings, composition_root.read_environment())
    async with (
        _open_display(options, earlier) as listener,
        composition_root.build_run_dependencies(settings, notify=print_stderr, listeners=(listener,)) as deps,
    ):
        from patchwright.resolver.pipeline.resolve import resolve_local

        deps = replace(deps, ask_person=find_person(listener, is_json=options.json))
        with save_partial_patch(job, settings, options):
            attempt, trajectory = await resolve_local(job, issue, path, deps, options.answer or "", changes)
    if attempt.agent_stopped.reason == "input_required":
        return _print_question(job, attempt.agent_stopped, trajectory, options)
    error = attempt.agent_stopped.detail if attempt.agent_stopped.reason == "error" else None
    patch_file = write_patch(options.out, attempt.patch)
    if options.json:
        print_attempt_json(job, attempt, trajectory, patch_file, error)
    else:
        print_attempt(attempt, trajectory)
        if patch_file:
            print_stderr(
                f"patch: {absolute_path(patch_file)}\napply it with: {apply_command(path, patch_file)}"
            )
        elif attempt.patch.diff and sys.stdout.isatty():
            print_stderr(f"To write this patch to a file: {resume_command(job, options)} --out fix.diff")
        print_stderr(_cost_and_log_text(job, settings, trajectory.usage()))
    if not patch_file:
        print_old_file_notice(options.out)
    code = _verdict_exit_code(attempt.verdict.kind, trajectory)
    if (code != SUCCESS or error) and attempt.agent_stopped.reason != "finished" and trajectory.replies():
        print_stderr(f"resume: {resume_command(job, options)}")
    if error and has_model_failed(attempt):
        print_stderr(f"patchwright: {strip_control_chars(end_sentence(error))}")
    return code


def _open_display(options: argparse.Namespace, earlier: Trajectory) -> AbstractAsyncContextManager[Listener]:
    environ = composition_root.read_environment()
    return open_display(sys.stderr, environ, quiet=options.quiet, verbose=options.verbose, earlier=earlier)


def _cost_and_log_text(job: Job, settings: Settings, usage: Usage) -> str:
    """Returns a text with the cost of the run and the path of the run's log."""
    return f"total: {describe_usage(usage)}\nlog: {settings.data / 'runs' / job.id}\nview: patchwright view {job.id}"


def _print_question(
    job: Job, stopped: AgentStopped, trajectory: Trajectory, options: argparse.Namespace
) -> int:
    """Prints the agent's question, or the call that waits for approval, and how to answer."""
    outcome = InputRequired(url="", question=stopped.detail, confirmation=stopped.confirmation)
    if options.json:
        print_json(outcome_json(job.id, outcome, None, trajectory.usage()))
    else:
        print_stdout(_question_text(outcome))
    print_old_file_notice(options.out)
    command = resume_command(job, options)
    answers = "approve (or: reject)" if stopped.confirmation else "TEXT"
    print_stderr(f"Answer with: {command} --answer {answers}")
    return INPUT_REQUIRED


def _question_text(outcome: InputRequired) -> str:
    call = f"\n{outcome.confirmation.call}" if outcome.confirmation else ""
    return strip_control_chars(f"question: {outcome.question}{call}")


def _outcome_text(outcome: Outcome) -> str:
    match outcome:
        case Published(url=url, draft=draft, verdict=verdict):
            title = "draft pull request" if draft else "pull request"
            return f"{title}: {_url_text(url)}\n{verdict_line(verdict)}"
        case Reported(url=url, reason=reason, branch=branch):
            saved = f"\nthe changes are on the branch {branch}" if branch else ""
            return f"no pull request: {reason}{saved}\ncomment: {_url_text(url)}"
        case InputRequired(url=url):
            return f"{_question_text(outcome)}\ncomment: {_url_text(url)}"
        case Rejected(explanation=explanation):
            return f"rejected: {explanation}"


def _url_text(url: str) -> str:
    return "none (dry run)" if url == DRY_RUN_URL else url


def _verdict_exit_code(kind: VerdictKind, trajectory: Trajectory) -> int:
    if kind == "fixed":
        return SUCCESS
    if kind in ("conditional", "unproven", "untested"):
        return UNPROVEN
    return _failure_exit_code(trajectory)


def _failure_exit_code(trajectory: Trajectory) -> int:
    return ERROR if trajectory.agent_stopped and trajectory.agent_stopped.reason == "error" else UNSUCCESSFUL


ISSUE_URL_PATH = re.compile(r"/([^/]+)/([^/]+)/(?:issues|pull)/([1-9]\d{0,9})/?")
SHORT_REFERENCE = re.compile(r"([^/]+)/([^/#]+)#([1-9]\d{0,9})")


def parse_issue_reference(reference: str, server_url: str) -> tuple[Repo, int]:
    """Returns the repository and the number in a reference. The reference is the URL of an issue or pull
    request, or OWNER/REPO#7.

    Raises UsageError for other texts. If the URL contains a password, the message does not show it.
    """
    try:
        expected, url = (
            urlsplit(server_url.rstrip("/")),
            urlsplit(reference if "://" in reference else f"//{reference}"),
        )
        is_this_server = url.netloc.lower() == expected.netloc.lower()
        match = (
            ISSUE_URL_PATH.fullmatch(url.path.removeprefix(expected.path))
            if is_this_server
            else SHORT_REFERENCE.fullmatch(reference)
        )
        if match is not None:
            return Repo(owner=match[1], name=match[2]), int(match[3])
        is_other_server = "://" in reference and not is_this_server
        reference = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl().removeprefix("//")
    except ValueError:  # This is not a valid URL or repository name.
        is_other_server, reference = False, reference.rpartition("@")[2]
    raise UsageError(
        f"'{reference}' is not an issue. "
        f"Pass the URL of an issue, such as {server_url.rstrip('/')}/OWNER/REPO/issues/7, or OWNER/REPO#7"
        + ("; for another server, set GITHUB_SERVER_URL" if is_other_server else "")
    )
