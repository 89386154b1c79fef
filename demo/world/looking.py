"""What the stand-in answers to whoever looks what has happened, and which deliveries have failed."""

from collections.abc import Iterator

from demo.world.access import Need, Refusal
from demo.world.call import Answer, Call, found
from demo.world.operations import R, operation
from demo.world.reviews import inline_shape
from demo.world.shapes import Json, node_id
from demo.world.state import App, Repository, Token, User
from demo.world.told import Delivery, Happening, Hook

GHOST = User(10137, "ghost")
"""Whom GitHub names as the actor where an account was deleted; in other places it names nobody."""
ADMINISTER = Need(role="admin", permission="repository_hooks")


# --- where we are -------------------------------------------------------------------------------------------


@operation("GET", "/app/installations")
def installations(call: Call) -> Answer:
    app = call.app
    return call.page([call.shapes.installation(i) for i in call.state.installations if i.app is app])


@operation("GET", "/installation/repositories")
def repositories(call: Call) -> Answer:
    if not isinstance(call.actor, Token) or (ids := call.actor.repositories) is None:
        raise Refusal(403, "You must authenticate with an installation access token")
    shown = [call.shapes.repository(repo) for repo in call.state.repositories if repo.id in ids]
    page = call.page(shown)
    page.body = {"total_count": len(shown), "repositories": page.body}
    return page


# --- what has happened --------------------------------------------------------------------------------------


@operation("GET", f"{R}/issues/{{issue_number}}/events")
def events(call: Call) -> Answer:
    thread = call.issue(call.path["issue_number"])
    return call.page([_event(call, thread.repo, happening) for happening in thread.happened])


def _event(call: Call, repo: Repository, happening: Happening) -> Json:
    label = happening.label
    return {
        "id": happening.id, "node_id": node_id("LabeledEvent", happening.id),
        "url": f"{call.shapes.place(repo)}/issues/events/{happening.id}",
        "actor": call.shapes.user(GHOST if happening.actor.gone else happening.actor),
        "event": happening.event, "commit_id": None, "commit_url": None,
        "created_at": happening.created, "performed_via_github_app": None,
        "label": {"name": label.name, "color": label.color},
    }  # fmt: skip


@operation("GET", f"{R}/issues/comments")
def comments(call: Call) -> Answer:
    said = {comment: thread for thread in call.repo.threads.values() for comment in thread.comments}
    chosen = [one for one in said if one.updated >= call.query.get("since", "")]
    return call.page([call.shapes.comment(said[one], one) for one in call.sorted(chosen)])


@operation("GET", f"{R}/pulls/comments")
def inline_comments(call: Call) -> Answer:
    said = {
        one: thread for pull in call.repo.pulls for thread in pull.review_threads for one in thread.comments
    }
    chosen = [one for one in said if one.updated >= call.query.get("since", "")]
    return call.page([inline_shape(call.shapes, said[one], one) for one in call.sorted(chosen)])


# --- deliveries ---------------------------------------------------------------------------------------------


@operation("GET", f"{R}/hooks")
def hooks(call: Call) -> Answer:
    call.allow(ADMINISTER)
    mine = dict.fromkeys(one.hook for one in call.state.deliveries if one.hook.repo is call.repo)
    return call.page([_hook(call, hook) for hook in mine])


def _hook(call: Call, hook: Hook) -> Json:
    url = f"{call.shapes.place(call.repo)}/hooks/{hook.id}"
    return {
        "type": "Repository", "id": hook.id, "name": "web", "active": True, "events": ["*"],
        "config": {"content_type": "json", "insecure_ssl": "0", "url": hook.url, "secret": "********"},
        "updated_at": call.repo.created, "created_at": call.repo.created, "url": url,
        "test_url": f"{url}/test", "ping_url": f"{url}/pings", "deliveries_url": f"{url}/deliveries",
        "last_response": {"code": None, "status": "unused", "message": None},
    }  # fmt: skip


@operation("GET", "/app/hook/deliveries")
def app_deliveries(call: Call) -> Answer:
    return _deliveries(call, None)


@operation("GET", f"{R}/hooks/{{hook_id}}/deliveries")
def hook_deliveries(call: Call) -> Answer:
    call.allow(ADMINISTER)
    return _deliveries(call, call.path["hook_id"])


@operation("POST", "/app/hook/deliveries/{delivery_id}/attempts")
def redeliver_app(call: Call) -> Answer:
    return _redeliver(call, None)


@operation("POST", f"{R}/hooks/{{hook_id}}/deliveries/{{delivery_id}}/attempts")
def redeliver_hook(call: Call) -> Answer:
    call.allow(ADMINISTER)
    return _redeliver(call, call.path["hook_id"])


def _attempts(call: Call, hook: str | None) -> Iterator[Delivery]:
    """Those of the App's webhook or of one of the repository's own, the newest first."""
    of_app = isinstance(call.actor, App)
    if hook is None and not of_app:
        call.app  # noqa: B018 - it refuses
    repo = None if hook is None else call.repo
    for one in reversed(call.state.deliveries):
        if one.hook.repo is repo and hook in (None, str(one.hook.id)):
            yield one


def _deliveries(call: Call, hook: str | None) -> Answer:
    """By cursor: what comes in while somebody reads moves no page."""
    size, cursor = min(int(call.query.get("per_page", "30")), 100), call.query.get("cursor")
    shown: list[Delivery] = []
    for one in _attempts(call, hook):
        if cursor is not None and one.id >= int(cursor):
            continue
        if len(shown) == size:
            link = f"<{call.shapes.api}{call.request.path}?per_page={size}&cursor={shown[-1].id}>"
            return Answer([_attempt(call, each) for each in shown], headers={"Link": f'{link}; rel="next"'})
        shown.append(one)
    return Answer([_attempt(call, each) for each in shown])


def _attempt(call: Call, one: Delivery) -> Json:
    fine = one.status is not None and one.status < 300
    status = "OK" if fine else "failed to connect to host" if one.status is None else "Invalid HTTP Response"
    return {
        "id": one.id, "guid": one.guid, "delivered_at": one.at, "redelivery": one.redelivery,
        "duration": 0.1, "status": f"{status}: {one.status}" if one.status and not fine else status,
        "status_code": one.status or 502, "event": one.event, "action": one.action,
        "installation_id": None, "repository_id": None, "throttled_at": None,
    }  # fmt: skip


def _redeliver(call: Call, hook: str | None) -> Answer:
    wanted = call.path["delivery_id"]
    call.news.append(found(next((one for one in _attempts(call, hook) if str(one.id) == wanted), None)))
    return Answer({}, 202)
