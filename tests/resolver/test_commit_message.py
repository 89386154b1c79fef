"""The commit message has a short subject, and a body that gives the reason."""

import pytest

from patchwright.resolver.domain import Issue, User
from patchwright.resolver.pipeline.commit_message import CommitMessage
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.tool_actions.control_actions import Finish

CAUSE = "add() subtracted its second argument, because the sign was turned round when it was rewritten for floats."
CHANGE = "It adds again, and the sign is written down in the test."


def issue(title: str) -> Issue:
    author = User(id=1, login="reporter")
    return Issue(number=7, title=title, body="", author=author, trusted=False, open=True, url="https://x/7")


@pytest.mark.parametrize("title", ["add(2, 3) gives -1", "sum " * 80, "two\nlines", "closes #9, @team"])
def test_a_commit_message_has_a_short_subject_and_names_cause_and_change(title: str) -> None:
    message = render_reply(
        "commit.txt.j2",
        thread=issue(title),
        finish=Finish(cause=CAUSE, change=CHANGE, testing="pytest"),
        requester="",
        run="",
        files=(),
        written=None,
    )
    subject, empty, *body = message.rstrip("\n").split("\n")
    assert subject.startswith("Fix: ") and len(subject) <= 72 and empty == ""
    assert max(map(len, body)) <= 72
    text = " ".join(body)
    assert CAUSE in text and CHANGE in text
    assert body[-1] == "Issue: #7"
    assert "#9" not in message and "@team" not in message, "a commit closes and calls nobody by foreign words"


def test_a_commit_message_needs_no_finish_call() -> None:
    assert (
        render_reply(
            "commit.txt.j2",
            thread=issue("add() subtracts"),
            finish=None,
            requester="",
            run="",
            files=(),
            written=None,
        ).split()
        == "Fix: add() subtracts Issue: #7".split()
    )


def test_a_message_that_a_micro_agent_wrote_is_used_without_mentions_and_references() -> None:
    message = render_reply(
        "commit.txt.j2",
        thread=issue("add() subtracts"),
        finish=Finish(cause=CAUSE, change=CHANGE, testing="pytest"),
        requester="",
        run="",
        files=(),
        written=CommitMessage(subject="Rename add to plus for @team", body=f"Closes #9. {CAUSE}"),
    )
    subject, empty, *body = message.rstrip("\n").split("\n")
    assert (subject, empty) == ("Rename add to plus for @ team", "")
    assert body[0].startswith("Closes # 9.") and max(map(len, body)) <= 72
    assert CHANGE not in " ".join(body) and body[-1] == "Issue: #7"
