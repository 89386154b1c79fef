"""What is let in from the internet."""

import hashlib
import hmac
import json
from typing import Any

import pytest

from bot.webhooks.delivery import (
    Branch,
    Closed,
    CommentMade,
    Delivery,
    Ignored,
    Labelled,
    Ping,
    Reach,
    ReviewSaid,
    Sender,
    Unlabelled,
    Unreadable,
    Written,
    read,
)
from bot.webhooks.signature import is_signed
from resolver.domain import Repo
from tests.bot.deliveries import (
    COMMENTED,
    INLINE,
    INSTALLATION,
    ISSUE,
    LABELED,
    PULL_CLOSED,
    PULL_LABELED,
    REPOSITORIES,
    REPOSITORY,
    REVIEWED,
    SECRET,
    signed,
)


def said(event: str, payload: object) -> Delivery:
    return read(event, signed(event, payload)[1])


def test_githubs_own_example_signature_is_accepted() -> None:
    """Source: docs.github.com, "Validating webhook deliveries", "Testing the webhook payload validation"."""
    claimed = b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert is_signed(b"Hello, World!", claimed, b"It's a Secret to Everybody")


def test_github_says_hello() -> None:
    assert said("ping", {"zen": "Keep it logically awesome."}) == Ping()


def test_a_label_put_on_an_issue_is_read() -> None:
    assert said("issues", LABELED) == Labelled(
        repo=Repo(owner="acme", name="sample"),
        repo_id=99,
        number=7,
        label="fix-me",
        at="2026-11-20T06:00:00Z",
        sender=Sender(id=5, login="maintainer", bot=False),
        installation=31,
        pinned=Written(title="add() subtracts", body="It should add."),
    )


def test_a_label_put_on_a_pull_request_is_read() -> None:
    assert said("pull_request", PULL_LABELED) == Labelled(
        repo=Repo(owner="acme", name="sample"),
        repo_id=99,
        number=8,
        label="fix-me",
        at="2026-11-20T07:00:00Z",
        sender=Sender(id=5, login="maintainer", bot=False),
        installation=31,
    )


WHERE = Repo(owner="acme", name="sample")


@pytest.mark.parametrize(("event", "payload"), [("issues", LABELED), ("pull_request", PULL_LABELED)])
def test_a_label_taken_away_is_read(event: str, payload: dict[str, Any]) -> None:
    read_as = said(event, payload | {"action": "unlabeled"})
    thread = payload.get("issue") or payload["pull_request"]
    assert read_as == Unlabelled(
        repo=WHERE,
        number=thread["number"],
        label="fix-me",
        at=thread["updated_at"],
        sender=Sender(id=5, login="maintainer", bot=False),
    )


@pytest.mark.parametrize(
    ("action", "at"),
    [
        ("closed", "2026-11-20T05:00:00Z"),
        ("deleted", "2026-11-20T06:00:00Z"),
        ("transferred", "2026-11-20T06:00:00Z"),
    ],
)
def test_an_issue_that_goes_is_read_with_the_time_at_which_it_went(action: str, at: str) -> None:
    payload = LABELED | {"action": action, "issue": ISSUE | {"closed_at": "2026-11-20T05:00:00Z"}}
    assert said("issues", payload) == Closed(repo=WHERE, number=7, how=action, at=at, branch=None)


@pytest.mark.parametrize(("merged", "how"), [(True, "merged"), (False, "closed")])
def test_a_pull_request_that_is_closed_says_whether_it_was_merged(merged: bool, how: Any) -> None:
    pull = PULL_CLOSED["pull_request"]
    read_as = said("pull_request", PULL_CLOSED | {"pull_request": pull | {"merged": merged}})
    branch = Branch(name="patchwright/issue-7", same_repository=True, author=77)
    assert read_as == Closed(repo=WHERE, number=8, how=how, at="2026-11-20T09:00:00Z", branch=branch)


@pytest.mark.parametrize("head", [{"ref": "x", "repo": None}, {"ref": "x", "repo": {"id": 100}}])
def test_a_branch_of_a_fork_is_never_taken_for_ours(head: dict[str, Any]) -> None:
    read_as = said(
        "pull_request", PULL_CLOSED | {"pull_request": PULL_CLOSED["pull_request"] | {"head": head}}
    )
    assert isinstance(read_as, Closed)
    assert read_as.branch == Branch(name="x", same_repository=False, author=77)


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
def test_an_installation_says_what_an_app_may_do_now(action: str, lost: bool) -> None:
    assert said("installation", INSTALLATION | {"action": action}) == Reach(
        installation=31,
        lost=lost,
        repositories=(),
        permissions={"issues": "write", "metadata": "read"},
        page="https://github.com/organizations/acme/settings/installations/31",
    )


@pytest.mark.parametrize(("action", "name"), [("added", "new"), ("removed", "old")])
def test_repositories_come_to_an_installation_and_go(action: str, name: str) -> None:
    read_as = said("installation_repositories", REPOSITORIES | {"action": action})
    assert isinstance(read_as, Reach)
    assert (read_as.lost, read_as.repositories) == (action == "removed", (Repo(owner="acme", name=name),))


def test_a_review_and_its_inline_comments_say_that_they_belong_together() -> None:
    both = {
        "repo": Repo(owner="acme", name="sample"),
        "repo_id": 99,
        "number": 8,
        "review": 61,
        "sender": Sender(id=5, login="maintainer", bot=False),
    }
    assert said("pull_request_review", REVIEWED) == ReviewSaid(
        **both, inline=None, body="@agent mind these", installation=None
    )
    assert said("pull_request_review_comment", INLINE) == ReviewSaid(
        **both, inline=501, body="@agent why not a + b?", installation=31
    )


def test_a_review_without_a_text_is_read() -> None:
    payload = REVIEWED | {"review": REVIEWED["review"] | {"body": None}}
    delivery = said("pull_request_review", payload)
    assert isinstance(delivery, ReviewSaid) and delivery.body == ""


@pytest.mark.parametrize(
    ("event", "payload", "action"),
    [
        ("pull_request_review", REVIEWED, "edited"),
        ("pull_request_review", REVIEWED, "dismissed"),
        ("pull_request_review_comment", INLINE, "edited"),
    ],
)
def test_what_was_edited_later_in_a_review_asks_for_nothing(event: str, payload: Any, action: str) -> None:
    assert said(event, payload | {"action": action}) == Ignored(event=event, action=action)


def test_a_managed_user_may_own_a_repository() -> None:
    owner = {"login": "mona-cat_octo", "id": 3}
    delivery = said("issues", LABELED | {"repository": REPOSITORY | {"owner": owner}})
    assert isinstance(delivery, Labelled)
    assert delivery.repo == Repo(owner="mona-cat_octo", name="sample")


def test_a_comment_is_read_with_the_app_that_wrote_it() -> None:
    app = {"id": 4711, "client_id": "Iv1.abc", "slug": "patchwright", "name": "Patchwright"}
    payload = COMMENTED | {"comment": COMMENTED["comment"] | {"performed_via_github_app": app}}
    assert said("issue_comment", payload) == CommentMade(
        repo=Repo(owner="acme", name="sample"),
        repo_id=99,
        number=7,
        comment_id=1234,
        body="@agent go",
        sender=Sender(id=5, login="maintainer", bot=True),
        through_app=frozenset({"4711", "Iv1.abc", "patchwright"}),
        installation=None,
        pinned=Written(title="add() subtracts", body="It should add."),
    )


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
def test_what_we_do_not_know_is_ignored_and_no_error(event: str, payload: object, action: str) -> None:
    assert said(event, payload) == Ignored(event=event, action=action)


HEADERS, BODY = signed("issues", LABELED)


@pytest.mark.parametrize(
    ("headers", "body", "secret"),
    [
        pytest.param({}, BODY, SECRET, id="no header at all"),
        pytest.param(HEADERS | {"x-hub-signature-256": ""}, BODY, SECRET, id="empty"),
        pytest.param(HEADERS | {"x-hub-signature-256": "sha256="}, BODY, SECRET, id="no digest"),
        pytest.param(HEADERS | {"x-hub-signature-256": "sha256=" + "0" * 64}, BODY, SECRET, id="wrong"),
        pytest.param(HEADERS | {"x-hub-signature-256": "sha256=\xff\ud800"}, BODY, SECRET, id="not ASCII"),
        pytest.param(HEADERS, json.dumps(json.loads(BODY), indent=1).encode(), SECRET, id="re-encoded"),
        pytest.param(HEADERS, BODY + b"\n", SECRET, id="one byte more"),
        pytest.param(HEADERS, BODY, "another", id="another secret"),
        pytest.param(*signed("issues", LABELED, secret=""), "", id="no secret is set"),
        pytest.param(
            {
                "x-github-event": "issues",
                "x-hub-signature": "sha1=" + hmac.new(SECRET.encode(), BODY, hashlib.sha1).hexdigest(),
            },
            BODY,
            SECRET,
            id="SHA-1 alone",
        ),
        pytest.param(
            HEADERS
            | {"x-hub-signature-256": "sha1=" + hmac.new(SECRET.encode(), BODY, hashlib.sha1).hexdigest()},
            BODY,
            SECRET,
            id="SHA-1 under the other name",
        ),
        pytest.param(HEADERS | {"x-hub-signature-256": "sha256=" + "0" * 64}, b"{", SECRET, id="not parsed"),
    ],
)
def test_a_delivery_without_proof_is_forged(headers: dict[str, str], body: bytes, secret: str) -> None:
    claimed = headers.get("x-hub-signature-256", "").encode(errors="replace")
    assert not is_signed(body, claimed, secret.encode())


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut"),
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
def test_a_signed_delivery_that_makes_no_sense_is_unreadable(payload: object) -> None:
    with pytest.raises(Unreadable):
        said("issues", payload)


def test_a_complaint_never_repeats_foreign_text() -> None:
    payload = LABELED | {"issue": {"number": "::set-output name=x::y", "updated_at": "x"}}
    with pytest.raises(Unreadable) as caught:
        said("issues", payload)
    assert str(caught.value) == "issue.number: Input should be a valid integer"
