"""Which deliveries become a job, and which job."""

import re
from typing import Any

import pytest

from bot.webhooks.delivery import CommentMade, Delivery, Ignored, Labelled, Ping, ReviewSaid, Sender
from bot.webhooks.triggers import Triggers, job_for
from resolver.domain import Job, Repo, User

RULES = Triggers(label="fix-me", mention="@agent", app_id="4711")
MAINTAINER = Sender(id=5, login="maintainer", bot=False)
BOT = Sender(id=6, login="dependabot[bot]", bot=True)


def labelled(**but: Any) -> Labelled:
    said = {
        "repo": Repo(owner="Acme", name="sample.py"),
        "repo_id": 99,
        "number": 7,
        "label": "fix-me",
        "at": "2026-11-20T06:00:00Z",
        "sender": MAINTAINER,
        "installation": 31,
    }
    return Labelled(**said | but)


def comment(body: str, **but: Any) -> CommentMade:
    said = {
        "repo": Repo(owner="Acme", name="sample.py"),
        "repo_id": 99,
        "number": 7,
        "comment_id": 1234,
        "body": body,
        "sender": MAINTAINER,
        "through_app": frozenset(),
        "installation": None,
    }
    return CommentMade(**said | but)


def review(body: str, **but: Any) -> ReviewSaid:
    said = {
        "repo": Repo(owner="Acme", name="sample.py"),
        "repo_id": 99,
        "number": 8,
        "review": 61,
        "inline": None,
        "body": body,
        "sender": MAINTAINER,
        "installation": None,
    }
    return ReviewSaid(**said | but)


def wanted(delivery: Delivery) -> Job:
    job = job_for(delivery, RULES)
    assert job is not None
    return job


def test_a_label_whose_name_is_written_in_another_case_is_the_same() -> None:
    assert wanted(labelled(label="Fix-Me")) == wanted(labelled())


def test_the_label_asks_for_the_issue() -> None:
    job = wanted(labelled())
    assert job == Job(
        id=job.id,
        repo=Repo(owner="Acme", name="sample.py"),
        number=7,
        requester=User(id=5, login="maintainer"),
        command="",
        installation=31,
        label="fix-me",
    )
    assert re.fullmatch(r"acme-sample-py-7-[0-9a-f]{12}", job.id)


def test_a_mention_asks_for_what_follows_it() -> None:
    assert wanted(comment("@agent only touch add()")).command == "only touch add()"


@pytest.mark.parametrize(
    "delivery",
    [
        Ping(),
        Ignored(event="push"),
        labelled(label="fix-me-not"),
        labelled(sender=BOT),
        comment("thank you"),
        comment("@agent again", sender=BOT),
        comment("@agent again", through_app=frozenset({"4711", "patchwright"})),
        comment("<!-- patchwright:status -->\nSay `@agent stop`, or @agent stop"),
        comment("Say @agent stop\r\n  <!-- patchwright:status -->"),
        review(""),
        review("looks good"),
        review("@agent go", sender=BOT),
        review("<!-- patchwright:a-run -->\nAs @agent said", inline=7),
    ],
)
def test_these_ask_for_nothing(delivery: Delivery) -> None:
    assert job_for(delivery, RULES) is None


def test_a_review_and_all_its_comments_are_one_job_whichever_of_them_mentions_us() -> None:
    jobs = [
        wanted(review("@agent mind these")),
        wanted(review("@agent why not a + b?", inline=501, installation=31)),
        wanted(review("This too, @agent", inline=502)),
    ]
    assert len({job.id for job in jobs}) == 1
    assert {(job.number, job.review, job.inline) for job in jobs} == {(8, 61, None)}


def test_an_inline_comment_without_a_review_is_a_job_of_its_own() -> None:
    one, other = (wanted(review("@agent fix", review=None, inline=number)) for number in (501, 502))
    assert one.id != other.id
    assert (one.review, one.inline, one.command) == (None, 501, "fix")


def test_a_review_and_a_comment_of_the_same_number_are_two_jobs() -> None:
    ids = {
        wanted(review("@agent go", review=61)).id,
        wanted(review("@agent go", review=None, inline=61)).id,
        wanted(comment("@agent go", comment_id=61, number=8)).id,
        wanted(review("@agent go", review=62)).id,
    }
    assert len(ids) == 4


def test_a_person_who_writes_through_somebody_elses_app_is_heard() -> None:
    assert wanted(comment("@agent go", through_app=frozenset({"12", "chat"}))).command == "go"


def test_a_person_who_quotes_us_is_heard() -> None:
    assert wanted(comment("> <!-- patchwright:status -->\n> done\n\n@agent once more")).command == "once more"


def test_the_same_trigger_is_the_same_job() -> None:
    assert wanted(labelled()) == wanted(labelled())
    assert wanted(comment("@agent go")).id == wanted(comment("@agent go", installation=31)).id


@pytest.mark.parametrize(
    "other",
    [
        labelled(at="2026-11-20T06:00:09Z"),  # taken off and put on again
        labelled(number=8),
        labelled(repo_id=100),
        comment("@agent go"),
        comment("@agent go", comment_id=1235),
    ],
)
def test_another_trigger_is_another_job(other: Delivery) -> None:
    assert wanted(other).id != wanted(labelled()).id


def test_a_jobs_name_is_short_and_safe_whatever_the_repository_is_called() -> None:
    job = wanted(labelled(repo=Repo(owner="a" * 39, name="..-_" * 25)))
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,99}", job.id)
