"""The message of a commit: a subject that a log shows whole, and a body that says why."""

import pytest

from resolver import prose
from resolver.actions import Finish
from resolver.domain import Issue, User

CAUSE = "add() subtracted its second argument, because the sign was turned round when it was rewritten for floats."
CHANGE = "It adds again, and the sign is written down in the test."


def issue(title: str) -> Issue:
    author = User(id=1, login="reporter")
    return Issue(number=7, title=title, body="", author=author, trusted=False, open=True, url="https://x/7")


@pytest.mark.parametrize("title", ["add(2, 3) gives -1", "add " * 80, "two\nlines", "closes #9, @team"])
def test_it_has_one_short_subject_and_says_what_was_wrong_and_what_was_done(title: str) -> None:
    message = prose.commit_message(issue(title), Finish(cause=CAUSE, change=CHANGE, checked="pytest"))
    subject, empty, *body = message.rstrip("\n").split("\n")
    assert subject.startswith("Fix: ") and len(subject) <= 72 and empty == ""
    assert max(map(len, body)) <= 72
    told = " ".join(body)
    assert CAUSE in told and CHANGE in told
    assert body[-1] == "Issue: #7"
    assert "#9" not in message and "@team" not in message, "a commit closes and calls nobody by foreign words"


def test_without_an_account_it_is_still_a_message() -> None:
    assert (
        prose.commit_message(issue("add() subtracts"), None).split()
        == "Fix: add() subtracts Issue: #7".split()
    )
