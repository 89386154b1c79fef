"""Common complaints about such bots, as conversations in which they do not occur."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.runtime.actions import ReplaceText
from tests.end_to_end.conftest import CODE, RUN_TESTS
from tests.end_to_end.review_setup import WIP, finish_with_replies
from tests.end_to_end.server_scenario import ServerScenario, open_server_scenario, timeline, wait_until

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("complaints"),
]

OPENED = (
    "patchwright[bot]: I opened pull request #{}. **Fixed:** 1 new test fails without this change and "
    "passes with it, and no test broke."
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[ServerScenario]:
    async with open_server_scenario(max_concurrent_jobs=3) as server, server.serve():
        yield server


async def test_every_rejected_requester_gets_a_reply_with_the_reason(server: ServerScenario) -> None:
    # Complaint 2: a trigger that is rejected or ignored silently.
    issue = server.issue("silence")
    await server.fake_github.add_comment(issue, "@agent please fix this", by="outsider")
    await server.wait_until_idle()
    await server.fake_github.add_comment(issue, "@agent yes, fix it", by="maintainer")
    await server.wait_until_idle()
    assert timeline(issue) == [
        "outsider: @agent please fix this",
        "patchwright[bot]: @outsider needs write access to start a run. A maintainer can add the label `fix-me`.",
        "maintainer: @agent yes, fix it [eyes]",
        OPENED.format(2),
    ]


async def test_each_request_in_an_issue_gets_one_comment(
    server: ServerScenario,
) -> None:
    # Complaint 4: comment spam.
    issue = server.issue("spam")
    server.block_run("spam")
    why = ReplaceText(path="calc.py", old="return a + b", new="return a + b  # it adds")
    answer = finish_with_replies((1, True, "It says so now."))
    server.model.scripts[f"Fix: {issue.title}"] = (
        RecordedTurn("Say.", why),
        RecordedTurn("Run.", RUN_TESTS),
        RecordedTurn("Done.", answer),
    )
    await server.fake_github.add_label(issue, "fix-me", by="maintainer")
    await server.wait_for_requests("spam")
    await server.fake_github.add_comment(issue, "@agent stop", by="maintainer")
    await server.wait_until_idle()
    server.unblock_run("spam")
    await server.fake_github.add_comment(issue, "@agent resume", by="maintainer")
    await server.wait_until_idle()
    (pull,) = issue.repo.pulls
    review = server.fake_github.add_review(
        pull, ("calc.py", 2, "Say why."), by="maintainer", body="@agent please"
    )
    await server.fake_github.deliver_review(pull, review)
    await server.wait_until_idle()
    await server.fake_github.add_comment(pull, "@agent thanks, and name the test better", by="maintainer")
    await server.wait_until_idle()
    assert timeline(issue) == [
        "maintainer labels it fix-me",
        "patchwright[bot]: This run was stopped, and then continued. Here is its result.",
        "maintainer: @agent stop [eyes]",
        "maintainer: @agent resume [eyes]",
        OPENED.format(2),
    ]
    assert timeline(pull) == [
        "maintainer at calc.py:2: Say why.",
        "maintainer reviews: @agent please",
        "patchwright[bot]: I pushed ID to `patchwright/issue-1`.",
        "patchwright[bot] at calc.py:2: Done in ID. It says so now.",
        "maintainer: @agent thanks, and name the test better [eyes]",
        "patchwright[bot]: I pushed ID to `patchwright/issue-1`.",
    ]


async def test_a_run_on_a_fork_respects_the_maintainer_edit_setting(
    server: ServerScenario,
) -> None:
    # Complaint 6: pull requests from forks fail.
    repo = server.repository("forks")
    for owner, lets in (("open-hand", True), ("closed-hand", False)):
        fork = server.fake_github.create_fork(repo, owner)
        fork.commit("topic", {"calc.py": WIP})
        server.fake_github.create_pull(
            repo, "topic", by=owner, fork=fork, maintainer_can_modify=lets, title=f"Multiply, by {owner}"
        )
    for pull in repo.pulls:
        await server.fake_github.add_comment(pull, "@agent mul adds", by="maintainer")
    await server.wait_until_idle()
    assert [timeline(pull) for pull in repo.pulls] == [
        ["maintainer: @agent mul adds [eyes]", "patchwright[bot]: I pushed ID to `topic`."],
        [
            "maintainer: @agent mul adds [eyes]",
            "patchwright[bot]: I pushed nothing to this pull request: the fork's owner does not allow "
            "edits by maintainers.",
        ],
    ]


async def test_two_simultaneous_requests_do_not_cancel_each_other(server: ServerScenario) -> None:
    # Complaint 20: concurrency that cancels itself.
    one = server.issue("at-once")
    two = server.fake_github.create_issue(
        one.repo, title="The other one", body="It should add.", by="reporter"
    )
    await asyncio.gather(
        server.fake_github.add_label(one, "fix-me", by="maintainer"),
        server.fake_github.add_comment(one, "@agent fix it", by="colleague"),
        server.fake_github.add_label(two, "fix-me", by="colleague"),
        server.fake_github.add_comment(two, "@agent fix it", by="maintainer"),
    )
    await server.wait_until_idle()
    for issue, pull in zip((one, two), sorted(one.repo.pulls, key=lambda pull: pull.head_ref), strict=True):
        lines = [line for line in timeline(issue) if line.startswith("patchwright[bot]")]
        assert set(lines) == {
            OPENED.format(pull.number)
        }  # the second request was read by the run, or queued behind it
        assert issue.repo.read(f"patchwright/issue-{issue.number}", "calc.py") == FIXED_CODE


FIXED_CODE = CODE.replace("a - b", "a + b")

ACCIDENTS = (
    "the @agents are at it again",
    "see @agent-smith and @agent/team",
    "/agent fix it",
    "write to help@agent.example or me@agent",
    "https://example.org/@agent",
    "> @agent fix it\n\nNo, do not.",
    "say `@agent fix it` when you are ready",
    "```\n@agent fix it\n```",
    "    @agent fix it",
    "<!-- @agent fix it -->",
    "a word that is \\@agent escaped",
    "<pre>\n@agent stop\n</pre>",
    "<code>@agent retry</code>",
    "<blockquote>\n\n@agent fix it\n\n</blockquote>",
)


async def test_a_text_that_only_resembles_a_mention_starts_nothing(server: ServerScenario) -> None:
    # Complaint 24: accidental triggers.
    issue = server.issue("accidents")
    for text in ACCIDENTS:
        await server.fake_github.add_comment(issue, text, by="maintainer")
    innocent = server.fake_github.add_comment_silently(issue, "It happens on Mondays.", by="maintainer")
    async with httpx.AsyncClient(trust_env=False) as client:  # edited in the browser by its author
        await client.patch(
            f"{server.fake_github.api_url}/repos/acme/accidents/issues/comments/{innocent.id}",
            json={"body": "@agent fix it"},
            headers={"Authorization": f"Bearer {server.fake_github.create_token('maintainer')}"},
        )
    for bot in ("dependabot[bot]", "patchwright[bot]"):
        server.fake_github.user(bot).kind = "Bot"
        await server.fake_github.add_comment(issue, "@agent fix it", by=bot)
    await wait_until(lambda: any(one.action == "edited" for one in server.fake_github.deliveries))
    await server.wait_until_idle()
    assert server.model.count_requests(issue.title) == 0
    assert [one for one in issue.comments if one.reactions or one.author.login == "patchwright[bot]"] == [
        issue.comments[-1]  # by a person who uses the bot's name: it got no reply either
    ]
    await server.fake_github.add_comment(issue, "Now, @agent, fix it.", by="maintainer")
    await server.wait_until_idle()
    assert timeline(issue)[-2:] == ["maintainer: Now, @agent, fix it. [eyes]", OPENED.format(2)]
