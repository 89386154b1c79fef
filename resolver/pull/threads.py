"""The review threads of a pull request as a run sees them: their numbers, which wait, and what was answered."""

from resolver.actions import Finish, ThreadAnswer
from resolver.domain import PullRequest, ReviewThread


def open_threads(pull: PullRequest) -> dict[int, ReviewThread]:
    """Threads that are not resolved, by the number under which the agent is told of them."""
    return dict(enumerate((thread for thread in pull.threads if not thread.resolved), start=1))


def waiting(pull: PullRequest) -> dict[int, ReviewThread]:
    """Those that a run has to answer: of the review that is the trigger; all, where the trigger stands in none."""
    threads = open_threads(pull)
    asked = {number: thread for number, thread in threads.items() if thread.asked}
    return asked or threads


def answers(pull: PullRequest, account: Finish | None) -> dict[int, ThreadAnswer]:
    """What the agent answers, by thread; of two answers to one thread the last."""
    given = account.answers if account else ()
    threads = open_threads(pull)
    return {answer.thread: answer for answer in given if answer.thread in threads}


def unanswered(pull: PullRequest, account: Finish | None) -> tuple[int, ...]:
    """The numbers of the threads that wait and have no answer in this account."""
    return tuple(sorted(waiting(pull).keys() - answers(pull, account).keys()))
