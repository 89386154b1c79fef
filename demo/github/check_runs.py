"""The API of check runs: an App reports its result for a commit and may update that report."""

from typing import get_args

from patchwright.demo.github.auth import ApiError, RequiredAccess
from patchwright.demo.github.check_models import CheckRun, Status
from patchwright.demo.github.operations import REPO_PATH, operation
from patchwright.demo.github.request_context import RequestContext, RestResponse, require_found
from patchwright.demo.github.serializers import Json, Serializer, node_id
from patchwright.demo.github.state import GitHubState, Repository, Token, User

CHECKS_ACCESS = RequiredAccess(role="write", permission="checks")


def add_check_run(
    state: GitHubState, repo: Repository, sha: str, name: str, author: User, conclusion: str | None = None
) -> CheckRun:
    """Adds a check run on this commit. If `conclusion` is given, the check run is already completed."""
    now = state.next_timestamp()
    made = CheckRun(
        id=state.next_id(), sha=sha, author=author, name=name, conclusion=conclusion, started=now,
        status="completed" if conclusion else "in_progress", completed=now if conclusion else None,
    )  # fmt: skip
    repo.checks.append(made)
    return made


def check_run_json(state: GitHubState, serializer: Serializer, repo: Repository, check: CheckRun) -> Json:
    url = f"{serializer.repository_url(repo)}/check-runs/{check.id}"
    page = f"{serializer.web_url}/{repo.full_name}/runs/{check.id}"
    app = next((app for app in state.apps if app.bot is check.author), None)
    return {
        "id": check.id, "node_id": node_id("CheckRun", check.id), "head_sha": check.sha, "name": check.name,
        "url": url, "html_url": page, "details_url": check.details_url or page, "status": check.status,
        "conclusion": check.conclusion, "started_at": check.started, "completed_at": check.completed,
        "external_id": check.external_id or "", "check_suite": None, "pull_requests": [],
        "app": serializer.app(app) if app else None,
        "output": {
            **{part: check.output.get(part) for part in ("title", "summary", "text")},
            "annotations_count": len(check.annotations), "annotations_url": f"{url}/annotations",
        },
    }  # fmt: skip


@operation("GET", f"{REPO_PATH}/commits/{{ref}}/check-runs")
def list_check_runs(call: RequestContext) -> RestResponse:
    repo, query = call.repo, call.query
    may = call.actor.permissions if isinstance(call.actor, Token) else None
    if repo.private and may is not None and "checks" not in may:
        raise ApiError(403, "Resource not accessible by integration")
    sha = require_found(repo.bare.resolve_ref(call.path["ref"]))
    shown = [one for one in reversed(repo.checks) if one.sha == sha]
    if "check_name" in query:
        shown = [one for one in shown if one.name == query["check_name"]]
    if query.get("filter", "latest") == "latest":  # the latest check run of each App and name
        shown = list({(one.author.id, one.name): one for one in reversed(shown)}.values())
    page = call.paginate([check_run_json(call.state, call.serializer, repo, one) for one in shown])
    page.body = {"total_count": len(shown), "check_runs": page.body}
    return page


@operation("POST", f"{REPO_PATH}/check-runs")
def create_check_run(call: RequestContext) -> RestResponse:
    author, repo = _require_app(call), call.repo
    sha = repo.bare.resolve(str(call.body.get("head_sha")))
    if sha is None:
        raise ApiError(422, f"No commit found for SHA: {call.body.get('head_sha')}")
    one = add_check_run(call.state, repo, sha, str(call.body.get("name")), author)
    _apply_changes(call, one)
    return RestResponse(check_run_json(call.state, call.serializer, repo, one), 201)


@operation("PATCH", f"{REPO_PATH}/check-runs/{{check_run_id}}")
def update_check_run(call: RequestContext) -> RestResponse:
    author, repo, wanted = _require_app(call), call.repo, call.path["check_run_id"]
    one = require_found(next((one for one in repo.checks if str(one.id) == wanted), None))
    if one.author is not author:
        raise ApiError(
            403, "Invalid app_id - check run can only be modified by the GitHub App that created it."
        )
    _apply_changes(call, one)
    return RestResponse(check_run_json(call.state, call.serializer, repo, one))


def _require_app(call: RequestContext) -> User:
    author = call.require_access(CHECKS_ACCESS)
    if isinstance(call.actor, Token) and call.actor.permissions is None:
        raise ApiError(403, "You must authenticate via a GitHub App.")
    return author


def _apply_changes(call: RequestContext, check: CheckRun) -> None:
    body, output = call.body, call.body.get("output")
    for part, text in output.items() if isinstance(output, dict) else ():
        check.output[part] = str(text)
    check.external_id = str(body["external_id"]) if "external_id" in body else check.external_id
    check.details_url = str(body["details_url"]) if "details_url" in body else check.details_url
    check.status = next((each for each in get_args(Status) if each == body.get("status")), check.status)
    if "conclusion" in body:
        check.conclusion, check.status, check.completed = (
            str(body["conclusion"]),
            "completed",
            call.state.next_timestamp(),
        )
