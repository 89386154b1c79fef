"""What the stand-in answers over REST, under the names of GitHub's description. It blocks: use a thread."""

from collections.abc import Callable

from demo.world.access import Need, Refusal
from demo.world.call import Answer, Call, found, invalid
from demo.world.shapes import legacy_permission
from demo.world.state import ROLES, Comment, Installation, Issue, Pull, Tip, Token

Handler = Callable[[Call], Answer]
OPERATIONS: dict[tuple[str, str], Handler] = {}

R = "/repos/{owner}/{repo}"
COMMENT = Need(role="read")
TRIAGE = Need(role="triage")
MAINTAIN = Need(role="write")
PROPOSE = Need(role="write", permission="pull_requests")
PUSH = Need(role="write", permission="contents")


def operation(method: str, path: str) -> Callable[[Handler], Handler]:
    def keep(handler: Handler) -> Handler:
        OPERATIONS[method, path] = handler
        return handler

    return keep


# --- apps and people ----------------------------------------------------------------------------------------


@operation("GET", "/app")
def own_app(call: Call) -> Answer:
    return Answer(call.shapes.app(call.app))


@operation("GET", f"{R}/installation")
def installation(call: Call) -> Answer:
    app = call.app
    repo = call.state.find_repository(call.path["owner"], call.path["repo"])
    return Answer(
        call.shapes.installation(
            found(
                next((i for i in call.state.installations if i.app is app and repo in i.repositories), None)
            )
        )
    )


@operation("POST", "/app/installations/{installation_id}/access_tokens")
def mint(call: Call) -> Answer:
    app, wanted = call.app, call.path["installation_id"]
    place = found(next((i for i in call.state.installations if i.app is app and str(i.id) == wanted), None))
    token = call.state.installation_token(place, _scope(call, place), _permissions(call, place))
    return Answer(call.shapes.token(token), 201)


def _scope(call: Call, place: Installation) -> frozenset[int]:
    names, ids = call.body.get("repositories"), call.body.get("repository_ids")
    chosen = [
        repo
        for repo in place.repositories
        if (not isinstance(names, list) or repo.name in names)
        and (not isinstance(ids, list) or repo.id in ids)
    ]
    if not chosen:
        raise Refusal(422, "There is at least one repository that does not exist or is not accessible.")
    return frozenset(repo.id for repo in chosen)


def _permissions(call: Call, place: Installation) -> dict[str, str]:
    wanted = call.body.get("permissions")
    if not isinstance(wanted, dict):
        return place.app.permissions
    granted = place.app.permissions
    for name, level in wanted.items():
        if granted.get(name) not in (level, "write"):
            raise Refusal(422, "The permissions requested are not granted to this installation.")
    return {"metadata": "read", **wanted}


@operation("GET", "/user")
def myself(call: Call) -> Answer:
    if not isinstance(call.actor, Token):
        raise Refusal(401, "Requires authentication")
    if call.actor.permissions is not None:
        raise Refusal(403, "Resource not accessible by integration")
    return Answer(call.shapes.profile(call.actor.user))


@operation("GET", "/user/{account_id}")
def user_by_id(call: Call) -> Answer:
    wanted = call.path["account_id"]
    return Answer(
        call.shapes.profile(found(next((u for u in call.state.users if str(u.id) == wanted), None)))
    )


@operation("GET", "/users/{username}")
def user_by_name(call: Call) -> Answer:
    return Answer(call.shapes.profile(found(call.state.find_user(call.path["username"]))))


@operation("GET", f"{R}/collaborators/{{username}}/permission")
def permission(call: Call) -> Answer:
    repo = call.repo
    if not isinstance(call.actor, Token):
        raise Refusal(401, "Requires authentication")
    if call.actor.permissions is None:
        call.allow(PUSH)
    if (user := call.state.find_user(call.path["username"])) is None:
        raise Refusal(404, f"{call.path['username']} is not a user")
    role = repo.role(user)
    shape = {**call.shapes.user(user), "role_name": role}
    return Answer({"permission": legacy_permission(role), "role_name": role, "user": shape})


# --- the repository -----------------------------------------------------------------------------------------


@operation("GET", R)
def repository(call: Call) -> Answer:
    shape = call.shapes.repository(call.repo)
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
    return Answer(shape)


@operation("GET", f"{R}/git/ref/{{ref}}")
def ref(call: Call) -> Answer:
    name = call.path["ref"]
    return Answer(
        call.shapes.ref(call.repo, f"refs/{name}", found(call.repo.bare.sha(name.removeprefix("heads/"))))
    )


@operation("GET", f"{R}/branches/{{branch}}")
def branch(call: Call) -> Answer:
    name = call.path["branch"]
    return Answer(call.shapes.branch(call.repo, name, found(call.repo.bare.sha(name))))


@operation("GET", f"{R}/commits/{{ref}}")
def commit(call: Call) -> Answer:
    repo, name = call.repo, call.path["ref"]
    sha = repo.bare.meant(name)
    if sha is None:
        raise Refusal(422, f"No commit found for SHA: {name}")
    return Answer(call.shapes.commit(repo, sha))


@operation("GET", f"{R}/contents/{{path}}")
def contents(call: Call) -> Answer:
    repo = call.repo
    wanted = call.query.get("ref", repo.default_branch)
    sha = found(repo.bare.meant(wanted))
    content = found(repo.bare.read(sha, call.path["path"]))
    if "raw" in call.request.accept:
        return Answer(content.decode(errors="replace"))
    return Answer(call.shapes.file(repo, call.path["path"], content))


# --- issues and their comments ------------------------------------------------------------------------------


@operation("GET", f"{R}/issues")
def issues(call: Call) -> Answer:
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
    return call.page([call.shapes.issue(issue) for issue in call.sorted(chosen)])


@operation("GET", f"{R}/issues/{{issue_number}}")
def issue(call: Call) -> Answer:
    number = call.path["issue_number"]
    known = call.repo.threads.get(int(number)) if number.isdigit() else None
    if known is not None and known.moved_to is not None:
        place = str(call.shapes.issue(known.moved_to)["url"])
        return Answer({"message": "Moved Permanently", "url": place}, 301, {"location": place})
    if known is not None and known.deleted:
        raise Refusal(410, "This issue was deleted")
    return Answer(call.shapes.issue(call.issue(number)))


@operation("GET", f"{R}/issues/{{issue_number}}/comments")
def comments(call: Call) -> Answer:
    thread = call.issue(call.path["issue_number"])
    return call.page([call.shapes.comment(thread, comment) for comment in thread.comments])


@operation("POST", f"{R}/issues/{{issue_number}}/comments")
def say(call: Call) -> Answer:
    author, thread = call.allow(COMMENT), call.issue(call.path["issue_number"])
    if not (body := call.text("body")).strip():
        raise invalid("IssueComment", "body", "body cannot be blank")
    if thread.locked:
        raise Refusal(403, "Unable to create comment because issue is locked.")
    shape = call.shapes.comment(thread, call.state.comment(thread, body, author))
    call.tell("issue_comment", "created", thread, author, comment=shape)
    return Answer(shape, 201)


@operation("GET", f"{R}/issues/comments/{{comment_id}}")
def comment(call: Call) -> Answer:
    return Answer(call.shapes.comment(*call.comment()))


@operation("PATCH", f"{R}/issues/comments/{{comment_id}}")
def edit(call: Call) -> Answer:
    """Whoever may write may edit anybody's comment, as on GitHub: not doing so is up to the program."""
    thread, old = call.comment()
    author = call.allow(COMMENT if _is_own(call, old) else MAINTAIN)
    call.state.edit(thread, old, call.text("body"))
    shape = call.shapes.comment(thread, old)
    call.tell("issue_comment", "edited", thread, author, comment=shape)
    return Answer(shape)


def _is_own(call: Call, comment: Comment) -> bool:
    return isinstance(call.actor, Token) and comment.author is call.actor.user


def _change(call: Call, thread: Issue) -> None:
    if "title" in call.body:
        thread.title = call.text("title")
    if "body" in call.body:
        thread.body = call.text("body")
    now = call.state.stamp()
    if "state" in call.body:
        thread.closed = now if call.body["state"] == "closed" else None
    thread.updated = now


# --- labels and reactions -----------------------------------------------------------------------------------


@operation("POST", f"{R}/issues/{{issue_number}}/labels")
def add_labels(call: Call) -> Answer:
    sender, thread = call.allow(TRIAGE), call.issue(call.path["issue_number"])
    names = call.body.get("labels")
    for name in names if isinstance(names, list) else ():
        label = call.state.label(thread, str(name), sender)
        call.tell("issues", "labeled", thread, sender, label=call.shapes.label(thread.repo, label))
    return _labels(call, thread)


@operation("DELETE", f"{R}/issues/{{issue_number}}/labels/{{name}}")
def remove_label(call: Call) -> Answer:
    sender, thread = call.allow(TRIAGE), call.issue(call.path["issue_number"])
    label = next((label for label in thread.labels if label.name.lower() == call.path["name"].lower()), None)
    if label is None:
        raise Refusal(404, "Label does not exist")
    call.state.unlabel(thread, label, sender)
    call.tell("issues", "unlabeled", thread, sender, label=call.shapes.label(thread.repo, label))
    return _labels(call, thread)


def _labels(call: Call, thread: Issue) -> Answer:
    return Answer([call.shapes.label(thread.repo, label) for label in thread.labels])


@operation("POST", f"{R}/issues/{{issue_number}}/reactions")
def react(call: Call) -> Answer:
    return react_to(call, call.issue(call.path["issue_number"]))


@operation("POST", f"{R}/issues/comments/{{comment_id}}/reactions")
def react_to_comment(call: Call) -> Answer:
    return react_to(call, call.comment()[1])


def react_to(call: Call, to: Issue | Comment) -> Answer:
    user, content = call.allow(COMMENT), str(call.body.get("content"))
    known = next((given for given in to.reactions if given.user is user and given.content == content), None)
    if known is not None:
        return Answer(call.shapes.reaction(known))
    return Answer(call.shapes.reaction(call.state.react(to, content, user)), 201)


# --- pull requests ------------------------------------------------------------------------------------------


@operation("GET", f"{R}/pulls")
def pulls(call: Call) -> Answer:
    state, head, base = call.query.get("state", "open"), call.query.get("head"), call.query.get("base")
    chosen = [
        pull
        for pull in call.repo.pulls
        if state in ("all", pull.state)
        and head in (None, f"{pull.head_repo.owner.login}:{pull.head_ref}")
        and base in (None, pull.base_ref)
    ]
    return call.page([call.shapes.pull_summary(pull) for pull in reversed(chosen)])


@operation("POST", f"{R}/pulls")
def propose(call: Call) -> Answer:
    author, repo = call.allow(PROPOSE), call.repo
    owner, _, head = str(call.body.get("head", "")).rpartition(":")
    base = str(call.body.get("base", ""))
    sha = repo.bare.sha(head) if owner.lower() in ("", repo.owner.login.lower()) else None
    if sha is None:
        raise invalid("PullRequest", "head", "head is invalid")
    if (onto := repo.bare.sha(base)) is None:
        raise invalid("PullRequest", "base", "base is invalid")
    if not repo.bare.related(onto, sha):
        raise invalid("PullRequest", "head", f"The {head} branch has no history in common with {base}")
    if repo.bare.count(onto, sha) == 0:
        raise invalid("PullRequest", "head", f"No commits between {base} and {head}")
    same = (repo, head, base)
    if any(p.state == "open" and (p.head_repo, p.head_ref, p.base_ref) == same for p in repo.pulls):
        label = f"{repo.owner.login}:{head}"
        raise invalid("PullRequest", "head", f"A pull request already exists for {label}.")
    pull = call.state.pull(
        repo,
        call.text("title"),
        call.text("body"),
        author,
        Tip(head, sha),
        base,
        bool(call.body.get("draft")),
    )
    return Answer(call.shapes.pull(pull), 201)


@operation("GET", f"{R}/pulls/{{pull_number}}")
def pull(call: Call) -> Answer:
    wanted = call.pull()
    if "diff" in call.request.accept:
        return Answer(wanted.repo.diff(wanted))
    return Answer(call.shapes.pull(wanted))


@operation("PATCH", f"{R}/pulls/{{pull_number}}")
def change_pull(call: Call) -> Answer:
    call.allow(PROPOSE)
    wanted: Pull = call.pull()
    _change(call, wanted)
    if "base" in call.body:
        wanted.base_ref = str(call.body["base"])
    return Answer(call.shapes.pull(wanted))
