"""Which deliveries become a job, and which job."""

import re
import shlex
from datetime import UTC, datetime
from typing import Any

import pytest

from patchwright.bot.webhooks.delivery import (
    CommentCreated,
    Delivery,
    IgnoredEvent,
    LabelAdded,
    Ping,
    ReviewSubmitted,
    Sender,
    ThreadContent,
)
from patchwright.bot.webhooks.triggers import (
    LABEL_COLOR,
    LABEL_DESCRIPTION,
    MAX_LABELS_PER_SECOND,
    Triggers,
    find_job,
    find_request,
    label_command,
    later_job_ids,
    make_job_id,
    possible_job_ids,
)
from patchwright.resolver.domain import Job, Repo, ThreadSnapshot, User

TRIGGERS = Triggers(label="fix-me", mention="@agent", app_id="4711")
MAINTAINER = Sender(id=5, login="maintainer", is_bot=False)
BOT = Sender(id=6, login="dependabot[bot]", is_bot=True)


def labeled(**changes: Any) -> LabelAdded:
    fields = {
        "repo": Repo(owner="Acme", name="sample.py"),
        "repo_id": 99,
        "number": 7,
        "label": "fix-me",
        "occurred_at": "2026-11-20T06:00:00Z",
        "sender": MAINTAINER,
        "installation_id": 31,
    }
    return LabelAdded(**fields | changes)


def comment(body: str, **changes: Any) -> CommentCreated:
    fields = {
        "repo": Repo(owner="Acme", name="sample.py"),
        "repo_id": 99,
        "number": 7,
        "comment_id": 1234,
        "body": body,
        "sender": MAINTAINER,
        "app_names": frozenset(),
        "installation_id": None,
    }
    return CommentCreated(**fields | changes)


def review(body: str, **changes: Any) -> ReviewSubmitted:
    fields = {
        "repo": Repo(owner="Acme", name="sample.py"),
        "repo_id": 99,
        "number": 8,
        "review_id": 61,
        "review_comment_id": None,
        "body": body,
        "sender": MAINTAINER,
        "installation_id": None,
    }
    return ReviewSubmitted(**fields | changes)


def requested_job(delivery: Delivery) -> Job:
    job = find_job(delivery, TRIGGERS)
    assert job is not None
    return job


def test_label_names_ignore_case() -> None:
    assert requested_job(labeled(label="Fix-Me")) == requested_job(labeled())


def test_the_label_requests_a_job_for_the_issue() -> None:
    job = requested_job(labeled())
    assert job == Job(
        id=job.id,
        repo=Repo(owner="Acme", name="sample.py"),
        number=7,
        requester=User(id=5, login="maintainer"),
        command="",
        installation_id=31,
        label="fix-me",
    )
    assert re.fullmatch(r"acme-sample-py-7-[0-9a-f]{12}", job.id)


def test_a_mention_requests_the_text_after_it() -> None:
    assert requested_job(comment("@agent only touch add()")).command == "only touch add()"


@pytest.mark.parametrize(
    "delivery",
    [
        Ping(),
        IgnoredEvent(event="push"),
        labeled(label="fix-me-not"),
        labeled(sender=BOT),
        comment("thank you"),
        comment("@agent help"),
        comment("@agent again", sender=BOT),
        comment("@agent again", app_names=frozenset({"4711", "patchwright"})),
        comment("<!-- patchwright:status -->\nSay `@agent stop`, or @agent stop"),
        comment("Say @agent stop\r\n  <!-- patchwright:status -->"),
        review(""),
        review("looks good"),
        review("@agent go", sender=BOT),
        review("<!-- patchwright:a-run -->\nAs @agent said", review_comment_id=7),
    ],
)
def test_these_deliveries_request_nothing(delivery: Delivery) -> None:
    assert find_job(delivery, TRIGGERS) is None


def test_a_review_and_all_its_comments_are_one_job() -> None:
    jobs = [
        requested_job(review("@agent see these")),
        requested_job(review("@agent why not a + b?", review_comment_id=501, installation_id=31)),
        requested_job(review("This too, @agent", review_comment_id=502)),
    ]
    assert len({job.id for job in jobs}) == 1
    assert {(job.number, job.review_id, job.review_comment_id) for job in jobs} == {(8, 61, None)}


def test_an_inline_comment_without_a_review_is_a_job_of_its_own() -> None:
    one, other = (
        requested_job(review("@agent fix", review_id=None, review_comment_id=number)) for number in (501, 502)
    )
    assert one.id != other.id
    assert (one.review_id, one.review_comment_id, one.command) == (None, 501, "fix")


def test_a_review_and_a_comment_with_the_same_id_are_two_jobs() -> None:
    ids = {
        requested_job(review("@agent go", review_id=61)).id,
        requested_job(review("@agent go", review_id=None, review_comment_id=61)).id,
        requested_job(comment("@agent go", comment_id=61, number=8)).id,
        requested_job(review("@agent go", review_id=62)).id,
    }
    assert len(ids) == 4


def test_a_comment_written_through_another_app_counts() -> None:
    assert requested_job(comment("@agent go", app_names=frozenset({"12", "chat"}))).command == "go"


def test_a_comment_that_quotes_the_bot_counts() -> None:
    assert (
        requested_job(comment("> <!-- patchwright:status -->\n> done\n\n@agent once more")).command
        == "once more"
    )


def test_the_same_trigger_is_the_same_job() -> None:
    assert requested_job(labeled()) == requested_job(labeled())
    assert (
        requested_job(comment("@agent go")).id == requested_job(comment("@agent go", installation_id=31)).id
    )


@pytest.mark.parametrize(
    "other",
    [
        labeled(occurred_at="2026-11-20T06:00:09Z"),  # removed and added again
        labeled(number=8),
        labeled(repo_id=100),
        comment("@agent go"),
        comment("@agent go", comment_id=1235),
    ],
)
def test_another_trigger_is_another_job(other: Delivery) -> None:
    assert requested_job(other).id != requested_job(labeled()).id


def test_a_job_id_is_short_and_safe_for_any_repository_name() -> None:
    job = requested_job(labeled(repo=Repo(owner="a" * 39, name="..-_" * 25)))
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,99}", job.id)
    longest = requested_job(labeled(repo=Repo(owner="a" * 39, name="b" * 100)))
    assert longest.id.removesuffix(longest.id[-15:]) == f"{'a' * 39}-{'b' * 20}"


LABEL_TIME = "2026-11-20T06:00:00Z"


@pytest.mark.parametrize(
    ("delivery", "trigger", "resource_path"),
    [
        (labeled(), ("label", "fix-me", LABEL_TIME), ("issues", "7")),
        (comment("@agent go", comment_id=None), ("opened",), ("issues", "7")),
        (comment("@agent go"), ("comment", "1234"), ("issues", "comments", "1234")),
        (review("@agent go"), ("review", "61"), ()),
        (review("@agent go", review_comment_id=501), ("review", "61"), ("pulls", "comments", "501")),
        (
            review("@agent go", review_id=None, review_comment_id=501),
            ("inline", "501"),
            ("pulls", "comments", "501"),
        ),
    ],
)
def test_each_trigger_has_its_job_id_and_gets_the_reaction_where_it_was_written(
    delivery: Any, trigger: tuple[str, ...], resource_path: tuple[str, ...]
) -> None:
    delivery = delivery.model_copy(update={"occurred_at": LABEL_TIME})
    found = find_request(delivery, TRIGGERS)
    assert found is not None
    assert found.job.id == make_job_id(delivery.repo, 99, delivery.number, *trigger)
    assert found.resource_path == resource_path
    assert found.requested_at == datetime(2026, 11, 20, 6, tzinfo=UTC)


def test_a_redelivery_after_an_upgrade_is_the_same_job() -> None:
    # Jobs of earlier versions are stored under these ids, so they must never change.
    assert requested_job(labeled()).id == "acme-sample-py-7-af023827fe29"
    assert requested_job(comment("@agent go")).id == "acme-sample-py-7-65fc7b1d6db7"
    assert later_job_ids(labeled(), requested_job(labeled()))[0] == "acme-sample-py-7-9bbe10cf3094"


def test_the_command_that_creates_the_label_can_be_pasted_into_a_shell() -> None:
    command = label_command("it's a fix", "acme/sample")
    assert shlex.split(command) == [
        *("gh", "label", "create", "it's a fix", "--repo", "acme/sample"),
        *("--color", LABEL_COLOR, "--description", LABEL_DESCRIPTION),
    ]
    assert " --repo OWNER/REPO " in label_command("fix-me")


@pytest.mark.parametrize("stamp", ["2026-11-20T06:00:00.123Z", "2026-11-20T07:00:00+01:00"])
def test_a_time_written_in_another_way_is_the_same_job(stamp: str) -> None:
    first, second = (find_job(labeled(occurred_at=at), TRIGGERS) for at in ("2026-11-20T06:00:00Z", stamp))
    assert first is not None and second is not None and first.id == second.id


def test_a_label_added_again_within_a_second_has_ids_of_its_own() -> None:
    job, comment_job = requested_job(labeled()), requested_job(comment("@agent go"))
    later = later_job_ids(labeled(), job)
    assert len({job.id, *later}) == 1 + len(later) == MAX_LABELS_PER_SECOND
    assert later == later_job_ids(labeled(occurred_at="2026-11-20T06:00:00.9Z"), job)
    assert later_job_ids(comment("@agent go"), comment_job) == ()
    assert later_job_ids(labeled(), comment_job) == ()


def test_the_events_api_may_report_a_label_one_second_earlier_or_later() -> None:
    at = "2026-11-20T06:00:0{}Z"
    found = {second: requested_job(labeled(occurred_at=at.format(second))).id for second in range(5)}
    delivery = labeled(occurred_at=at.format(2))
    assert possible_job_ids(delivery, requested_job(delivery)) == (found[2], found[1], found[3])
    for other in (comment("@agent go"), labeled(occurred_at="unknown")):
        assert possible_job_ids(other, requested_job(other)) == (requested_job(other).id,)


@pytest.mark.parametrize("make", [labeled, lambda **fields: comment("@agent go", **fields)])
def test_a_job_has_the_thread_as_the_requester_saw_it(make: Any) -> None:
    content, at = ThreadContent(title="add() subtracts", body="It should add."), "2026-11-20T06:00:00Z"
    taken = datetime(2026, 11, 20, 6, tzinfo=UTC)
    expected = ThreadSnapshot(title=content.title, body=content.body, taken_at=taken)
    assert requested_job(make(snapshot=content, occurred_at=at)).snapshot == expected
    assert requested_job(make(snapshot=content, occurred_at="unknown")).snapshot is None


def test_the_text_that_opens_an_issue_is_a_request_of_its_own() -> None:
    found = find_request(comment("@agent go", comment_id=None), TRIGGERS)
    assert found is not None and found.resource_path == ("issues", "7")
    assert (
        found.job.id == make_job_id(found.job.repo, 99, 7, "opened") != requested_job(comment("@agent go")).id
    )
