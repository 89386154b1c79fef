"""Which commits are held back from continuous integration, and which messages must not hold it."""

import pytest

from patchwright.resolver.actions import ExternalToolResult
from patchwright.resolver.ci.ci_hold import CiHold, find_outsiders, has_read_external_content, is_held
from patchwright.resolver.domain import Issue, User
from patchwright.resolver.events import (
    Event,
    ModelReply,
    ReplyUsage,
    RunStarted,
    ToolCall,
    ToolResult,
)
from patchwright.resolver.tool_actions.lookup_actions import SearchWeb
from patchwright.resolver.tool_actions.subagent_actions import Browse
from patchwright.runtime.egress_policy import NetworkMode
from patchwright.runtime.observations import PageSnapshot
from tests.resolver.pull_requests import AUTHOR, comment, job, pull, thread
from tests.resolver.sample_runs import run_of

HELD, STARTS = CiHold(state="held"), CiHold(state="starts")
STRANGER = User(id=99, login="stranger")


def test_a_held_commit_has_the_marker_after_its_subject() -> None:
    message = "Fix: the sum\n\nadd() subtracted.\n\nIssue: #1\nPatchwright-Run: x\n"
    assert HELD.mark_message(message) == (
        "Fix: the sum\n\n[skip ci]\n\nadd() subtracted.\n\nIssue: #1\nPatchwright-Run: x\n"
    )
    assert HELD.mark_message("Fix\n") == "Fix\n\n[skip ci]\n"
    assert STARTS.mark_message(message) == message


@pytest.mark.parametrize(
    "text",
    ["[skip ci]", "[CI skip]", "[no ci]", "[skip actions]", "[actions skip]", "\n\n\nskip-checks: true"],
)
def test_a_title_or_report_cannot_prevent_ci(text: str) -> None:
    message = f"Fix: {text}\n\nThe cause: {text}\n"
    assert is_held(message)
    assert not is_held(STARTS.mark_message(message))
    assert is_held(HELD.mark_message(message))


def test_outsiders_are_authors_without_write_access() -> None:
    issue = Issue(
        number=1, title="T", body="B", author=AUTHOR, trusted=False, open=True, url="",
        comments=(comment("a"), comment("b", author=STRANGER, trusted=False)),
    )  # fmt: skip
    assert find_outsiders(issue, None) == ("contributor", "stranger")
    assert find_outsiders(issue.model_copy(update={"trusted": True, "comments": ()}), None) == ()
    text = thread("x", comments=(comment("y", author=STRANGER, trusted=False),))
    assert find_outsiders(pull(text), AUTHOR) == ("stranger",)  # the bot's own text does not count
    assert find_outsiders(pull(thread("x"), trusted=True, review=comment("z", trusted=False)), None) == (
        "maintainer",
    )


def test_the_notice_names_a_few_outsiders_and_counts_the_rest() -> None:
    hold = CiHold(state="held", outsiders=tuple(f"u{number}" for number in range(5)))
    assert "the agent read text by u0, u1, u2 and 2 more, who have no write access." in hold.render_notice(
        "@bot"
    )
    assert "I read web pages or used external services." in CiHold(
        state="held", read_external_content=True
    ).render_notice("@bot")
    assert "the parent commit is on hold." in CiHold(state="held", parent_held=True).render_notice("@bot")
    assert "I am configured to hold every commit." in CiHold(state="held").render_notice("@bot")
    assert STARTS.render_notice("@bot") == ""


def snapshot(url: str) -> PageSnapshot:
    return PageSnapshot(url=url, title="T", tree="", tabs=())


@pytest.mark.parametrize(
    ("action", "observation", "network", "expected"),
    [
        (SearchWeb(query="why"), ExternalToolResult(text="found"), "none", True),
        (Browse(task="t"), snapshot("http://localhost:8000/"), "open", True),
        (Browse(task="t"), snapshot("http://localhost:8000/"), "allowlist", False),
        (SearchWeb(query="why"), snapshot("http://127.0.0.1:8000/x"), "open", False),
        (SearchWeb(query="why"), snapshot("about:blank"), "open", False),
        (SearchWeb(query="why"), snapshot("https://localhost.evil.test/"), "open", True),
    ],
)
def test_web_pages_and_external_services_count_as_external_content(
    action: Browse | SearchWeb,
    observation: ExternalToolResult | PageSnapshot,
    network: NetworkMode,
    expected: bool,
) -> None:
    started = RunStarted(
        job=job(), thread=pull(), base_sha="a", base_branch="main", source="s", model="m", sandbox="docker",
        network=network,
    )  # fmt: skip
    events: tuple[Event, ...] = (
        ModelReply(thought="", calls=(ToolCall(id="1", action=action),), usage=ReplyUsage(model="m")),
        ToolResult(call_id="1", observation=observation),
    )
    assert has_read_external_content(run_of(started, *events), started) == expected
