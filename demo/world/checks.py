"""Check runs in the stand-in: an app says what it found of a commit, and may change what it has said."""

from typing import get_args

from demo.world.access import Need, Refusal
from demo.world.call import Answer, Call, found
from demo.world.checked import Check, Status
from demo.world.operations import R, operation
from demo.world.shapes import Json, Shapes, node_id
from demo.world.state import Repository, State, Token, User

CHECK = Need(role="write", permission="checks")


def check(
    state: State, repo: Repository, sha: str, name: str, author: User, conclusion: str | None = None
) -> Check:
    """A check run on this commit; it has ended if it has a conclusion."""
    now = state.stamp()
    made = Check(
        id=state.next_id(), sha=sha, author=author, name=name, conclusion=conclusion, started=now,
        status="completed" if conclusion else "in_progress", completed=now if conclusion else None,
    )  # fmt: skip
    repo.checks.append(made)
    return made


def check_shape(state: State, shapes: Shapes, repo: Repository, one: Check) -> Json:
    url = f"{shapes.place(repo)}/check-runs/{one.id}"
    page = f"{shapes.web}/{repo.full_name}/runs/{one.id}"
    app = next((app for app in state.apps if app.bot is one.author), None)
    return {
        "id": one.id, "node_id": node_id("CheckRun", one.id), "head_sha": one.sha, "name": one.name,
        "url": url, "html_url": page, "details_url": one.details_url or page, "status": one.status,
        "conclusion": one.conclusion, "started_at": one.started, "completed_at": one.completed,
        "external_id": one.external_id or "", "check_suite": None, "pull_requests": [],
        "app": shapes.app(app) if app else None,
        "output": {
            **{part: one.output.get(part) for part in ("title", "summary", "text")},
            "annotations_count": len(one.annotations), "annotations_url": f"{url}/annotations",
        },
    }  # fmt: skip


@operation("GET", f"{R}/commits/{{ref}}/check-runs")
def checks(call: Call) -> Answer:
    repo, query = call.repo, call.query
    may = call.actor.permissions if isinstance(call.actor, Token) else None
    if repo.private and may is not None and "checks" not in may:
        raise Refusal(403, "Resource not accessible by integration")
    sha = found(repo.bare.meant(call.path["ref"]))
    shown = [one for one in reversed(repo.checks) if one.sha == sha]
    if "check_name" in query:
        shown = [one for one in shown if one.name == query["check_name"]]
    if query.get("filter", "latest") == "latest":  # of each app and name
        shown = list({(one.author.id, one.name): one for one in reversed(shown)}.values())
    page = call.page([check_shape(call.state, call.shapes, repo, one) for one in shown])
    page.body = {"total_count": len(shown), "check_runs": page.body}
    return page


@operation("POST", f"{R}/check-runs")
def make(call: Call) -> Answer:
    author, repo = _app(call), call.repo
    sha = repo.bare.resolve(str(call.body.get("head_sha")))
    if sha is None:
        raise Refusal(422, f"No commit found for SHA: {call.body.get('head_sha')}")
    one = check(call.state, repo, sha, str(call.body.get("name")), author)
    _change(call, one)
    return Answer(check_shape(call.state, call.shapes, repo, one), 201)


@operation("PATCH", f"{R}/check-runs/{{check_run_id}}")
def change(call: Call) -> Answer:
    author, repo, wanted = _app(call), call.repo, call.path["check_run_id"]
    one = found(next((one for one in repo.checks if str(one.id) == wanted), None))
    if one.author is not author:
        raise Refusal(
            403, "Invalid app_id - check run can only be modified by the GitHub App that created it."
        )
    _change(call, one)
    return Answer(check_shape(call.state, call.shapes, repo, one))


def _app(call: Call) -> User:
    author = call.allow(CHECK)
    if isinstance(call.actor, Token) and call.actor.permissions is None:
        raise Refusal(403, "You must authenticate via a GitHub App.")
    return author


def _change(call: Call, one: Check) -> None:
    body, output = call.body, call.body.get("output")
    for part, text in output.items() if isinstance(output, dict) else ():
        one.output[part] = str(text)
    one.external_id = str(body["external_id"]) if "external_id" in body else one.external_id
    one.details_url = str(body["details_url"]) if "details_url" in body else one.details_url
    one.status = next((each for each in get_args(Status) if each == body.get("status")), one.status)
    if "conclusion" in body:
        one.conclusion, one.status, one.completed = str(body["conclusion"]), "completed", call.state.stamp()
