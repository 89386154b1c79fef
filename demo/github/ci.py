"""Continuous integration in the fake server: checks and statuses of commits, their jobs and logs."""

from collections.abc import Mapping, Sequence
from typing import Literal

from patchwright.demo.github.app_models import GitHubApp
from patchwright.demo.github.auth import ApiError
from patchwright.demo.github.check_models import CheckRun, CommitStatus
from patchwright.demo.github.check_runs import add_check_run, check_run_json
from patchwright.demo.github.operations import REPO_PATH, operation
from patchwright.demo.github.request_context import RequestContext, RestResponse, WebhookEvent, require_found
from patchwright.demo.github.serializers import Json, Serializer, node_id
from patchwright.demo.github.state import (
    APP_PERMISSIONS,
    FakePullRequest,
    GitHubState,
    Repository,
    Token,
    User,
)
from patchwright.demo.github.webhook_models import Delivery
from patchwright.demo.github.webhooks import WebhookSender

ACTIONS_SLUG = "github-actions"
LOG_STORAGE_PATH = "/storage/logs"
StoredFiles = dict[str, tuple[int, dict[str, str], bytes]]


class FakeCI:
    """Adds check runs and commit statuses, and delivers their webhooks."""

    def __init__(
        self, state: GitHubState, serializer: Serializer, webhooks: WebhookSender, files: StoredFiles
    ) -> None:
        """`files` contains the responses for URLs that need no token, such as the URLs of job logs."""
        self._state = state
        self._serializer = serializer
        self._webhooks = webhooks
        self._files = files

    def add_check(
        self,
        repo: Repository,
        commit: str,
        name: str,
        conclusion: str | None = "failure",
        *,
        log: bytes | None = None,
        step: str = "Run tests",
        by: str = ACTIONS_SLUG,
        output: Mapping[str, str] | None = None,
        annotations: Sequence[tuple[str, int, str]] = (),
    ) -> CheckRun:
        """Adds a check run to a branch or commit. No webhook is delivered.

        `conclusion` is None if the check is still running. `log` is the output of the check's job; None
        means that there is no log. `step` is the step that failed. Each annotation has a path, a line and a message.
        """
        sha = repo.bare.branch_sha(commit) or commit
        made = add_check_run(self._state, repo, sha, name, self._find_or_create_app(by).bot, conclusion)
        made.step, made.has_log = step, log is not None
        made.output = dict(output or {})
        made.annotations = list(annotations)
        if log is not None:
            self._files[f"{LOG_STORAGE_PATH}/{made.id}"] = (200, {"content-type": "text/plain"}, log)
        return made

    def grant_access(self, slug: str) -> None:
        """Allows an App to read checks, statuses and job logs from now on."""
        self._find_or_create_app(slug).permissions |= {
            "checks": "write",
            "actions": "read",
            "statuses": "read",
        }

    def complete_check(self, check: CheckRun, conclusion: str) -> None:
        check.conclusion, check.status, check.completed = (
            conclusion,
            "completed",
            self._state.next_timestamp(),
        )

    def add_status(
        self,
        repo: Repository,
        commit: str,
        context: str,
        state: Literal["pending", "success", "failure", "error"] = "failure",
        description: str = "",
    ) -> CommitStatus:
        """Adds a commit status to a branch or commit. No webhook is delivered."""
        made = CommitStatus(
            id=self._state.next_id(), sha=repo.bare.branch_sha(commit) or commit, context=context, state=state,
            description=description, updated=self._state.next_timestamp(),
        )  # fmt: skip
        repo.statuses.append(made)
        return made

    async def deliver_status(self, pull: FakePullRequest, status: CommitStatus) -> Delivery:
        """Delivers the webhook of a commit status."""
        branch: Json = {"name": pull.head_ref, "commit": {"sha": status.sha}, "protected": False}
        details: Json = {
            "id": status.id, "sha": status.sha, "context": status.context, "state": status.state, "branches": [branch],
            "description": status.description,
        }  # fmt: skip
        return await self._webhooks.deliver(WebhookEvent("status", "", pull, pull.author, details))

    async def deliver_check(
        self, pull: FakePullRequest, check: CheckRun, event: str = "check_run"
    ) -> Delivery:
        """Delivers the webhook of a completed check run, or of the check suite or workflow run that contains
        it.
        """
        app, sha = self._find_app(check), check.sha
        suite: Json = {
            "id": check.id, "node_id": node_id("CheckSuite", check.id), "head_branch": pull.head_ref, "head_sha": sha,
            "status": "completed", "conclusion": check.conclusion, "pull_requests": [],
        }  # fmt: skip
        details: dict[str, Json] = {
            "check_run": {
                "check_run": {
                    **check_run_json(self._state, self._serializer, pull.repo, check), "check_suite": suite,
                }
            },
            "check_suite": {"check_suite": suite},
            "workflow_run": {"workflow_run": {**suite, "name": "CI", "event": "pull_request"}},
        }  # fmt: skip
        return await self._webhooks.deliver(WebhookEvent(event, "completed", pull, app.bot, details[event]))

    def _find_or_create_app(self, slug: str) -> GitHubApp:
        """Returns the App with this name, or creates it without a key."""
        known = next((app for app in self._state.apps if app.slug == slug), None)
        if known is None:
            known = GitHubApp(
                id=self._state.next_id(), slug=slug, bot=self._state.find_or_create_user(f"{slug}[bot]", "Bot"),
                private_key_pem="", public_key_pem="", created=self._state.next_timestamp(),
                permissions=dict(APP_PERMISSIONS),
            )  # fmt: skip
            self._state.apps.append(known)
        return known

    def _find_app(self, check: CheckRun) -> GitHubApp:
        return next(app for app in self._state.apps if app.bot is check.author)


def _require_permission(call: RequestContext, permission: str) -> None:
    may = call.actor.permissions if isinstance(call.actor, Token) else None
    if may is not None and permission not in may:
        raise ApiError(403, "Resource not accessible by integration")


@operation("GET", f"{REPO_PATH}/commits/{{ref}}/check-suites")
def list_check_suites(call: RequestContext) -> RestResponse:
    """Lists one check suite for each App that has check runs on the commit."""
    _require_permission(call, "checks")
    repo = call.repo
    sha = require_found(repo.bare.resolve_ref(call.path["ref"]))
    by: dict[int, list[CheckRun]] = {}
    for one in repo.checks:
        if one.sha == sha:
            by.setdefault(one.author.id, []).append(one)
    shown = [_check_suite_json(call, repo, sha, checks) for checks in by.values()]
    page = call.paginate(shown)
    page.body = {"total_count": len(shown), "check_suites": page.body}
    return page


def _check_suite_json(call: RequestContext, repo: Repository, sha: str, checks: list[CheckRun]) -> Json:
    first, running = checks[0], any(one.status != "completed" for one in checks)
    app = next(app for app in call.state.apps if app.bot is first.author)
    url = f"{call.serializer.repository_url(repo)}/check-suites/{first.id}"
    worst = next((one.conclusion for one in checks if one.conclusion != "success"), "success")
    head = call.serializer.commit(repo, sha)["commit"]
    assert isinstance(head, dict)
    return {
        "id": first.id, "node_id": node_id("CheckSuite", first.id), "head_branch": None, "head_sha": sha,
        "status": "in_progress" if running else "completed", "conclusion": None if running else worst,
        "url": url, "before": None, "after": sha, "created_at": first.started, "updated_at": first.started,
        "app": call.serializer.app(app), "repository": call.serializer.repository(repo), "pull_requests": [],
        "latest_check_runs_count": len(checks), "check_runs_url": f"{url}/check-runs",
        "head_commit": {
            "id": sha, "tree_id": head["tree"]["sha"], "message": head["message"],
            "timestamp": head["committer"]["date"],
            **{who: {key: head[who][key] for key in ("name", "email")} for who in ("author", "committer")},
        },
    }  # fmt: skip


@operation("GET", f"{REPO_PATH}/commits/{{ref}}/status")
def get_combined_status(call: RequestContext) -> RestResponse:
    _require_permission(call, "statuses")
    repo = call.repo
    sha = require_found(repo.bare.resolve_ref(call.path["ref"]))
    latest = {one.context: one for one in repo.statuses if one.sha == sha}
    url = f"{call.serializer.repository_url(repo)}/commits/{sha}/status"
    shown = [
        {
            "id": one.id, "node_id": node_id("Status", one.id), "state": one.state, "context": one.context,
            "description": one.description, "target_url": None, "avatar_url": None, "url": url,
            "created_at": one.updated, "updated_at": one.updated,
        }
        for one in latest.values()
    ]  # fmt: skip
    states = {one.state for one in latest.values()}
    worst = next((state for state in ("error", "failure", "pending") if state in states), "success")
    shape: Json = {
        "state": "failure" if worst == "error" else worst, "sha": sha, "total_count": len(shown), "statuses": shown,
        "repository": call.serializer.repository(repo), "commit_url": url, "url": url,
    }  # fmt: skip
    return RestResponse(shape)


@operation("GET", f"{REPO_PATH}/check-runs/{{check_run_id}}/annotations")
def list_annotations(call: RequestContext) -> RestResponse:
    _require_permission(call, "checks")
    one = _find_check(call, call.path["check_run_id"])
    shown: list[Json] = [
        {
            "path": path, "start_line": line, "end_line": line, "start_column": None, "end_column": None,
            "annotation_level": "failure", "title": None, "message": message, "raw_details": None,
            "blob_href": f"{call.serializer.web_url}/{call.repo.full_name}/blob/{one.sha}/{path}",
        }
        for path, line, message in one.annotations
    ]  # fmt: skip
    return call.paginate(shown)


@operation("GET", f"{REPO_PATH}/actions/jobs/{{job_id}}")
def get_job(call: RequestContext) -> RestResponse:
    _require_permission(call, "actions")
    one, repo = _find_check(call, call.path["job_id"]), call.repo
    url, run = (
        f"{call.serializer.repository_url(repo)}/actions/jobs/{one.id}",
        f"{call.serializer.repository_url(repo)}/actions/runs/1",
    )
    steps = ((1, "Set up job", "success"), (2, one.step, one.conclusion), (3, "Complete job", "success"))
    shape: Json = {
        "id": one.id, "node_id": node_id("Job", one.id), "run_id": 1, "run_url": run, "head_sha": one.sha,
        "workflow_name": "CI", "head_branch": None, "name": one.name, "url": url, "html_url": url,
        "status": one.status, "conclusion": one.conclusion, "created_at": one.started,
        "started_at": one.started, "completed_at": one.completed, "labels": [], "runner_id": None,
        "runner_name": None, "runner_group_id": None, "runner_group_name": None,
        "check_run_url": f"{call.serializer.repository_url(repo)}/check-runs/{one.id}",
        "steps": [
            {"number": number, "name": name, "status": "completed", "conclusion": conclusion}
            for number, name, conclusion in steps
        ],
    }  # fmt: skip
    return RestResponse(shape)


@operation("GET", f"{REPO_PATH}/actions/jobs/{{job_id}}/logs")
def get_job_log(call: RequestContext) -> RestResponse:
    """Redirects to the job's log on another host. Like GitHub's signed URLs, the log's URL needs no token."""
    _require_permission(call, "actions")
    one = _find_check(call, call.path["job_id"])
    if not one.has_log:
        raise ApiError(404, "Not Found")
    elsewhere = call.serializer.web_url.replace("127.0.0.1", "localhost")
    return RestResponse(None, 302, {"location": f"{elsewhere}{LOG_STORAGE_PATH}/{one.id}"})


def _find_check(call: RequestContext, id: str) -> CheckRun:
    return require_found(next((one for one in call.repo.checks if str(one.id) == id), None))


@operation("GET", f"{REPO_PATH}/pulls/{{pull_number}}/commits")
def list_pull_commits(call: RequestContext) -> RestResponse:
    """Lists the commits, oldest first. The GitHub accounts are found by the email addresses in the commits."""
    pull = call.find_pull()
    listed = pull.repo.bare.git("rev-list", "--reverse", f"{pull.base.sha}..{pull.head.sha}").decode().split()
    return call.paginate(
        [_add_accounts(call, call.serializer.commit(pull.repo, sha)) for sha in listed[:250]]
    )


def _add_accounts(call: RequestContext, commit: Json) -> Json:
    inner = commit["commit"]
    assert isinstance(inner, dict)
    for who in ("author", "committer"):
        number, plus, _ = str(inner[who]["email"]).partition("+")
        known: User | None = next((one for one in call.state.users if plus and str(one.id) == number), None)
        commit[who] = call.serializer.user(known) if known else None
    return commit
