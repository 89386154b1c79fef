"""What GitHub knows of how programs found a commit: check runs, suites, annotations, logs of jobs."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from bot.ci.logs import JobLogs
from bot.github.answers import Account, Answer, AppAnswer
from bot.github.rest import PER_PAGE, Rest, path_of
from resolver.ci.check_log import MAX_LOG
from resolver.ci.checks import Check, Pushed
from resolver.domain import Repo
from resolver.errors import Forbidden, NotFound

ACTIONS = "github-actions"
"""The App that workflows speak through: its check runs are jobs, with the same ids."""
OWN = "patchwright"
"""Name of the check run that says what a run of ours found: no finding of anybody else's."""
STATUS = "commit status"
BY_STATUS: dict[str, Literal["running", "passed", "failed"]] = {
    "pending": "running", "success": "passed", "failure": "failed",
}  # fmt: skip
"""By state; `error` says nothing of the code."""
MOST_ANNOTATIONS = 50
STATES: dict[str, Literal["passed", "failed"]] = {
    "success": "passed", "neutral": "passed", "skipped": "passed", "failure": "failed",
}  # fmt: skip
"""By conclusion; all others (cancelled, timed_out, startup_failure, stale, action_required) say nothing of the code."""


class _Report(Answer):
    title: str | None = None
    summary: str | None = None
    text: str | None = None


class _Run(Answer):
    id: int
    name: str
    status: str
    conclusion: str | None = None
    completed_at: datetime | None = None
    html_url: str | None = None
    app: AppAnswer | None = None
    output: _Report = _Report()


class _Runs(Answer):
    check_runs: tuple[_Run, ...]


class _Suite(Answer):
    id: int
    status: str | None = None
    app: AppAnswer | None = None


class _Suites(Answer):
    check_suites: tuple[_Suite, ...]


class _Status(Answer):
    id: int
    context: str
    state: str
    description: str | None = None
    updated_at: datetime | None = None


class _Statuses(Answer):
    statuses: tuple[_Status, ...]


class _Step(Answer):
    name: str
    conclusion: str | None = None


class _Job(Answer):
    steps: tuple[_Step, ...] = ()


class _Annotation(Answer):
    path: str
    start_line: int | None = None
    annotation_level: str | None = None
    title: str | None = None
    message: str | None = None


class _Message(Answer):
    message: str


class _Commit(Answer):
    sha: str
    commit: _Message
    author: Account | None = None


class Findings:
    """Reads them with the rights that we have on a repository."""

    def __init__(
        self,
        rest: Rest,
        api_url: str,
        ca_bundle: Path | None,
        ourselves: Callable[[Repo], Awaitable[Account | None]],
    ) -> None:
        self._rest = rest
        self._logs = JobLogs(api_url, ca_bundle)
        self._ourselves = ourselves

    async def of(self, repo: Repo, commit: str) -> tuple[Check, ...]:
        """See Forge."""
        place = (*path_of(repo), "commits", commit)
        us = await self._ourselves(repo)
        own = us.login.removesuffix("[bot]") if us else OWN
        found: list[Check] = []
        async for page in self._rest.pages(_Runs, repo, *place, "check-runs"):
            for one in page.check_runs:
                by = one.app.slug if one.app else ""
                if OWN not in (by, one.name) and (by != own or own == ACTIONS):
                    found.append(_check(one, by))
        async for suites in self._rest.pages(_Suites, repo, *place, "check-suites"):
            found += (
                # A workflow makes the check runs of its jobs one after the other, as they come to pass.
                Check(id=suite.id, name="a workflow", by=ACTIONS, state="running", how="")
                for suite in suites.check_suites
                if suite.app and suite.app.slug == ACTIONS and suite.status not in ("completed", None)
            )
        return (*found, *await self._statuses(repo, place))

    async def _statuses(self, repo: Repo, place: tuple[str, ...]) -> tuple[Check, ...]:
        """What older services set in place of checks; none where we may not read them."""
        try:
            listed = await self._rest.get(_Statuses, repo, *place, "status", per_page=str(PER_PAGE))
        except (NotFound, Forbidden):
            return ()
        return tuple(
            Check(
                id=one.id,
                name=one.context,
                by=STATUS,
                state=BY_STATUS.get(one.state, "broken"),
                how="" if one.state == "pending" else one.state,
                ended=None if one.state == "pending" else one.updated_at,
                said=(one.description or "")[:MAX_LOG],
            )
            for one in listed.statuses
        )

    async def log(self, repo: Repo, check: Check) -> str:
        """See Forge."""
        why = ""
        if check.by == ACTIONS:
            try:
                return await self._of_job(repo, check)
            except (NotFound, Forbidden) as exc:
                why = f"[its log could not be read: {exc}]"
        parts = [part async for part in self._said(repo, check)]
        return "\n\n".join(filter(None, (*parts, why)))[:MAX_LOG]

    async def _of_job(self, repo: Repo, check: Check) -> str:
        place = (*path_of(repo), "actions", "jobs", str(check.id))
        job = await self._rest.get(_Job, repo, *place)
        steps = ", ".join(step.name[:100] for step in job.steps if step.conclusion == "failure")
        log = await self._logs.fetch(place, await self._rest.credentials(repo))
        return f"[failed in the step: {steps}]\n\n{log}" if steps else log

    async def _said(self, repo: Repo, check: Check) -> AsyncIterator[str]:
        yield check.said
        if check.by == STATUS:
            return
        place = (*path_of(repo), "check-runs", str(check.id), "annotations")
        try:
            noted = await self._rest.get(list[_Annotation], repo, *place, per_page=str(MOST_ANNOTATIONS))
        except (NotFound, Forbidden):
            return
        yield "\n".join(_lines(noted))

    async def commits(self, repo: Repo, number: int) -> tuple[Pushed, ...]:
        """See Forge."""
        listed = await self._rest.get_all(_Commit, repo, *path_of(repo), "pulls", str(number), "commits")
        return tuple(
            Pushed(sha=one.sha, author=one.author.id if one.author else None, message=one.commit.message)
            for one in listed
        )


def _check(one: _Run, by: str) -> Check:
    how = one.conclusion or ""
    running = one.status != "completed"
    report = one.output
    said = (part for part in (report.title, report.summary, report.text) if part)
    return Check(
        id=one.id,
        name=one.name,
        by=by,
        state="running" if running else STATES.get(how, "broken"),
        how="" if running else how,
        ended=one.completed_at,
        said="\n\n".join(said)[:MAX_LOG],
        place=one.html_url or "",
    )


def _lines(noted: Sequence[_Annotation]) -> Iterator[str]:
    for one in noted:
        where = f"{one.path}:{one.start_line}" if one.start_line else one.path
        said = ": ".join(filter(None, (one.title, one.message)))
        yield f"{where}: {one.annotation_level or 'note'}: {said[:1_000]}"
