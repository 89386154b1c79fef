"""A pull request of a contributor with a review, and what people see of the result."""

from typing import Any

from patchwright.demo.github import FakePullRequest, Review
from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import Job, JobId, Repo, User
from patchwright.resolver.tool_actions.control_actions import Finish, ThreadReply
from patchwright.runtime.actions import ReplaceText
from tests.end_to_end.conftest import CODE, DONE, RUN_TESTS, Scenario

WIP = CODE + "\n\ndef mul(a, b):\n    return a + b\n\n\ndef neg(a):\n    return a\n\n\nTMP = 1\n"
LINES = {"mul": 10, "neg": 14, "tmp": 17, "name": 9}
THREADS = (
    ("calc.py", LINES["mul"], "This adds."),
    ("calc.py", LINES["neg"], "This must negate."),
    ("calc.py", LINES["tmp"], "Left over?"),
    ("calc.py", LINES["name"], "Call it `times`."),
)
MUL = ReplaceText(path="calc.py", old="return a + b\n\n\ndef neg", new="return a * b\n\n\ndef neg")
NEG = ReplaceText(path="calc.py", old="def neg(a):\n    return a\n", new="def neg(a):\n    return -a\n")
TMP = ReplaceText(path="calc.py", old="\n\nTMP = 1\n", new="")
TEST_MUL = ReplaceText(
    path="tests/test_calc.py",
    old="from calc import double\n",
    new="from calc import double, mul\n\n\ndef test_mul():\n    assert mul(2, 3) == 6\n",
)


def finish_with_replies(*answers: tuple[int, bool, str]) -> Finish:
    given = tuple(ThreadReply(thread=number, is_done=yes, text=text) for number, yes, text in answers)
    return DONE.model_copy(update={"thread_replies": given})


FOUR = finish_with_replies(
    (1, True, "It multiplies now."),
    (2, True, "It negates now."),
    (3, True, "Taken out."),
    (4, False, "`mul` is what operator.mul is called."),
)
WORK = (
    RecordedTurn("Fix.", MUL, NEG, TMP, TEST_MUL),
    RecordedTurn("Run.", RUN_TESTS),
    RecordedTurn("Done.", FOUR),
)
QUICK = (RecordedTurn("Fix.", MUL, NEG, TMP), RecordedTurn("Done.", FOUR), RecordedTurn("Done.", FOUR))
"""The turns for a repository without tests; the finish is rejected once."""


def open_pull_request(scenario: Scenario, files: dict[str, Any] | None = None, **how: Any) -> FakePullRequest:
    """Opens a contributor's pull request from `topic`."""
    repo = how.get("fork") or scenario.repo
    repo.commit("topic", files or {"calc.py": WIP})
    return scenario.fake_github.create_pull(
        scenario.repo, "topic", by="contributor", title="Multiply and negate", **how
    )


def request_job(
    scenario: Scenario,
    pull: FakePullRequest,
    review: Review | None = None,
    command: str = "",
    by: str = "maintainer",
) -> Job:
    person = scenario.fake_github.user(by)
    return Job(
        id=JobId(f"acme-calc-{pull.number}-{review.id if review else command[:3]}-{scenario.data.name}"),
        repo=Repo(owner="acme", name="calc"),
        number=pull.number,
        requester=User(id=person.id, login=person.login),
        command=command,
        review_id=review.id if review else None,
    )


def own_thread_replies(pull: FakePullRequest) -> list[list[str]]:
    """Returns the bot's replies in each review thread, without the hidden tag."""
    ours = "<!-- patchwright:"
    return [
        [one.body.partition("\n")[2].strip() for one in thread.comments if one.body.startswith(ours)]
        for thread in pull.review_threads
    ]


def status_comment(pull: FakePullRequest) -> str:
    """Returns the status comment without the hidden tag."""
    (comment,) = [one for one in pull.comments if one.body.startswith("<!-- patchwright:")]
    return comment.body.partition("\n")[2]


def initial_prompt(scenario: Scenario, request: int = 0) -> str:
    content: str = scenario.endpoint.requests[request]["messages"][1]["content"]
    return content
