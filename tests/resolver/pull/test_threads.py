"""Which review threads wait, and what an account says of them."""

from datetime import UTC, datetime

from resolver.actions import Finish, ThreadAnswer
from resolver.domain import PullRequest
from resolver.events import Call, Decided, Entry, Event, Started, Trajectory, Usage
from resolver.gate import missing
from resolver.pull.threads import answers, open_threads, unanswered, waiting
from tests.resolver.pull_requests import job, pull, thread


def finish(*answered: ThreadAnswer) -> Finish:
    return Finish(cause="c", change="c", checked="c", answers=answered)


def answer(number: int, text: str = "Done.", *, done: bool = True) -> ThreadAnswer:
    return ThreadAnswer(thread=number, done=done, text=text)


def run(pull: PullRequest, *accounts: Finish) -> Trajectory:
    started = Started(
        job=job(), thread=pull, base="a" * 40, base_branch="main", source="s", model="m", sandbox="local"
    )
    events: list[Event] = [started]
    for number, account in enumerate(accounts):
        calls = (Call(id=f"c{number}", action=account),)
        events.append(Decided(thought="", calls=calls, usage=Usage(model="m")))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Trajectory(tuple(Entry(seq=n, at=at, event=event) for n, event in enumerate(events)))


def test_resolved_threads_have_no_number_and_wait_for_nothing() -> None:
    one, two, three = thread("one"), thread("two", resolved=True), thread("three")
    assert open_threads(pull(one, two, three)) == {1: one, 2: three}
    assert waiting(pull(two)) == {}


def test_a_review_asks_for_its_own_threads_and_anything_else_for_all() -> None:
    one, two, done = thread("one"), thread("two", asked=True), thread("done", asked=True, resolved=True)
    assert waiting(pull(one, two, done)) == {2: two}
    assert waiting(pull(one, thread("two"), done)).keys() == {1, 2}


def test_of_two_answers_the_last_counts_and_those_to_no_thread_are_nothing() -> None:
    given = finish(answer(1, "first"), answer(1, "second"), answer(9))
    assert answers(pull(thread("one"), thread("two")), given) == {1: answer(1, "second")}
    assert answers(pull(thread("one")), None) == {}
    assert unanswered(pull(thread("one"), thread("two")), given) == (2,)


def test_an_account_that_leaves_out_a_thread_is_not_taken_at_once() -> None:
    waits = pull(thread("one"), thread("two"), thread("three"))
    assert missing(run(waits, finish(answer(2))), None) == (
        "These review threads wait, and `answers` says nothing of them: 1, 3.",
    )
    assert missing(run(waits, finish(answer(2)), finish(answer(1), answer(2), answer(3))), None) == ()
    assert missing(run(pull(), finish()), None) == ()
