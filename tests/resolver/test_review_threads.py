"""Which review threads wait for a reply, and which replies the agent gave."""

from datetime import UTC, datetime

from patchwright.resolver.activity.finish_checks import find_missing_steps
from patchwright.resolver.domain import PullRequest
from patchwright.resolver.events import Entry, Event, ModelReply, ReplyUsage, RunStarted, ToolCall, Trajectory
from patchwright.resolver.review_threads import (
    get_replies,
    list_open_threads,
    list_unanswered_threads,
    list_waiting_threads,
)
from patchwright.resolver.tool_actions.control_actions import Finish, ThreadReply
from tests.resolver.pull_requests import job, pull, thread


def make_finish(*replies: ThreadReply) -> Finish:
    return Finish(cause="c", change="c", testing="c", thread_replies=replies)


def reply(number: int, text: str = "Done.", *, done: bool = True) -> ThreadReply:
    return ThreadReply(thread=number, is_done=done, text=text)


def run(pull: PullRequest, *finishes: Finish) -> Trajectory:
    started = RunStarted(
        job=job(), thread=pull, base_sha="a" * 40, base_branch="main", source="s", model="m", sandbox="local"
    )
    events: list[Event] = [started]
    for number, finish in enumerate(finishes):
        calls = (ToolCall(id=f"c{number}", action=finish),)
        events.append(ModelReply(thought="", calls=calls, usage=ReplyUsage(model="m")))
    timestamp = datetime(2026, 1, 1, tzinfo=UTC)
    return Trajectory(tuple(Entry(seq=n, timestamp=timestamp, event=event) for n, event in enumerate(events)))


def test_resolved_threads_have_no_number_and_do_not_wait() -> None:
    one, two, three = thread("one"), thread("two", resolved=True), thread("three")
    assert list_open_threads(pull(one, two, three)) == {1: one, 2: three}
    assert list_waiting_threads(pull(two)) == {}


def test_a_review_waits_for_its_own_threads_and_other_triggers_for_all() -> None:
    one, two, done = (
        thread("one"),
        thread("two", is_trigger=True),
        thread("done", is_trigger=True, resolved=True),
    )
    assert list_waiting_threads(pull(one, two, done)) == {2: two}
    assert list_waiting_threads(pull(one, thread("two"), done)).keys() == {1, 2}


def test_the_last_reply_to_a_thread_counts_and_unknown_threads_are_ignored() -> None:
    finish = make_finish(reply(1, "first"), reply(1, "second"), reply(9))
    assert get_replies(pull(thread("one"), thread("two")), finish) == {1: reply(1, "second")}
    assert get_replies(pull(thread("one")), None) == {}
    assert list_unanswered_threads(pull(thread("one"), thread("two")), finish) == (2,)


def test_a_report_that_omits_a_thread_is_not_accepted_at_first() -> None:
    waiting = pull(thread("one"), thread("two"), thread("three"))
    assert find_missing_steps(run(waiting, make_finish(reply(2))), None) == (
        "These review threads wait for a reply, but `thread_replies` contains none for them: 1, 3.",
    )
    assert (
        find_missing_steps(
            run(waiting, make_finish(reply(2)), make_finish(reply(1), reply(2), reply(3))), None
        )
        == ()
    )
    assert find_missing_steps(run(pull(), make_finish()), None) == ()
