"""Implements the command `setup`, which proposes `.github/patchwright.toml` in a pull request.

The file contains the test commands that were detected and that ran in a clean sandbox. The agent and the model
are not used.
"""

from typing import Literal, NamedTuple

from patchwright.resolver.authorization import authorize
from patchwright.resolver.ci.ci_hold import CiHold, decide_ci_hold
from patchwright.resolver.domain import Job, Outcome, Patch, Published, Reported, TestRun, Verdict
from patchwright.resolver.errors import Forbidden, ForgeError, Unauthorized
from patchwright.resolver.events import JobCompleted, VerificationCompleted
from patchwright.resolver.forge import Forge
from patchwright.resolver.forge_writes import PullRequestSpec
from patchwright.resolver.git.new_file import add_file
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.pipeline.publish import (
    DEFAULT_AUTHOR,
    check_published,
    explain_how_to_open,
    post_comment,
    report_lost_permission,
)
from patchwright.resolver.pipeline.run_start import build_run_started, prepare_environment
from patchwright.resolver.publishing.publish_branch import (
    CommentLocation,
    commit_author,
    get_run_directory,
    push_or_paste,
)
from patchwright.resolver.publishing.publishing_texts import render_no_pull_request_reason
from patchwright.resolver.rendering.template_renderer import render, render_reply
from patchwright.resolver.run.dependencies import Run, RunDependencies
from patchwright.resolver.run.repo_config import parse_repo_config
from patchwright.resolver.run_events import EnvironmentPrepared
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.settings.settings import REPO_CONFIG_PATH, ConfiguredSuite, RepoConfig, Settings
from patchwright.resolver.suites.discovery import find_suites
from patchwright.resolver.suites.execution import run_tests
from patchwright.resolver.suites.suite import Suite, Suites

BRANCH = "setup"
"""Name of the branch, without the operator's prefix. If a pull request from this branch is open or was declined,
no new one is opened.
"""
TITLE = "Configure Patchwright"
MAX_COMMANDS = 5  # Maximum number of test commands that are tried. Each may take `test_timeout` seconds.

OnboardingResult = Literal[
    "opened", "open", "declined", "exists", "no_tests", "not_proven", "not_pushed", "not_opened"
]


class Candidate(NamedTuple):
    """A detected test command, in the form in which `.github/patchwright.toml` would contain it."""

    entry: ConfiguredSuite
    suite: Suite
    """The suite that Patchwright runs if `.github/patchwright.toml` contains `entry`."""
    reason: str
    """Why this command was chosen, in one sentence."""


class TriedCommand(NamedTuple):
    """A test command and its run on the base commit."""

    entry: ConfiguredSuite
    run: TestRun
    reason: str

    @property
    def is_proven(self) -> bool:
        """True if at least one test passed. If the output does not list the tests, True if the command
        succeeded.
        """
        run = self.run
        return not run.problem and (run.passed_count > 0 if run.results else run.exit_code == 0)


async def propose_config(run: Run) -> Outcome:
    """Opens the pull request with `.github/patchwright.toml`, and posts the result in the thread. Opens no pull
    request if the file exists, or if an earlier pull request with this file is open or was declined.

    If the job runs again, it does not repeat test runs and opens no second pull request.
    """
    outcome = await _propose(run)
    await run.log.append(JobCompleted(outcome=outcome))
    return outcome


async def _propose(run: Run) -> Outcome:
    job, facts, log, deps, forge = run.job, run.facts, run.log, run.deps, run.forge
    branch = _branch(deps.settings)
    if (pull := await forge.find_pull_request(job.repo, branch)) is not None:
        return await _report(job, forge, "open", pull=pull)
    if (pull := await forge.find_declined_pull_request(job.repo, branch)) is not None:
        return await _report(job, forge, "declined", pull=pull)
    async with run.reporter(job, log):
        credentials = await forge.get_credentials(job.repo)
        deps.secrets.add(credentials.token)
        started = log.trajectory.run_started
        ref = started.base_sha if started else facts.default_branch
        async with deps.workspaces.clone(facts.clone_url, ref, credentials) as workspace:
            if await workspace.get_entry(REPO_CONFIG_PATH) is not None:
                return await _report(job, forge, "exists")
            candidates, left_out = await find_candidates(workspace)
            if not candidates:
                return await _report(job, forge, "no_tests")
            if started is None:
                await log.append(
                    build_run_started(job, run.thread, workspace, facts.clone_url, facts.default_branch, deps)
                )
            tried = await _try_commands(job, workspace, candidates, log, deps)
            if not any(one.is_proven for one in tried):
                environment = log.trajectory.environment_prepared
                return await _report(job, forge, "not_proven", tried=tried, environment=environment)
            if not await authorize(forge, job.repo, job.requester):
                return await report_lost_permission(job, log.trajectory, forge)
            return await _publish(job, tried, left_out, workspace, log, deps, forge)


async def find_candidates(workspace: Workspace) -> tuple[tuple[Candidate, ...], tuple[Suite, ...]]:
    """Returns the detected commands to try, the primary one first, and the suites that are left out.

    Only the first suite of each directory is tried. `.github/patchwright.toml` cannot say which source files
    a suite tests. If it contained several suites of one directory, only the first of them would ever run.
    """
    found = await find_suites(workspace, RepoConfig())
    ordered = sorted(found.all, key=lambda suite: suite != found.primary)
    by_directory: dict[str, Suite] = {}
    for suite in ordered:
        by_directory.setdefault(suite.directory, suite)
    chosen = tuple(by_directory.values())[:MAX_COMMANDS]
    entries = tuple(ConfiguredSuite(command=suite.command, directory=suite.directory) for suite in chosen)
    configured = (await find_suites(workspace, RepoConfig(tests=entries))).all
    reasons = (suite.command_reason for suite in chosen)
    candidates = tuple(map(Candidate, entries, configured, reasons))
    return candidates, tuple(suite for suite in ordered if suite not in chosen)


async def _try_commands(
    job: Job, workspace: Workspace, candidates: tuple[Candidate, ...], log: RunLog, deps: RunDependencies
) -> tuple[TriedCommand, ...]:
    """Runs each command on the base commit in a clean sandbox. Logs each run. Runs that are already in the
    log are not repeated.
    """
    runs = {
        event.verdict.before.command: event.verdict.before
        for event in log.trajectory
        if isinstance(event, VerificationCompleted) and event.verdict.before
    }
    suites = tuple(one.suite for one in candidates)
    missing = [suite for suite in suites if suite.root_command not in runs]
    if missing:
        config = RepoConfig(tests=tuple(one.entry for one in candidates))
        sandboxes = await prepare_environment(
            job, workspace, config, Suites(all=suites, primary=suites[0]), log, deps
        )
        for suite in missing:
            name = f"{job.id}-base-{suites.index(suite) + 1}"
            run = await run_tests(workspace, None, suite, sandboxes, name, deps.settings.test_timeout)
            runs[suite.root_command] = run
            verdict = Verdict(kind="empty", reason="The tests ran on the unchanged code.", before=run)
            await log.append(VerificationCompleted(verdict=verdict))
    return tuple(TriedCommand(one.entry, runs[one.suite.root_command], one.reason) for one in candidates)


def _branch(settings: Settings) -> str:
    return f"{settings.branch_prefix}{BRANCH}"


async def _publish(
    job: Job,
    tried: tuple[TriedCommand, ...],
    left_out: tuple[Suite, ...],
    workspace: Workspace,
    log: RunLog,
    deps: RunDependencies,
    forge: Forge,
) -> Outcome:
    started, branch = log.trajectory.run_started, _branch(deps.settings)
    assert started is not None, "cannot propose a configuration in a run that has not started"
    proven = tuple(one for one in tried if one.is_proven)
    ci = await decide_ci_hold(log.trajectory, workspace, workspace.base, job.repo, forge, deps.settings)
    text = render_config(tuple(one.entry for one in proven))
    commit = await _create_commit(job, text, workspace, log, deps, forge, ci)
    location = await push_or_paste(
        *(job.repo, workspace.git_dir, commit, (branch,), workspace.base, forge),
        get_run_directory(deps.settings, job.id),
    )
    if isinstance(location, CommentLocation):
        return await _report(
            job, forge, "not_pushed", branch=branch, detail=location.push_error, advice=location.text
        )
    body = render_pull_body(
        tried,
        left_out,
        started.base_sha,
        deps.settings,
        log.trajectory.environment_prepared,
        ci.render_notice(deps.settings.mention),
    )
    spec = PullRequestSpec(
        repo=job.repo,
        number=job.number,
        base_branch=started.base_branch,
        branch=branch,
        head_sha=location.commit.sha,
        title=TITLE,
        body=body,
        draft=False,
        reviewer=job.requester,
    )
    try:
        pull = await forge.open_pull_request(spec)
    except ForgeError as exc:
        if exc.retryable or isinstance(exc, Unauthorized):
            raise
        is_forbidden = isinstance(exc, Forbidden)
        detail = render_no_pull_request_reason("forbidden" if is_forbidden else "refused", str(exc))
        advice = await explain_how_to_open(spec, forge, deps.settings, str(exc)) if is_forbidden else ""
        return await _report(job, forge, "not_opened", branch=branch, detail=detail, advice=advice)
    check_published(pull, location.commit.sha)
    await post_comment(job, forge, render_comment("opened", pull=pull, tried=proven))
    reason = "The change only adds a configuration file."
    verdict = Verdict(kind="unproven", reason=reason, before=proven[0].run)
    return Published(
        url=pull.url, number=pull.number, branch=branch, draft=False, verdict=verdict, ci_state=ci.state
    )


def render_config(entries: tuple[ConfiguredSuite, ...]) -> str:
    """Returns the text of `.github/patchwright.toml` for these test commands."""
    text = render("replies/onboarding.toml.j2", entries=entries)
    is_single = len(entries) == 1 and not entries[0].directory
    expected = RepoConfig(test_command=entries[0].command) if is_single else RepoConfig(tests=entries)
    parsed = parse_repo_config(text)
    assert not parsed.problems and parsed.config == expected, "the rendered file has another configuration"
    return text


def render_pull_body(
    tried: tuple[TriedCommand, ...],
    left_out: tuple[Suite, ...],
    base_sha: str,
    settings: Settings,
    environment: EnvironmentPrepared | None = None,
    ci: str = "",
) -> str:
    """Renders the description of the pull request. `ci` says why continuous integration does not start."""
    return render_reply(
        "onboarding_pull.md.j2",
        path=REPO_CONFIG_PATH,
        proven=tuple(one for one in tried if one.is_proven),
        failed=tuple(one for one in tried if not one.is_proven),
        left_out=left_out,
        base_sha=base_sha,
        environment=environment,
        settings=settings,
        ci=ci,
    )


async def _create_commit(
    job: Job,
    text: str,
    workspace: Workspace,
    log: RunLog,
    deps: RunDependencies,
    forge: Forge,
    ci: CiHold,
) -> str:
    """Commits `.github/patchwright.toml` with this text to the local repository. The commit message does not
    name the run, so that failing checks of this commit start no repair.
    """
    bot_user, server = await forge.get_bot_user(job.repo), deps.settings.github_server_url
    requester = "{} <{}>".format(*commit_author(job.requester, server)) if job.requester else ""
    message = render("replies/commit_onboarding.txt.j2", title=TITLE, path=REPO_CONFIG_PATH, author=requester)
    return await workspace.commit(
        add_file(Patch(base_sha=workspace.base, diff=b""), REPO_CONFIG_PATH, text),
        ci.mark_message(message),
        author=commit_author(bot_user, server) if bot_user else DEFAULT_AUTHOR,
        when=log.trajectory.entries[0].timestamp,  # A fixed time makes the commit id reproducible.
    )


def render_comment(result: OnboardingResult, **values: object) -> str:
    """Renders the comment that ends the job. `values` are the template's values for this result."""
    defaults = {"pull": None, "tried": (), "environment": None, "branch": "", "detail": "", "advice": ""}
    return render_reply(
        "onboarding.md.j2", result=result, path=REPO_CONFIG_PATH, **(defaults | values)
    ).strip()


async def _report(
    job: Job, forge: Forge, result: OnboardingResult, *, branch: str | None = None, **values: object
) -> Reported:
    """Posts why the job opened no pull request."""
    text = render_comment(result, branch=branch or "", **values)
    url = await post_comment(job, forge, text)
    pushed = branch if result == "not_opened" else None
    return Reported(url=url, branch=pushed, reason=text)
