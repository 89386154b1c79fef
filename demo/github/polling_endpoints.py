"""The fake server's endpoints for polling: recent events, and failed deliveries."""

from collections.abc import Iterator

from patchwright.demo.github.app_models import GitHubApp
from patchwright.demo.github.auth import ApiError, RequiredAccess
from patchwright.demo.github.operations import REPO_PATH, operation
from patchwright.demo.github.request_context import RequestContext, RestResponse, require_found
from patchwright.demo.github.reviews import review_comment_json
from patchwright.demo.github.serializers import Json, node_id
from patchwright.demo.github.state import Repository, Token, User
from patchwright.demo.github.webhook_models import Delivery, IssueEvent, RegisteredWebhook

GHOST = User(10137, "ghost")
"""The user that GitHub names in the events of a deleted account. Other responses name no user for such an
account.
"""
HOOKS_ACCESS = RequiredAccess(role="admin", permission="repository_hooks")


# --- repositories ---------------------------------------------------------------------------------------


@operation("GET", "/app/installations")
def list_installations(call: RequestContext) -> RestResponse:
    app = call.app
    return call.paginate([call.serializer.installation(i) for i in call.state.installations if i.app is app])


@operation("GET", "/installation/repositories")
def list_repositories(call: RequestContext) -> RestResponse:
    if not isinstance(call.actor, Token) or (ids := call.actor.repositories) is None:
        raise ApiError(403, "You must authenticate with an installation access token")
    shown = [call.serializer.repository(repo) for repo in call.state.repositories if repo.id in ids]
    page = call.paginate(shown)
    page.body = {"total_count": len(shown), "repositories": page.body}
    return page


# --- recent events --------------------------------------------------------------------------------------


@operation("GET", f"{REPO_PATH}/issues/{{issue_number}}/events")
def list_issue_events(call: RequestContext) -> RestResponse:
    thread = call.find_issue(call.path["issue_number"])
    return call.paginate([_issue_event_json(call, thread.repo, happening) for happening in thread.events])


def _issue_event_json(call: RequestContext, repo: Repository, event: IssueEvent) -> Json:
    label = event.label
    return {
        "id": event.id, "node_id": node_id("LabeledEvent", event.id),
        "url": f"{call.serializer.repository_url(repo)}/issues/events/{event.id}",
        "actor": call.serializer.user(GHOST if event.actor.is_deleted else event.actor),
        "event": event.event, "commit_id": None, "commit_url": None,
        "created_at": event.created, "performed_via_github_app": None,
        "label": {"name": label.name, "color": label.color},
    }  # fmt: skip


@operation("GET", f"{REPO_PATH}/issues/comments")
def list_issue_comments(call: RequestContext) -> RestResponse:
    said = {comment: thread for thread in call.repo.threads.values() for comment in thread.comments}
    chosen = [one for one in said if one.updated >= call.query.get("since", "")]
    return call.paginate([call.serializer.comment(said[one], one) for one in call.sort(chosen)])


@operation("GET", f"{REPO_PATH}/pulls/comments")
def list_review_comments(call: RequestContext) -> RestResponse:
    said = {
        one: thread for pull in call.repo.pulls for thread in pull.review_threads for one in thread.comments
    }
    chosen = [one for one in said if one.updated >= call.query.get("since", "")]
    return call.paginate([review_comment_json(call.serializer, said[one], one) for one in call.sort(chosen)])


# --- deliveries ---------------------------------------------------------------------------------------------


@operation("GET", f"{REPO_PATH}/hooks")
def list_webhooks(call: RequestContext) -> RestResponse:
    call.require_access(HOOKS_ACCESS)
    mine = dict.fromkeys(one.hook for one in call.state.deliveries if one.hook.repo is call.repo)
    return call.paginate([_webhook_json(call, hook) for hook in mine])


def _webhook_json(call: RequestContext, hook: RegisteredWebhook) -> Json:
    url = f"{call.serializer.repository_url(call.repo)}/hooks/{hook.id}"
    return {
        "type": "Repository", "id": hook.id, "name": "web", "active": True, "events": ["*"],
        "config": {"content_type": "json", "insecure_ssl": "0", "url": hook.url, "secret": "********"},
        "updated_at": call.repo.created, "created_at": call.repo.created, "url": url,
        "test_url": f"{url}/test", "ping_url": f"{url}/pings", "deliveries_url": f"{url}/deliveries",
        "last_response": {"code": None, "status": "unused", "message": None},
    }  # fmt: skip


@operation("GET", "/app/hook/deliveries")
def list_app_deliveries(call: RequestContext) -> RestResponse:
    return _list_deliveries(call, None)


@operation("GET", f"{REPO_PATH}/hooks/{{hook_id}}/deliveries")
def list_webhook_deliveries(call: RequestContext) -> RestResponse:
    call.require_access(HOOKS_ACCESS)
    return _list_deliveries(call, call.path["hook_id"])


@operation("POST", "/app/hook/deliveries/{delivery_id}/attempts")
def redeliver_app_delivery(call: RequestContext) -> RestResponse:
    return _redeliver(call, None)


@operation("POST", f"{REPO_PATH}/hooks/{{hook_id}}/deliveries/{{delivery_id}}/attempts")
def redeliver_webhook_delivery(call: RequestContext) -> RestResponse:
    call.require_access(HOOKS_ACCESS)
    return _redeliver(call, call.path["hook_id"])


def _find_deliveries(call: RequestContext, hook: str | None) -> Iterator[Delivery]:
    """Yields the deliveries of the App's webhook, or of one of the repository's webhooks, newest first."""
    of_app = isinstance(call.actor, GitHubApp)
    if hook is None and not of_app:
        call.app  # noqa: B018 - it refuses
    repo = None if hook is None else call.repo
    for one in reversed(call.state.deliveries):
        if one.hook.repo is repo and hook in (None, str(one.hook.id)):
            yield one


def _list_deliveries(call: RequestContext, hook: str | None) -> RestResponse:
    """Lists deliveries by cursor, so that new deliveries do not shift the pages."""
    size, cursor = min(int(call.query.get("per_page", "30")), 100), call.query.get("cursor")
    shown: list[Delivery] = []
    for one in _find_deliveries(call, hook):
        if cursor is not None and one.id >= int(cursor):
            continue
        if len(shown) == size:
            link = f"<{call.serializer.api_url}{call.request.path}?per_page={size}&cursor={shown[-1].id}>"
            return RestResponse(
                [_delivery_json(call, each) for each in shown], headers={"Link": f'{link}; rel="next"'}
            )
        shown.append(one)
    return RestResponse([_delivery_json(call, each) for each in shown])


def _delivery_json(call: RequestContext, delivery: Delivery) -> Json:
    fine = delivery.status is not None and delivery.status < 300
    status = (
        "OK" if fine else "failed to connect to host" if delivery.status is None else "Invalid HTTP Response"
    )
    if delivery.status and not fine:
        status = f"{status}: {delivery.status}"
    return {
        "id": delivery.id, "guid": delivery.guid, "delivered_at": delivery.delivered_at,
        "redelivery": delivery.redelivery, "duration": 0.1, "status": status,
        "status_code": delivery.status or 502, "event": delivery.event, "action": delivery.action,
        "installation_id": None, "repository_id": None, "throttled_at": None,
    }  # fmt: skip


def _redeliver(call: RequestContext, hook: str | None) -> RestResponse:
    wanted = call.path["delivery_id"]
    call.events.append(
        require_found(next((one for one in _find_deliveries(call, hook) if str(one.id) == wanted), None))
    )
    return RestResponse({}, 202)
