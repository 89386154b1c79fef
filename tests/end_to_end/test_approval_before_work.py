"""Complaints 3 and 21: CI on the bot's commits, and a question or a plan before the change."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from patchwright.demo.github import FakePullRequest, Issue
from patchwright.demo.recorded_model import RecordedTurn
from tests.end_to_end.conftest import CODE, TESTS
from tests.end_to_end.server_scenario import ServerScenario, open_server_scenario, own_comments, timeline
from tests.end_to_end.test_plans import ANSWER, PLAN, WORK
from tests.end_to_end.test_replies_to_people import FIXED_CODE, OPENED

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("before"),
]

WHY = "why is it so with 2 and 3, of all the numbers that there are?"
HOW = "this, with a look at what those who call add() expect of it, now and in a year"

WITH_CI = {"calc.py": CODE, "tests/test_calc.py": TESTS, ".github/workflows/ci.yml": "on: pull_request\n"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[ServerScenario]:
    async with open_server_scenario(max_concurrent_jobs=2) as server, server.serve():
        yield server


async def open_pull_request(server: ServerScenario, issue: Issue) -> FakePullRequest:
    await server.fake_github.add_label(issue, "fix-me", by="maintainer")
    await server.wait_until_idle()
    (pull,) = issue.repo.pulls
    return pull


def is_held(pull: FakePullRequest) -> bool:
    return "[skip ci]" in pull.repo.bare.git("log", "-1", "--format=%B", pull.head.sha).decode()


async def test_ci_runs_on_bot_commits_unless_an_outsider_contributed_text_until_a_writer_agrees(
    server: ServerScenario,
) -> None:
    ours_alone = await open_pull_request(server, server.issue("trusted", by="maintainer"))
    assert not is_held(ours_alone) and "CI is on hold" not in str(ours_alone.body)
    pull = await open_pull_request(server, server.issue("foreign", by="reporter", files=WITH_CI))
    assert is_held(pull)
    assert (
        "CI is on hold (`[skip ci]`): the agent read text by reporter, who has no write access. "
        "After your review, comment `@agent run-ci`."
    ) in str(pull.body)
    await server.fake_github.add_comment(pull, "@agent run-ci", by="reporter")
    await server.wait_until_idle()
    assert is_held(pull)
    await server.fake_github.add_comment(pull, "@agent run-ci", by="maintainer")
    await server.wait_until_idle()
    assert not is_held(pull)
    assert timeline(pull) == [
        "reporter: @agent run-ci",
        "patchwright[bot]: @reporter needs write access to start a run. A maintainer can add the label `fix-me`.",
        "maintainer: @agent run-ci [eyes]",
        "patchwright[bot]: I pushed the empty commit ID to `patchwright/issue-1`. The commit message "
        "does not contain `[skip "
        "ci]`, so continuous integration starts. If you squash and merge, remove `[skip ci]` from the "
        "commit message. Otherwise, GitHub skips continuous integration on `main` too.",
    ]


async def test_a_question_and_a_plan_precede_any_change_until_a_writer_agrees(
    server: ServerScenario,
) -> None:
    issue = server.issue("planned")
    server.model.scripts |= {WHY: (RecordedTurn("It.", ANSWER),), HOW: (RecordedTurn("So.", PLAN), *WORK)}
    await server.fake_github.add_comment(issue, f"@agent explain {WHY}", by="maintainer")
    await server.wait_until_idle()
    await server.fake_github.add_comment(issue, f"@agent plan {HOW}", by="maintainer")
    await server.wait_until_idle()
    await server.fake_github.add_comment(issue, "@agent go", by="outsider")
    await server.wait_until_idle()
    assert (issue.repo.branches, issue.repo.pulls, issue.repo.read("main", "calc.py")) == (
        ("main",),
        (),
        CODE,
    )
    assert "To approve the plan, comment `@agent go`" in own_comments(issue)[1]
    await server.fake_github.add_comment(issue, "@agent go", by="colleague")
    await server.wait_until_idle()
    assert timeline(issue) == [
        f"maintainer: @agent explain {WHY} [eyes]",
        "patchwright[bot]: It subtracts: `calc.py:2` says `return a - b`.",
        f"maintainer: @agent plan {HOW} [eyes]",
        "patchwright[bot]: Here is my plan. I have not changed anything yet.",
        "outsider: @agent go",
        "patchwright[bot]: @outsider needs write access to approve a plan. A maintainer can repeat the command.",
        "colleague: @agent go [eyes]",
        OPENED.format(2),
    ]
    assert issue.repo.read("patchwright/issue-1", "calc.py") == FIXED_CODE
