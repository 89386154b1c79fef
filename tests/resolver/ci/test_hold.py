"""Which commits keep continuous integration from starting, and which messages do not do so by the way."""

import pytest

from resolver.actions import Browse, Called, SearchWeb
from resolver.ci.hold import CI, is_held, outsiders_in, went_abroad
from resolver.domain import Issue, User
from resolver.events import Call, Decided, Event, Observed, Started, Trajectory, Usage
from runtime.egress.egress import Network
from runtime.observations import Page
from tests.resolver.pull_requests import AUTHOR, comment, job, pull, thread
from tests.stories.parcels import entries

HELD, STARTS = CI(state="held"), CI(state="starts")
STRANGER = User(id=99, login="stranger")


def test_a_held_message_says_so_right_behind_its_subject() -> None:
    message = "Fix: the sum\n\nadd() subtracted.\n\nIssue: #1\nPatchwright-Run: x\n"
    assert HELD.message(message) == (
        "Fix: the sum\n\n[skip ci]\n\nadd() subtracted.\n\nIssue: #1\nPatchwright-Run: x\n"
    )
    assert HELD.message("Fix\n") == "Fix\n\n[skip ci]\n"
    assert STARTS.message(message) == message


@pytest.mark.parametrize(
    "said",
    ["[skip ci]", "[CI skip]", "[no ci]", "[skip actions]", "[actions skip]", "\n\n\nskip-checks: true"],
)
def test_a_title_or_an_account_cannot_keep_ci_from_starting(said: str) -> None:
    message = f"Fix: {said}\n\nThe cause: {said}\n"
    assert is_held(message)
    assert not is_held(STARTS.message(message))
    assert is_held(HELD.message(message))


def test_outsiders_are_whoever_wrote_what_was_shown_and_may_not_write() -> None:
    issue = Issue(
        number=1, title="T", body="B", author=AUTHOR, trusted=False, open=True, url="",
        comments=(comment("a"), comment("b", author=STRANGER, trusted=False)),
    )  # fmt: skip
    assert outsiders_in(issue, None) == ("contributor", "stranger")
    assert outsiders_in(issue.model_copy(update={"trusted": True, "comments": ()}), None) == ()
    said = thread("x", comments=(comment("y", author=STRANGER, trusted=False),))
    assert outsiders_in(pull(said), AUTHOR) == ("stranger",)  # our own text is no outsider's
    assert outsiders_in(pull(thread("x"), trusted=True, review=comment("z", trusted=False)), None) == (
        "maintainer",
    )


def test_the_sentence_names_a_few_and_counts_the_rest() -> None:
    many = CI(state="held", outsiders=tuple(f"u{number}" for number in range(5)))
    assert "things by u0, u1, u2 and 2 more, who may not write to this repository." in many.told("@bot")
    assert "because I read pages of the web, or asked other services." in CI(state="held", abroad=True).told(
        "@bot"
    )
    assert "as the one below it does." in CI(state="held", earlier=True).told("@bot")
    assert "as I was set up to do." in CI(state="held").told("@bot")
    assert STARTS.told("@bot") == ""


def page(url: str) -> Page:
    return Page(url=url, title="T", tree="", tabs=())


@pytest.mark.parametrize(
    ("action", "seen", "network", "abroad"),
    [
        (SearchWeb(query="why"), Called(text="found"), "none", True),
        (Browse(task="t"), page("http://localhost:8000/"), "open", True),
        (Browse(task="t"), page("http://localhost:8000/"), "allow-list", False),
        (SearchWeb(query="why"), page("http://127.0.0.1:8000/x"), "open", False),
        (SearchWeb(query="why"), page("about:blank"), "open", False),
        (SearchWeb(query="why"), page("https://localhost.evil.test/"), "open", True),
    ],
)
def test_what_comes_from_the_web_or_other_services_counts_as_outsiders_words(
    action: Browse | SearchWeb, seen: Called | Page, network: Network, abroad: bool
) -> None:
    started = Started(
        job=job(), thread=pull(), base="a", base_branch="main", source="s", model="m", sandbox="docker",
        network=network,
    )  # fmt: skip
    events: tuple[Event, ...] = (
        Decided(thought="", calls=(Call(id="1", action=action),), usage=Usage(model="m")),
        Observed(call="1", observation=seen),
    )
    assert went_abroad(Trajectory(tuple(entries(started, *events))), started) == abroad
