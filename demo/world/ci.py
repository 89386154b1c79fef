"""Continuous integration in the stand-in: what programs find of commits, their jobs, and where the logs lie."""

from collections.abc import Mapping, Sequence
from typing import Literal

from demo.world.access import Refusal
from demo.world.call import Answer, Call, News, found
from demo.world.checked import Check, CommitStatus
from demo.world.checks import check, check_shape
from demo.world.hooks import Hooks
from demo.world.operations import R, operation
from demo.world.shapes import Json, Shapes, node_id
from demo.world.state import APP_PERMISSIONS, App, Pull, Repository, State, Token, User
from demo.world.told import Delivery

ACTIONS = "github-actions"
STORAGE = "/storage/logs"
Files = dict[str, tuple[int, dict[str, str], bytes]]


class CI:
    """What runs when somebody pushes, and tells how it ended."""

    def __init__(self, state: State, shapes: Shapes, hooks: Hooks, files: Files) -> None:
        """`files`: what lies behind addresses that need no token."""
        self._state = state
        self._shapes = shapes
        self._hooks = hooks
        self._files = files

    def check(
        self,
        repo: Repository,
        commit: str,
        name: str,
        conclusion: str | None = "failure",
        *,
        log: bytes | None = None,
        step: str = "Run tests",
        by: str = ACTIONS,
        output: Mapping[str, str] | None = None,
        annotations: Sequence[tuple[str, int, str]] = (),
    ) -> Check:
        """A program's finding of a branch or commit. No hook is told.

        `conclusion` None: it still runs. `log`: what its job printed; None: there is none. `step`: where it failed.
        `annotations`: path, line and message.
        """
        sha = repo.bare.sha(commit) or commit
        made = check(self._state, repo, sha, name, self._app(by).bot, conclusion)
        made.step, made.has_log = step, log is not None
        made.output = dict(output or {})
        made.annotations = list(annotations)
        if log is not None:
            self._files[f"{STORAGE}/{made.id}"] = (200, {"content-type": "text/plain"}, log)
        return made

    def grant(self, slug: str) -> None:
        """The app of this name may read what programs find, and what they print, from now on."""
        self._app(slug).permissions |= {"checks": "write", "actions": "read", "statuses": "read"}

    def end(self, one: Check, conclusion: str) -> None:
        one.conclusion, one.status, one.completed = conclusion, "completed", self._state.stamp()

    def status(
        self,
        repo: Repository,
        commit: str,
        context: str,
        state: Literal["pending", "success", "failure", "error"] = "failure",
        description: str = "",
    ) -> CommitStatus:
        """What an older service says of a branch or commit. No hook is told."""
        made = CommitStatus(
            id=self._state.next_id(), sha=repo.bare.sha(commit) or commit, context=context, state=state,
            description=description, updated=self._state.stamp(),
        )  # fmt: skip
        repo.statuses.append(made)
        return made

    async def tell_status(self, pull: Pull, one: CommitStatus) -> Delivery:
        """Webhooks tell of it."""
        branch: Json = {"name": pull.head_ref, "commit": {"sha": one.sha}, "protected": False}
        details: Json = {
            "id": one.id, "sha": one.sha, "context": one.context, "state": one.state, "branches": [branch],
            "description": one.description,
        }  # fmt: skip
        return await self._hooks.tell(News("status", "", pull, pull.author, details))

    async def tell(self, pull: Pull, one: Check, event: str = "check_run") -> Delivery:
        """Webhooks tell that it, or the suite or workflow that it belongs to, has ended."""
        app, sha = self._of(one), one.sha
        suite: Json = {
            "id": one.id, "node_id": node_id("CheckSuite", one.id), "head_branch": pull.head_ref, "head_sha": sha,
            "status": "completed", "conclusion": one.conclusion, "pull_requests": [],
        }  # fmt: skip
        details: dict[str, Json] = {
            "check_run": {
                "check_run": {
                    **check_shape(self._state, self._shapes, pull.repo, one), "check_suite": suite,
                }
            },
            "check_suite": {"check_suite": suite},
            "workflow_run": {"workflow_run": {**suite, "name": "CI", "event": "pull_request"}},
        }  # fmt: skip
        return await self._hooks.tell(News(event, "completed", pull, app.bot, details[event]))

    def _app(self, slug: str) -> App:
        """A program of this name; it has no key that anybody uses."""
        known = next((app for app in self._state.apps if app.slug == slug), None)
        if known is None:
            known = App(
                id=self._state.next_id(), slug=slug, bot=self._state.user(f"{slug}[bot]", "Bot"),
                private_key_pem="", public_key_pem="", created=self._state.stamp(),
                permissions=dict(APP_PERMISSIONS),
            )  # fmt: skip
            self._state.apps.append(known)
        return known

    def _of(self, one: Check) -> App:
        return next(app for app in self._state.apps if app.bot is one.author)


def _may_read(call: Call, permission: str) -> None:
    may = call.actor.permissions if isinstance(call.actor, Token) else None
    if may is not None and permission not in may:
        raise Refusal(403, "Resource not accessible by integration")


@operation("GET", f"{R}/commits/{{ref}}/check-suites")
def suites(call: Call) -> Answer:
    """One for all that a program says of a commit."""
    _may_read(call, "checks")
    repo = call.repo
    sha = found(repo.bare.meant(call.path["ref"]))
    by: dict[int, list[Check]] = {}
    for one in repo.checks:
        if one.sha == sha:
            by.setdefault(one.author.id, []).append(one)
    shown = [_suite(call, repo, sha, checks) for checks in by.values()]
    page = call.page(shown)
    page.body = {"total_count": len(shown), "check_suites": page.body}
    return page


def _suite(call: Call, repo: Repository, sha: str, checks: list[Check]) -> Json:
    first, running = checks[0], any(one.status != "completed" for one in checks)
    app = next(app for app in call.state.apps if app.bot is first.author)
    url = f"{call.shapes.place(repo)}/check-suites/{first.id}"
    worst = next((one.conclusion for one in checks if one.conclusion != "success"), "success")
    head = call.shapes.commit(repo, sha)["commit"]
    assert isinstance(head, dict)
    return {
        "id": first.id, "node_id": node_id("CheckSuite", first.id), "head_branch": None, "head_sha": sha,
        "status": "in_progress" if running else "completed", "conclusion": None if running else worst,
        "url": url, "before": None, "after": sha, "created_at": first.started, "updated_at": first.started,
        "app": call.shapes.app(app), "repository": call.shapes.repository(repo), "pull_requests": [],
        "latest_check_runs_count": len(checks), "check_runs_url": f"{url}/check-runs",
        "head_commit": {
            "id": sha, "tree_id": head["tree"]["sha"], "message": head["message"],
            "timestamp": head["committer"]["date"],
            **{who: {key: head[who][key] for key in ("name", "email")} for who in ("author", "committer")},
        },
    }  # fmt: skip


@operation("GET", f"{R}/commits/{{ref}}/status")
def statuses(call: Call) -> Answer:
    _may_read(call, "statuses")
    repo = call.repo
    sha = found(repo.bare.meant(call.path["ref"]))
    latest = {one.context: one for one in repo.statuses if one.sha == sha}
    url = f"{call.shapes.place(repo)}/commits/{sha}/status"
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
        "repository": call.shapes.repository(repo), "commit_url": url, "url": url,
    }  # fmt: skip
    return Answer(shape)


@operation("GET", f"{R}/check-runs/{{check_run_id}}/annotations")
def annotations(call: Call) -> Answer:
    _may_read(call, "checks")
    one = _one(call, call.path["check_run_id"])
    shown: list[Json] = [
        {
            "path": path, "start_line": line, "end_line": line, "start_column": None, "end_column": None,
            "annotation_level": "failure", "title": None, "message": message, "raw_details": None,
            "blob_href": f"{call.shapes.web}/{call.repo.full_name}/blob/{one.sha}/{path}",
        }
        for path, line, message in one.annotations
    ]  # fmt: skip
    return call.page(shown)


@operation("GET", f"{R}/actions/jobs/{{job_id}}")
def job(call: Call) -> Answer:
    _may_read(call, "actions")
    one, repo = _one(call, call.path["job_id"]), call.repo
    url, run = f"{call.shapes.place(repo)}/actions/jobs/{one.id}", f"{call.shapes.place(repo)}/actions/runs/1"
    steps = ((1, "Set up job", "success"), (2, one.step, one.conclusion), (3, "Complete job", "success"))
    shape: Json = {
        "id": one.id, "node_id": node_id("Job", one.id), "run_id": 1, "run_url": run, "head_sha": one.sha,
        "workflow_name": "CI", "head_branch": None, "name": one.name, "url": url, "html_url": url,
        "status": one.status, "conclusion": one.conclusion, "created_at": one.started,
        "started_at": one.started, "completed_at": one.completed, "labels": [], "runner_id": None,
        "runner_name": None, "runner_group_id": None, "runner_group_name": None,
        "check_run_url": f"{call.shapes.place(repo)}/check-runs/{one.id}",
        "steps": [
            {"number": number, "name": name, "status": "completed", "conclusion": conclusion}
            for number, name, conclusion in steps
        ],
    }  # fmt: skip
    return Answer(shape)


@operation("GET", f"{R}/actions/jobs/{{job_id}}/logs")
def log(call: Call) -> Answer:
    """They lie on another host, which takes no token: the address is signed."""
    _may_read(call, "actions")
    one = _one(call, call.path["job_id"])
    if not one.has_log:
        raise Refusal(404, "Not Found")
    elsewhere = call.shapes.web.replace("127.0.0.1", "localhost")
    return Answer(None, 302, {"location": f"{elsewhere}{STORAGE}/{one.id}"})


def _one(call: Call, wanted: str) -> Check:
    return found(next((one for one in call.repo.checks if str(one.id) == wanted), None))


@operation("GET", f"{R}/pulls/{{pull_number}}/commits")
def commits(call: Call) -> Answer:
    """Oldest first, with the accounts that GitHub knows by the addresses in them."""
    pull = call.pull()
    listed = pull.repo.bare.git("rev-list", "--reverse", f"{pull.base.sha}..{pull.head.sha}").decode().split()
    return call.page([_with_people(call, call.shapes.commit(pull.repo, sha)) for sha in listed[:250]])


def _with_people(call: Call, shape: Json) -> Json:
    inner = shape["commit"]
    assert isinstance(inner, dict)
    for who in ("author", "committer"):
        number, plus, _ = str(inner[who]["email"]).partition("+")
        known: User | None = next((one for one in call.state.users if plus and str(one.id) == number), None)
        shape[who] = call.shapes.user(known) if known else None
    return shape
