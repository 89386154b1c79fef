"""Numbers the review threads of a pull request for the prompt. Finds the threads that wait for a reply, and
the agent's replies.
"""

from patchwright.resolver.domain import PullRequest, ReviewThread
from patchwright.resolver.tool_actions.control_actions import Finish, ThreadReply


def list_open_threads(pull: PullRequest) -> dict[int, ReviewThread]:
    """Returns the unresolved threads by their numbers in the prompt."""
    return dict(enumerate((thread for thread in pull.threads if not thread.resolved), start=1))


def list_waiting_threads(pull: PullRequest) -> dict[int, ReviewThread]:
    """Returns the threads that the run must reply to. These are the threads of the review that triggered the
    run, or all open threads if no review triggered it.
    """
    threads = list_open_threads(pull)
    triggering = {number: thread for number, thread in threads.items() if thread.is_trigger}
    return triggering or threads


def get_replies(pull: PullRequest, finish: Finish | None) -> dict[int, ThreadReply]:
    """Returns the agent's replies by thread number. If a thread has several replies, the last one counts."""
    replies = finish.thread_replies if finish else ()
    threads = list_open_threads(pull)
    return {reply.thread: reply for reply in replies if reply.thread in threads}


def list_unanswered_threads(pull: PullRequest, finish: Finish | None) -> tuple[int, ...]:
    """Returns the numbers of the waiting threads that the agent has not answered."""
    return tuple(sorted(list_waiting_threads(pull).keys() - get_replies(pull, finish).keys()))
