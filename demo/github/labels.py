"""The fake server's endpoints for labels."""

from patchwright.demo.github.auth import ApiError, RequiredAccess
from patchwright.demo.github.operations import MAINTAIN_ACCESS, REPO_PATH, operation
from patchwright.demo.github.request_context import (
    RequestContext,
    RestResponse,
    require_found,
    validation_error,
)
from patchwright.demo.github.state import Issue, Label

TRIAGE_ACCESS = RequiredAccess(role="triage")


@operation("POST", f"{REPO_PATH}/labels")
def create_label(call: RequestContext) -> RestResponse:
    call.require_access(MAINTAIN_ACCESS)
    repo, name = call.repo, call.read_text("name")
    if name.lower() in repo.labels:
        raise validation_error("Label", "name", "already_exists")
    color, description = call.read_text("color") or "ededed", call.read_text("description") or None
    made = repo.labels[name.lower()] = Label(call.state.next_id(), name, color, description)
    return RestResponse(call.serializer.label(repo, made), 201)


@operation("GET", f"{REPO_PATH}/labels/{{name}}")
def get_label(call: RequestContext) -> RestResponse:
    repo = call.repo
    return RestResponse(
        call.serializer.label(repo, require_found(repo.labels.get(call.path["name"].lower())))
    )


@operation("POST", f"{REPO_PATH}/issues/{{issue_number}}/labels")
def add_labels(call: RequestContext) -> RestResponse:
    sender, thread = call.require_access(TRIAGE_ACCESS), call.find_issue(call.path["issue_number"])
    names = call.body.get("labels")
    for name in names if isinstance(names, list) else ():
        label = call.state.add_label(thread, str(name), sender)
        call.emit("issues", "labeled", thread, sender, label=call.serializer.label(thread.repo, label))
    return _labels(call, thread)


@operation("DELETE", f"{REPO_PATH}/issues/{{issue_number}}/labels/{{name}}")
def remove_label(call: RequestContext) -> RestResponse:
    sender, thread = call.require_access(TRIAGE_ACCESS), call.find_issue(call.path["issue_number"])
    label = next((label for label in thread.labels if label.name.lower() == call.path["name"].lower()), None)
    if label is None:
        raise ApiError(404, "Label does not exist")
    call.state.remove_label(thread, label, sender)
    call.emit("issues", "unlabeled", thread, sender, label=call.serializer.label(thread.repo, label))
    return _labels(call, thread)


def _labels(call: RequestContext, thread: Issue) -> RestResponse:
    return RestResponse([call.serializer.label(thread.repo, label) for label in thread.labels])
