"""Signed webhook deliveries for the tests of the bot."""

import hashlib
import hmac
import json
from typing import Any

SECRET = "s3cret"
REPOSITORY = {"id": 99, "name": "sample", "owner": {"login": "acme", "id": 2}, "private": False}
SENDER = {"id": 5, "login": "maintainer", "type": "User", "site_admin": False}
ISSUE = {
    "number": 7,
    "title": "add() subtracts",
    "body": "It should add.",
    "updated_at": "2026-11-20T06:00:00Z",
    "labels": [],
}
LABELED: dict[str, Any] = {
    "action": "labeled",
    "issue": ISSUE,
    "label": {"id": 1, "name": "fix-me"},
    "repository": REPOSITORY,
    "sender": SENDER,
    "installation": {"id": 31, "node_id": "x"},
}
PULL_LABELED: dict[str, Any] = {key: value for key, value in LABELED.items() if key != "issue"} | {
    "pull_request": {"number": 8, "state": "open", "updated_at": "2026-11-20T07:00:00Z", "draft": False}
}
PULL_CLOSED: dict[str, Any] = PULL_LABELED | {
    "action": "closed",
    "pull_request": PULL_LABELED["pull_request"]
    | {
        "state": "closed",
        "closed_at": "2026-11-20T09:00:00Z",
        "merged": True,
        "user": {"id": 77, "login": "patchwright[bot]"},
        "head": {"ref": "patchwright/issue-7", "sha": "c0ffee", "repo": {"id": 99}},
        "base": {"ref": "main", "sha": "beef", "repo": {"id": 99}},
    },
}
HOME = {
    "id": 31,
    "account": {"login": "acme", "id": 2, "type": "Organization"},
    "html_url": "https://github.com/organizations/acme/settings/installations/31",
    "permissions": {"issues": "write", "metadata": "read"},
}
INSTALLATION: dict[str, Any] = {"action": "created", "installation": HOME, "sender": SENDER}
REPOSITORIES: dict[str, Any] = {
    "action": "added",
    "installation": HOME,
    "repositories_added": [{"id": 100, "name": "new", "full_name": "acme/new", "private": True}],
    "repositories_removed": [{"id": 101, "name": "old", "full_name": "acme/old", "private": True}],
    "sender": SENDER,
}
COMMENTED: dict[str, Any] = {
    "action": "created",
    "issue": ISSUE | {"pull_request": {"url": "x"}},
    "comment": {"id": 1234, "body": "@agent go", "performed_via_github_app": None},
    "repository": REPOSITORY,
    "sender": SENDER | {"type": "Bot"},
}

PULL = {"number": 8, "state": "open", "draft": False, "head": {"sha": "c0ffee"}}
REVIEWED: dict[str, Any] = {
    "action": "submitted",
    "review": {"id": 61, "body": "@agent mind these", "state": "commented", "user": SENDER},
    "pull_request": PULL,
    "repository": REPOSITORY,
    "sender": SENDER,
}
INLINE: dict[str, Any] = {
    "action": "created",
    "comment": {
        "id": 501,
        "pull_request_review_id": 61,
        "path": "calc.py",
        "line": 2,
        "diff_hunk": "@@ -1 +1 @@",
        "body": "@agent why not a + b?",
    },
    "pull_request": PULL,
    "repository": REPOSITORY,
    "sender": SENDER,
    "installation": {"id": 31, "node_id": "x"},
}


def signed(event: str, payload: object, *, secret: str = SECRET) -> tuple[dict[str, str], bytes]:
    """Returns headers and body as GitHub sends them."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "x-hub-signature-256": f"sha256={signature}",
        "x-github-event": event,
        "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "content-type": "application/json",
    }, body
