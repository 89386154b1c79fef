"""Implements the REST API of the simulated GitHub, with one function per operation. The functions block, so
call them in a thread.
"""

from collections.abc import Callable

from patchwright.demo.github.auth import ApiError, RequiredAccess
from patchwright.demo.github.request_context import (
    RequestContext,
    RestResponse,
    require_found,
    validation_error,
)
from patchwright.demo.github.serializers import legacy_permission
from patchwright.demo.github.state import (
    ROLES,
    BranchTip,
    Comment,
    FakePullRequest,
    Installation,
    Issue,
    Token,
)

Handler = Callable[[RequestContext], RestResponse]
OPERATIONS: dict[tuple[str, str], Handler] = {}

REPO_PATH = "/repos/{owner}/{repo}"
COMMENT_ACCESS = RequiredAccess(role="read")
MAINTAIN_ACCESS = RequiredAccess(role="write")
PULL_ACCESS = RequiredAccess(role="write", permission="pull_requests")
PUSH_ACCESS = RequiredAccess(role="write", permission="contents")


def operation(method: str, path: str) -> Callable[[Handler], Handler]:
    def keep(handler: Handler) -> Handler:
        OPERATIONS[method, path] = handler
        return handler

    return keep


# --- apps and people ----------------------------------------------------------------------------------------


@operation("GET", "/app")
def get_app(call: RequestContext) -> RestResponse:
    return RestResponse(call.serializer.app(call.app))


@operation("GET", f"{REPO_PATH}/installation")
def get_installation(call: RequestContext) -> RestResponse:
    app = call.app
    repo = call.state.find_repository(call.path["owner"], call.path["repo"])
    return RestResponse(
        call.serializer.installation(
            require_found(
                next((i for i in call.state.installations if i.app is app and repo in i.repositories), None)
            )
        )
    )


@operation("POST", "/app/installations/{installation_id}/access_tokens")
def create_access_token(call: RequestContext) -> RestResponse:
    app, wanted = call.app, call.path["installation_id"]
    place = require_found(
        next((i for i in call.state.installations if i.app is app and str(i.id) == wanted), None)
    )
    token = call.state.create_installation_token(
        place, _select_repositories(call, place), _select_permissions(call, place)
    )
    return RestResponse(call.serializer.token(token), 201)


def _select_repositories(call: RequestContext, installation: Installation) -> frozenset[int]:
    names, ids = call.body.get("repositories"), call.body.get("repository_ids")
    chosen = [
        repo
        for repo in installation.repositories
        if (not isinstance(names, list) or repo.name in names)
        and (not isinstance(ids, list) or repo.id in ids)
    ]
    if not chosen:
        raise ApiError(422, "There is at least one repository that does not exist or is not accessible.")
    return frozenset(repo.id for repo in chosen)


def _select_permissions(call: RequestContext, installation: Installation) -> dict[str, str]:
    wanted = call.body.get("permissions")
    if not isinstance(wanted, dict):
        return installation.app.permissions
    granted = installation.app.permissions
    for name, level in wanted.items():
        if granted.get(name) not in (level, "write"):
            raise ApiError(422, "The permissions requested are not granted to this installation.")
    return {"metadata": "read", **wanted}


@operation("GET", "/user")
def get_authenticated_user(call: RequestContext) -> RestResponse:
    if not isinstance(call.actor, Token):
        raise ApiError(401, "Requires authentication")
    if call.actor.permissions is not None:
        raise ApiError(403, "Resource not accessible by integration")
    return RestResponse(call.serializer.profile(call.actor.user))


@operation("GET", "/user/{account_id}")
def get_user_by_id(call: RequestContext) -> RestResponse:
    wanted = call.path["account_id"]
    return RestResponse(
        call.serializer.profile(
            require_found(next((u for u in call.state.users if str(u.id) == wanted), None))
        )
    )


@operation("GET", "/users/{username}")
def get_user_by_name(call: RequestContext) -> RestResponse:
    return RestResponse(call.serializer.profile(require_found(call.state.find_user(call.path["username"]))))


@operation("GET", f"{REPO_PATH}/collaborators/{{username}}/permission")
def get_permission(call: RequestContext) -> RestResponse:
    repo = call.repo
    if not isinstance(call.actor, Token):
        raise ApiError(401, "Requires authentication")
    if call.actor.permissions is None:
        call.require_access(PUSH_ACCESS)
    if (user := call.state.find_user(call.path["username"])) is None:
        raise ApiError(404, f"{call.path['username']} is not a user")
    role = repo.role(user)
    shape = {**call.serializer.user(user), "role_name": role}
    return RestResponse({"permission": legacy_permission(role), "role_name": role, "user": shape})


# --- the repository -----------------------------------------------------------------------------------------


@operation("GET", REPO_PATH)
def get_repository(call: RequestContext) -> RestResponse:
    shape = call.serializer.repository(call.repo)
    if isinstance(call.actor, Token) and call.actor.permissions is None:
        rank = ROLES.index(call.repo.role(call.actor.user))
        least = {
            "pull": "read",
            "triage": "triage",
            "push": "write",
            "maintain": "maintain",
            "admin": "admin",
        }
        shape["permissions"] = {name: rank >= ROLES.index(role) for name, role in least.items()}
    return RestResponse(shape)


@operation("GET", f"{REPO_PATH}/git/ref/{{ref}}")
def get_ref(call: RequestContext) -> RestResponse:
    name = call.path["ref"]
    return RestResponse(
        call.serializer.ref(
            call.repo, f"refs/{name}", require_found(call.repo.bare.branch_sha(name.removeprefix("heads/")))
        )
    )


@operation("GET", f"{REPO_PATH}/branches/{{branch}}")
def get_branch(call: RequestContext) -> RestResponse:
    name = call.path["branch"]
    return RestResponse(
        call.serializer.branch(call.repo, name, require_found(call.repo.bare.branch_sha(name)))
    )


@operation("GET", f"{REPO_PATH}/commits/{{ref}}")
def get_commit(call: RequestContext) -> RestResponse:
    repo, name = call.repo, call.path["ref"]
    sha = repo.bare.resolve_ref(name)
    if sha is None:
        raise ApiError(422, f"No commit found for SHA: {name}")
    return RestResponse(call.serializer.commit(repo, sha))


@operation("GET", f"{REPO_PATH}/contents/{{path}}")
def get_contents(call: RequestContext) -> RestResponse:
    repo = call.repo
    wanted = call.query.get("ref", repo.default_branch)
    sha = require_found(repo.bare.resolve_ref(wanted))
    content = require_found(repo.bare.read(sha, call.path["path"]))
    if "raw" in call.request.accept:
        return RestResponse(content.decode(errors="replace"))
    return RestResponse(call.serializer.file(repo, call.path["path"], content))


# --- issues and their comments ------------------------------------------------------------------------------


@operation("GET", f"{REPO_PATH}/issues")
def list_issues(call: RequestContext) -> RestResponse:
    state, labels = (
        call.query.get("state", "open"),
        {name for name in call.query.get("labels", "").split(",") if name},
    )
    chosen = [
        issue
        for issue in call.repo.threads.values()
        if state in ("all", issue.state) and labels <= {label.name for label in issue.labels}
        if issue.updated >= call.query.get("since", "")
    ]
    return call.paginate([call.serializer.issue(issue) for issue in call.sort(chosen)])


@operation("GET", f"{REPO_PATH}/issues/{{issue_number}}")
def get_issue(call: RequestContext) -> RestResponse:
    number = call.path["issue_number"]
    known = call.repo.threads.get(int(number)) if number.isdigit() else None
    if known is not None and known.moved_to is not None:
        place = str(call.serializer.issue(known.moved_to)["url"])
        return RestResponse({"message": "Moved Permanently", "url": place}, 301, {"location": place})
    if known is not None and known.deleted:
        raise ApiError(410, "This issue was deleted")
    return RestResponse(call.serializer.issue(call.find_issue(number)))


@operation("GET", f"{REPO_PATH}/issues/{{issue_number}}/comments")
def list_comments(call: RequestContext) -> RestResponse:
    thread = call.find_issue(call.path["issue_number"])
    return call.paginate([call.serializer.comment(thread, comment) for comment in thread.comments])


@operation("POST", f"{REPO_PATH}/issues/{{issue_number}}/comments")
def create_comment(call: RequestContext) -> RestResponse:
    author, thread = call.require_access(COMMENT_ACCESS), call.find_issue(call.path["issue_number"])
    if not (body := call.read_text("body")).strip():
        raise validation_error("IssueComment", "body", "body cannot be blank")
    if thread.locked:
        raise ApiError(403, "Unable to create comment because issue is locked.")
    shape = call.serializer.comment(thread, call.state.add_comment(thread, body, author))
    call.emit("issue_comment", "created", thread, author, comment=shape)
    return RestResponse(shape, 201)


@operation("GET", f"{REPO_PATH}/issues/comments/{{comment_id}}")
def get_comment(call: RequestContext) -> RestResponse:
    return RestResponse(call.serializer.comment(*call.find_comment()))


@operation("PATCH", f"{REPO_PATH}/issues/comments/{{comment_id}}")
def update_comment(call: RequestContext) -> RestResponse:
    """Edits a comment. As on GitHub, everyone with write access may edit any comment. Patchwright must
    not edit the comments of others.
    """
    thread, old = call.find_comment()
    author = call.require_access(COMMENT_ACCESS if _is_own(call, old) else MAINTAIN_ACCESS)
    call.state.edit_comment(thread, old, call.read_text("body"))
    shape = call.serializer.comment(thread, old)
    call.emit("issue_comment", "edited", thread, author, comment=shape)
    return RestResponse(shape)


def _is_own(call: RequestContext, comment: Comment) -> bool:
    return isinstance(call.actor, Token) and comment.author is call.actor.user


def _update_thread(call: RequestContext, thread: Issue) -> None:
    if "title" in call.body:
        thread.title = call.read_text("title")
    if "body" in call.body:
        thread.body = call.read_text("body")
    now = call.state.next_timestamp()
    if "state" in call.body:
        thread.closed = now if call.body["state"] == "closed" else None
    thread.updated = now


# --- reactions --------------------------------------------------------------------------------------------


@operation("POST", f"{REPO_PATH}/issues/{{issue_number}}/reactions")
def react_to_issue(call: RequestContext) -> RestResponse:
    return react_to(call, call.find_issue(call.path["issue_number"]))


@operation("POST", f"{REPO_PATH}/issues/comments/{{comment_id}}/reactions")
def react_to_comment(call: RequestContext) -> RestResponse:
    return react_to(call, call.find_comment()[1])


def react_to(call: RequestContext, to: Issue | Comment) -> RestResponse:
    user, content = call.require_access(COMMENT_ACCESS), str(call.body.get("content"))
    known = next((given for given in to.reactions if given.user is user and given.content == content), None)
    if known is not None:
        return RestResponse(call.serializer.reaction(known))
    return RestResponse(call.serializer.reaction(call.state.add_reaction(to, content, user)), 201)


# --- pull requests ------------------------------------------------------------------------------------------


@operation("GET", f"{REPO_PATH}/pulls")
def list_pulls(call: RequestContext) -> RestResponse:
    state, head, base = call.query.get("state", "open"), call.query.get("head"), call.query.get("base")
    chosen = [
        pull
        for pull in call.repo.pulls
        if state in ("all", pull.state)
        and head in (None, f"{pull.head_repo.owner.login}:{pull.head_ref}")
        and base in (None, pull.base_ref)
    ]
    return call.paginate([call.serializer.pull_summary(pull) for pull in reversed(chosen)])


@operation("POST", f"{REPO_PATH}/pulls")
def create_pull(call: RequestContext) -> RestResponse:
    author, repo = call.require_access(PULL_ACCESS), call.repo
    owner, _, head = str(call.body.get("head", "")).rpartition(":")
    base = str(call.body.get("base", ""))
    sha = repo.bare.branch_sha(head) if owner.lower() in ("", repo.owner.login.lower()) else None
    if sha is None:
        raise validation_error("PullRequest", "head", "head is invalid")
    if (onto := repo.bare.branch_sha(base)) is None:
        raise validation_error("PullRequest", "base", "base is invalid")
    if not repo.bare.has_merge_base(onto, sha):
        raise validation_error(
            "PullRequest", "head", f"The {head} branch has no history in common with {base}"
        )
    if repo.bare.count_commits(onto, sha) == 0:
        raise validation_error("PullRequest", "head", f"No commits between {base} and {head}")
    same = (repo, head, base)
    if any(p.state == "open" and (p.head_repo, p.head_ref, p.base_ref) == same for p in repo.pulls):
        label = f"{repo.owner.login}:{head}"
        raise validation_error("PullRequest", "head", f"A pull request already exists for {label}.")
    pull = call.state.create_pull(
        repo,
        call.read_text("title"),
        call.read_text("body"),
        author,
        BranchTip(head, sha),
        base,
        bool(call.body.get("draft")),
    )
    return RestResponse(call.serializer.pull(pull), 201)


@operation("GET", f"{REPO_PATH}/pulls/{{pull_number}}")
def get_pull(call: RequestContext) -> RestResponse:
    wanted = call.find_pull()
    if "diff" in call.request.accept:
        return RestResponse(wanted.repo.diff(wanted))
    return RestResponse(call.serializer.pull(wanted))


@operation("PATCH", f"{REPO_PATH}/pulls/{{pull_number}}")
def update_pull(call: RequestContext) -> RestResponse:
    call.require_access(PULL_ACCESS)
    wanted: FakePullRequest = call.find_pull()
    _update_thread(call, wanted)
    if "base" in call.body:
        wanted.base_ref = str(call.body["base"])
    return RestResponse(call.serializer.pull(wanted))
