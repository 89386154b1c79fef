"""Reads check runs, check suites, commit statuses, annotations and job logs of a commit from GitHub."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from patchwright.bot.github.actions_logs import ActionsLogs
from patchwright.bot.github.rest import PER_PAGE, RestClient, repo_path
from patchwright.bot.github.schemas import Account, AppResponse, GitHubResponse
from patchwright.bot.github.valid_entries import ValidEntries
from patchwright.resolver.checks import Check, PullCommit
from patchwright.resolver.ci.log_excerpt import MAX_EXCERPT
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import Forbidden, NotFound

ACTIONS_APP = "github-actions"
"""The slug of the GitHub App that creates the check runs of GitHub Actions. Each of these check runs represents
one workflow job, and has the same id as the job.
"""
OWN_CHECK_NAME = "patchwright"
"""The name of the check run that reports Patchwright's own run."""
COMMIT_STATUS = "commit status"
STATE_BY_STATUS: dict[str, Literal["running", "passed", "failed"]] = {
    "pending": "running", "success": "passed", "failure": "failed",
}  # fmt: skip
"""Maps the state of a commit status to a check state. The status `error` is not mapped, because it does not
show whether the code is correct.
"""
MAX_ANNOTATIONS = 50
STATE_BY_CONCLUSION: dict[str, Literal["passed", "failed"]] = {
    "success": "passed", "neutral": "passed", "skipped": "passed", "failure": "failed",
}  # fmt: skip
"""Maps the conclusion of a check run to a check state. The conclusions cancelled, timed_out, startup_failure,
stale and action_required are not mapped, because they do not show whether the code is correct.
"""


class _CheckOutput(GitHubResponse):
    title: str | None = None
    summary: str | None = None
    text: str | None = None


class _CheckRun(GitHubResponse):
    id: int
    name: str
    status: str
    conclusion: str | None = None
    completed_at: datetime | None = None
    html_url: str | None = None
    app: AppResponse | None = None
    output: _CheckOutput = _CheckOutput()


class _CheckRuns(GitHubResponse):
    check_runs: ValidEntries[_CheckRun]


class _CheckSuite(GitHubResponse):
    id: int
    status: str | None = None
    app: AppResponse | None = None


class _CheckSuites(GitHubResponse):
    check_suites: ValidEntries[_CheckSuite]


class _CommitStatus(GitHubResponse):
    id: int
    context: str
    state: str
    description: str | None = None
    updated_at: datetime | None = None


class _CommitStatuses(GitHubResponse):
    statuses: ValidEntries[_CommitStatus]


class _JobStep(GitHubResponse):
    name: str
    conclusion: str | None = None


class _WorkflowJob(GitHubResponse):
    steps: ValidEntries[_JobStep] = ()


class _Annotation(GitHubResponse):
    path: str
    start_line: int | None = None
    annotation_level: str | None = None
    title: str | None = None
    message: str | None = None


class _CommitMessage(GitHubResponse):
    message: str


class _PullCommit(GitHubResponse):
    sha: str
    commit: _CommitMessage
    author: Account | None = None


class CheckReader:
    """Reads the checks of commits, and the commits of pull requests, from GitHub."""

    def __init__(
        self,
        rest: RestClient,
        api_url: str,
        ca_bundle: Path | None,
        get_identity: Callable[[Repo], Awaitable[Account | None]],
    ) -> None:
        self._rest = rest
        self._logs = ActionsLogs(api_url, ca_bundle)
        self._get_identity = get_identity

    async def list_checks(self, repo: Repo, commit: str) -> tuple[Check, ...]:
        """Returns all checks of a commit except Patchwright's own. Implements `Forge.list_checks`."""
        commit_path = (*repo_path(repo), "commits", commit)
        own_account = await self._get_identity(repo)
        own_slug = own_account.login.removesuffix("[bot]") if own_account else OWN_CHECK_NAME
        checks: list[Check] = []
        async for page in self._rest.iter_pages(_CheckRuns, repo, *commit_path, "check-runs"):
            for check_run in page.check_runs:
                app_slug = check_run.app.slug if check_run.app else ""
                if OWN_CHECK_NAME not in (app_slug, check_run.name) and (
                    app_slug != own_slug or own_slug == ACTIONS_APP
                ):
                    checks.append(_make_check(check_run, app_slug))
        async for suites in self._rest.iter_pages(_CheckSuites, repo, *commit_path, "check-suites"):
            checks += (
                # A workflow job has no check run until it starts. So the suite of an unfinished workflow
                # counts as a running check.
                Check(id=suite.id, name="a workflow", app=ACTIONS_APP, state="running", conclusion="")
                for suite in suites.check_suites
                if suite.app and suite.app.slug == ACTIONS_APP and suite.status not in ("completed", None)
            )
        return (*checks, *await self._fetch_statuses(repo, commit_path))

    async def _fetch_statuses(self, repo: Repo, commit_path: tuple[str, ...]) -> tuple[Check, ...]:
        """Returns the commit statuses, or () if the token may not read them.

        Older services create commit statuses instead of check runs.
        """
        try:
            response = await self._rest.get(
                _CommitStatuses, repo, *commit_path, "status", per_page=str(PER_PAGE)
            )
        except (NotFound, Forbidden):
            return ()
        return tuple(
            Check(
                id=status.id,
                name=status.context,
                app=COMMIT_STATUS,
                state=STATE_BY_STATUS.get(status.state, "broken"),
                conclusion="" if status.state == "pending" else status.state,
                completed_at=None if status.state == "pending" else status.updated_at,
                output=(status.description or "")[:MAX_EXCERPT],
            )
            for status in response.statuses
        )

    async def get_check_log(self, repo: Repo, check: Check) -> str:
        """Returns the text that shows why a check failed. Implements `Forge.get_check_log`."""
        note = ""
        if check.app == ACTIONS_APP:
            try:
                return await self._fetch_job_log(repo, check)
            except (NotFound, Forbidden) as exc:
                note = f"[log not available: {exc}]"
        parts = [part async for part in self._fetch_reports(repo, check)]
        return "\n\n".join(filter(None, (*parts, note)))[:MAX_EXCERPT]

    async def _fetch_job_log(self, repo: Repo, check: Check) -> str:
        job_path = (*repo_path(repo), "actions", "jobs", str(check.id))
        job = await self._rest.get(_WorkflowJob, repo, *job_path)
        steps = ", ".join(step.name[:100] for step in job.steps if step.conclusion == "failure")
        log = await self._logs.fetch(job_path, await self._rest.get_credentials(repo))
        return f"[failed step: {steps}]\n\n{log}" if steps else log

    async def _fetch_reports(self, repo: Repo, check: Check) -> AsyncIterator[str]:
        yield check.output
        if check.app == COMMIT_STATUS:
            return
        path = (*repo_path(repo), "check-runs", str(check.id), "annotations")
        try:
            annotations = await self._rest.get(list[_Annotation], repo, *path, per_page=str(MAX_ANNOTATIONS))
        except (NotFound, Forbidden):
            return
        yield "\n".join(_format_annotations(annotations))

    async def list_commits(self, repo: Repo, number: int) -> tuple[PullCommit, ...]:
        """Returns the commits of a pull request. Implements `Forge.list_commits`."""
        commits = await self._rest.get_all(
            _PullCommit, repo, *repo_path(repo), "pulls", str(number), "commits"
        )
        return tuple(
            PullCommit(
                sha=commit.sha,
                author_id=commit.author.id if commit.author else None,
                message=commit.commit.message,
            )
            for commit in commits
        )


def _make_check(check_run: _CheckRun, app_slug: str) -> Check:
    conclusion = check_run.conclusion or ""
    running = check_run.status != "completed"
    report = check_run.output
    texts = (part for part in (report.title, report.summary, report.text) if part)
    return Check(
        id=check_run.id,
        name=check_run.name,
        app=app_slug,
        state="running" if running else STATE_BY_CONCLUSION.get(conclusion, "broken"),
        conclusion="" if running else conclusion,
        completed_at=check_run.completed_at,
        output="\n\n".join(texts)[:MAX_EXCERPT],
        url=check_run.html_url or "",
    )


def _format_annotations(annotations: Sequence[_Annotation]) -> Iterator[str]:
    for annotation in annotations:
        location = f"{annotation.path}:{annotation.start_line}" if annotation.start_line else annotation.path
        text = ": ".join(filter(None, (annotation.title, annotation.message)))
        yield f"{location}: {annotation.annotation_level or 'note'}: {text[:1_000]}"
