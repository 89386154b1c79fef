"""Webhook deliveries are parsed."""

import json
from typing import Any

import pytest

from patchwright.bot.webhooks.delivery import (
    ChecksCompleted,
    CommentCreated,
    Delivery,
    HeadBranch,
    IgnoredEvent,
    InstallationChanged,
    LabelAdded,
    LabelRemoved,
    Ping,
    ReviewSubmitted,
    Sender,
    ThreadClosed,
    ThreadContent,
    UnreadableDelivery,
    parse_delivery,
)
from patchwright.resolver.domain import Repo
from tests.bot.deliveries import (
    COMMENTED,
    INLINE,
    INSTALLATION,
    ISSUE,
    LABELED,
    PULL,
    PULL_CLOSED,
    PULL_LABELED,
    REPOSITORIES,
    REPOSITORY,
    REVIEWED,
    signed,
)


def parse(event: str, payload: object) -> Delivery:
    return parse_delivery(event, signed(event, payload)[1])


def test_a_ping_is_parsed() -> None:
    assert parse("ping", {"zen": "Keep it logically awesome."}) == Ping()


def test_a_label_added_to_an_issue_is_parsed() -> None:
    assert parse("issues", LABELED) == LabelAdded(
        repo=Repo(owner="acme", name="sample"),
        repo_id=99,
        number=7,
        label="fix-me",
        occurred_at="2026-11-20T06:00:00Z",
        sender=Sender(id=5, login="maintainer", is_bot=False),
        installation_id=31,
        snapshot=ThreadContent(title="add() subtracts", body="It should add."),
    )


def test_a_label_added_to_a_pull_request_is_parsed() -> None:
    assert parse("pull_request", PULL_LABELED) == LabelAdded(
        repo=Repo(owner="acme", name="sample"),
        repo_id=99,
        number=8,
        label="fix-me",
        occurred_at="2026-11-20T07:00:00Z",
        sender=Sender(id=5, login="maintainer", is_bot=False),
        installation_id=31,
    )


REPO = Repo(owner="acme", name="sample")


@pytest.mark.parametrize(("event", "payload"), [("issues", LABELED), ("pull_request", PULL_LABELED)])
def test_a_removed_label_is_parsed(event: str, payload: dict[str, Any]) -> None:
    delivery = parse(event, payload | {"action": "unlabeled"})
    thread = payload.get("issue") or payload["pull_request"]
    assert delivery == LabelRemoved(
        repo=REPO,
        number=thread["number"],
        label="fix-me",
        occurred_at=thread["updated_at"],
        sender=Sender(id=5, login="maintainer", is_bot=False),
    )


@pytest.mark.parametrize(
    ("action", "at"),
    [
        ("closed", "2026-11-20T05:00:00Z"),
        ("deleted", "2026-11-20T06:00:00Z"),
        ("transferred", "2026-11-20T06:00:00Z"),
    ],
)
def test_a_closed_deleted_or_transferred_issue_is_parsed_with_its_time(action: str, at: str) -> None:
    payload = LABELED | {"action": action, "issue": ISSUE | {"closed_at": "2026-11-20T05:00:00Z"}}
    assert parse("issues", payload) == ThreadClosed(
        repo=REPO, number=7, reason=action, occurred_at=at, head_branch=None
    )


@pytest.mark.parametrize(("merged", "reason"), [(True, "merged"), (False, "closed")])
def test_a_closed_pull_request_is_parsed_as_merged_or_closed(merged: bool, reason: Any) -> None:
    pull = PULL_CLOSED["pull_request"]
    delivery = parse("pull_request", PULL_CLOSED | {"pull_request": pull | {"merged": merged}})
    branch = HeadBranch(name="patchwright/issue-7", is_same_repository=True, author_id=77)
    assert delivery == ThreadClosed(
        repo=REPO, number=8, reason=reason, occurred_at="2026-11-20T09:00:00Z", head_branch=branch
    )


@pytest.mark.parametrize("head", [{"ref": "x", "repo": None}, {"ref": "x", "repo": {"id": 100}}])
def test_a_fork_branch_is_not_in_the_same_repository(head: dict[str, Any]) -> None:
    delivery = parse(
        "pull_request", PULL_CLOSED | {"pull_request": PULL_CLOSED["pull_request"] | {"head": head}}
    )
    assert isinstance(delivery, ThreadClosed)
    assert delivery.head_branch == HeadBranch(name="x", is_same_repository=False, author_id=77)


@pytest.mark.parametrize(
    ("action", "lost"),
    [
        ("created", False),
        ("new_permissions_accepted", False),
        ("unsuspend", False),
        ("suspend", True),
        ("deleted", True),
    ],
)
def test_an_installation_event_is_parsed_with_its_permissions(action: str, lost: bool) -> None:
    assert parse("installation", INSTALLATION | {"action": action}) == InstallationChanged(
        installation_id=31,
        is_access_removed=lost,
        repositories=(),
        permissions={"issues": "write", "metadata": "read"},
        settings_url="https://github.com/organizations/acme/settings/installations/31",
    )


@pytest.mark.parametrize(("action", "name"), [("added", "new"), ("removed", "old")])
def test_repositories_added_to_or_removed_from_an_installation_are_parsed(action: str, name: str) -> None:
    delivery = parse("installation_repositories", REPOSITORIES | {"action": action})
    assert isinstance(delivery, InstallationChanged)
    assert (delivery.is_access_removed, delivery.repositories) == (
        action == "removed",
        (Repo(owner="acme", name=name),),
    )


@pytest.mark.parametrize("action", ["added", "removed"])
def test_a_change_that_names_no_repository_is_ignored(action: str) -> None:
    # Without a repository, the change would apply to the whole installation.
    payload = REPOSITORIES | {"action": action, f"repositories_{action}": []}
    ignored = IgnoredEvent(event="installation_repositories", action=action)
    assert parse("installation_repositories", payload) == ignored


SUITE = {"head_branch": "patchwright/issue-7", "head_sha": "c0ffee"}


@pytest.mark.parametrize(
    ("event", "action", "suite", "no_branch"),
    [
        ("check_suite", "completed", {"check_suite": SUITE}, {"check_suite": SUITE | {"head_branch": None}}),
        (
            "check_run",
            "completed",
            {"check_run": {"check_suite": SUITE}},
            {"check_run": {"check_suite": SUITE | {"head_branch": None}}},
        ),
        ("workflow_run", "completed", {"workflow_run": SUITE}, {"workflow_run": SUITE | {"head_branch": ""}}),
        (
            "status",
            None,
            {"sha": "c0ffee", "branches": [{"name": "patchwright/issue-7"}, {"name": "other"}]},
            {"sha": "c0ffee", "branches": []},
        ),
    ],
)
def test_completed_checks_are_parsed_with_their_branch_and_commit(
    event: str, action: str | None, suite: dict[str, Any], no_branch: dict[str, Any]
) -> None:
    shared = {key: LABELED[key] for key in ("repository", "sender", "installation")}
    if action:
        shared["action"] = action
    assert parse(event, shared | suite) == ChecksCompleted(
        repo=REPO, repo_id=99, branch="patchwright/issue-7", commit="c0ffee", installation_id=31
    )
    # The checks of a fork's commit name no branch. They cannot belong to one of the bot's pull requests.
    assert parse(event, shared | no_branch) == IgnoredEvent(event=event)
    if action:
        assert parse(event, shared | suite | {"action": "requested"}).kind == "ignored_event"


def test_a_new_installation_names_its_repositories() -> None:
    listed = {"repositories": [{"full_name": "acme/new"}, {"full_name": "no repository"}]}
    for action, repositories in (("created", (Repo(owner="acme", name="new"),)), ("deleted", ())):
        delivery = parse("installation", INSTALLATION | listed | {"action": action})
        assert isinstance(delivery, InstallationChanged)
        assert delivery.repositories == repositories


def test_a_review_and_its_inline_comments_share_the_review_id() -> None:
    shared = {
        "repo": REPO,
        "repo_id": 99,
        "number": 8,
        "review_id": 61,
        "sender": Sender(id=5, login="maintainer", is_bot=False),
        "snapshot": ThreadContent(title="Add", body=""),
    }
    pull = {"pull_request": PULL | {"title": "Add", "body": None}}
    review = REVIEWED["review"] | {"submitted_at": "2026-11-20T10:00:00Z"}
    assert parse("pull_request_review", REVIEWED | pull | {"review": review}) == ReviewSubmitted(
        **shared,
        review_comment_id=None,
        body="@agent mind these",
        installation_id=None,
        occurred_at="2026-11-20T10:00:00Z",
    )
    comment = INLINE["comment"] | {"created_at": "2026-11-20T09:59:00Z"}
    assert parse("pull_request_review_comment", INLINE | pull | {"comment": comment}) == ReviewSubmitted(
        **shared,
        review_comment_id=501,
        body="@agent why not a + b?",
        installation_id=31,
        occurred_at="2026-11-20T09:59:00Z",
    )


def test_a_review_without_text_is_parsed() -> None:
    payload = REVIEWED | {"review": REVIEWED["review"] | {"body": None}}
    delivery = parse("pull_request_review", payload)
    assert isinstance(delivery, ReviewSubmitted)
    assert (delivery.body, delivery.occurred_at, delivery.snapshot) == ("", "", None)


@pytest.mark.parametrize(
    ("event", "payload", "action"),
    [
        ("pull_request_review", REVIEWED, "edited"),
        ("pull_request_review", REVIEWED, "dismissed"),
        ("pull_request_review_comment", INLINE, "edited"),
    ],
)
def test_an_edited_review_is_ignored(event: str, payload: Any, action: str) -> None:
    assert parse(event, payload | {"action": action}) == IgnoredEvent(event=event, action=action)


def test_a_managed_user_may_own_a_repository() -> None:
    owner = {"login": "mona-cat_octo", "id": 3}
    delivery = parse("issues", LABELED | {"repository": REPOSITORY | {"owner": owner}})
    assert isinstance(delivery, LabelAdded)
    assert delivery.repo == Repo(owner="mona-cat_octo", name="sample")


def test_a_comment_is_parsed_with_the_app_that_wrote_it() -> None:
    app = {"id": 4711, "client_id": "Iv1.abc", "slug": "patchwright", "name": "Patchwright"}
    written = {"performed_via_github_app": app, "created_at": "2026-11-20T06:30:00Z"}
    payload = COMMENTED | {"comment": COMMENTED["comment"] | written}
    assert parse("issue_comment", payload) == CommentCreated(
        repo=Repo(owner="acme", name="sample"),
        repo_id=99,
        number=7,
        comment_id=1234,
        body="@agent go",
        sender=Sender(id=5, login="maintainer", is_bot=True),
        app_names=frozenset({"4711", "Iv1.abc", "patchwright"}),
        installation_id=None,
        occurred_at="2026-11-20T06:30:00Z",
        snapshot=ThreadContent(title="add() subtracts", body="It should add."),
    )


def test_the_text_of_a_new_issue_is_a_comment_unless_the_issue_was_moved() -> None:
    issue = LABELED["issue"] | {"user": {"id": 5}, "created_at": "2026-11-20T05:00:00Z"}
    delivery = parse("issues", LABELED | {"action": "opened", "issue": issue})
    assert isinstance(delivery, CommentCreated)
    assert (delivery.comment_id, delivery.number, delivery.body) == (None, 7, "It should add.")
    assert (delivery.occurred_at, delivery.sender.login) == ("2026-11-20T05:00:00Z", "maintainer")
    # When somebody moves an issue, GitHub names that person as the sender.
    moved = LABELED | {"action": "opened", "issue": issue | {"user": {"id": 6}}}
    assert parse("issues", moved) == IgnoredEvent(event="issues", action="opened")


@pytest.mark.parametrize(
    ("event", "payload", "action"),
    [
        ("issues", LABELED | {"action": "edited", "changes": {"body": {"from": "x"}}}, "edited"),
        ("issues", {"action": "invented next year"}, "invented next year"),
        ("pull_request", PULL_LABELED | {"action": "synchronize"}, "synchronize"),
        ("issue_comment", COMMENTED | {"action": "edited"}, "edited"),
        ("push", {"ref": "refs/heads/main"}, ""),
        ("meteor_shower", {}, ""),
        ("meteor_shower", b"\xff", ""),
        ("", {}, ""),
    ],
)
def test_unknown_events_and_actions_are_ignored(event: str, payload: object, action: str) -> None:
    assert parse(event, payload) == IgnoredEvent(event=event, action=action)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="truncated"),
        pytest.param(b"\xff\xfe{}", id="not UTF-8"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(
            b'{"action":"labeled","issue":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, id="deeper"
        ),
        pytest.param([], id="no object"),
        pytest.param("labeled", id="a string"),
        pytest.param({"action": ["labeled"]}, id="action is a list"),
        pytest.param({"action": "labeled"}, id="the rest is missing"),
        pytest.param(LABELED | {"issue": {"number": "7", "updated_at": "x"}}, id="a number as text"),
        pytest.param(LABELED | {"issue": {"number": -7, "updated_at": "x"}}, id="a negative number"),
        pytest.param(LABELED | {"label": None}, id="no label"),
        pytest.param(LABELED | {"sender": {"login": "x"}}, id="a sender without id"),
        pytest.param(
            LABELED | {"repository": REPOSITORY | {"owner": {"login": "../.."}}}, id="an owner that is a path"
        ),
        pytest.param(LABELED | {"repository": REPOSITORY | {"name": "a/b"}}, id="a name that is a path"),
        pytest.param(b'{"action":"labeled","issue":{"number":' + b"9" * 10_000 + b"}}", id="a huge number"),
    ],
)
def test_a_signed_but_malformed_delivery_is_unreadable(payload: object) -> None:
    with pytest.raises(UnreadableDelivery):
        parse("issues", payload)


def test_a_parse_error_never_repeats_untrusted_text() -> None:
    payload = LABELED | {"issue": {"number": "::set-output name=x::y", "updated_at": "x"}}
    with pytest.raises(UnreadableDelivery) as caught:
        parse("issues", payload)
    assert str(caught.value) == "issue.number: Input should be a valid integer"
    with pytest.raises(UnreadableDelivery, match=r"^the payload: "):
        parse("issues", [])


def test_a_repository_with_an_unusable_name_does_not_hide_the_others() -> None:
    body = {
        "action": "removed",
        "installation": {"id": 5, "permissions": {}, "html_url": "u"},
        "sender": {"id": 1, "login": "boss"},
        "repositories_added": [],
        "repositories_removed": [{"full_name": "acme/sämple"}, {"full_name": "acme/sample"}],
    }
    parsed = parse_delivery("installation_repositories", json.dumps(body).encode())
    assert isinstance(parsed, InstallationChanged)
    assert parsed.repositories == (Repo(owner="acme", name="sample"),)
