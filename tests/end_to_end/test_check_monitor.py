"""`patchwright serve` repairs failed checks of its pull request up to a limit, and then reports them."""

import asyncio
from collections.abc import Callable

import pytest

from patchwright.demo.github import FakePullRequest
from patchwright.demo.recorded_model import RecordedTurn
from patchwright.runtime.actions import ReplaceText
from tests.end_to_end.conftest import CODE, DONE, FIX, Scenario
from tests.end_to_end.own_pull_request import LOG, commit_message, open_pull_request, own_comments
from tests.end_to_end.review_setup import MUL, WIP

pytestmark = [pytest.mark.slow, pytest.mark.redis]

SECRET = "story-webhook-secret"
NEG = ReplaceText(path="calc.py", old="def neg(a):\n    return a\n", new="def neg(a):\n    return -a\n")


@pytest.fixture
def scenario(make_scenario: Callable[..., Scenario]) -> Scenario:
    """acme/calc without tests, so that verification runs nothing."""
    scenario = make_scenario({"calc.py": CODE})
    scenario.fake_github.ci.grant_access("patchwright")
    scenario.environment["PATCHWRIGHT_MAX_CI_REPAIRS"] = "1"
    return scenario


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(90):
        while not holds():
            await asyncio.sleep(0.1)


async def fails(scenario: Scenario, pull: FakePullRequest, *names: str) -> None:
    """Fails these checks of the head, and sends each of three kinds of deliveries twice."""
    checks = [
        scenario.fake_github.ci.add_check(scenario.repo, pull.head.sha, name, log=LOG) for name in names
    ]
    for one in checks:
        for event in ("check_run", "workflow_run", "check_suite"):
            await scenario.fake_github.redeliver(
                await scenario.fake_github.ci.deliver_check(pull, one, event)
            )


async def test_a_failing_head_is_repaired_once_and_then_reported(scenario: Scenario) -> None:
    pull = open_pull_request(scenario, {"calc.py": WIP})
    first = pull.head.sha
    await scenario.script_model(RecordedTurn("Fix.", MUL, NEG), *[RecordedTurn("Done.", DONE)] * 2)
    async with scenario.serve() as served:
        scenario.fake_github.add_webhook(served.webhook, SECRET)
        await fails(scenario, pull, "test (3.11)", "test (3.12)")
        await until(lambda: pull.head.sha != first and own_comments(pull)[0].startswith("Checks failed on"))
        second = pull.head.sha
        assert f"\nRepairs-checks-of: {first}\n" in commit_message(scenario, pull)
        await fails(scenario, pull, "test (3.12)")
        await until(lambda: len(own_comments(pull)) == 2)
        await asyncio.sleep(1)
    assert pull.head.sha == second
    assert own_comments(pull)[1] == (
        f"This check still fails on {second[:12]} after 1 repair attempt: `test (3.12)`. I made no "
        "further attempt. Mention me and say what to try next, or push a fix to the branch."
    )
    assert len(own_comments(pull)) == 2
    assert len([run for run in scenario.runs if run.startswith("acme-calc")]) == 2


async def test_a_polling_server_finds_failed_checks(scenario: Scenario) -> None:
    pull = open_pull_request(scenario, {"calc.py": WIP})
    first = pull.head.sha
    scenario.fake_github.ci.add_check(scenario.repo, first, "test", log=LOG)
    await scenario.script_model(RecordedTurn("Fix.", MUL, NEG), *[RecordedTurn("Done.", DONE)] * 2)
    process = await scenario.cli(
        "serve", "--poll", "--port", "0", environment={"PATCHWRIGHT_WEBHOOK_SECRET": ""}
    )
    try:
        await until(lambda: pull.head.sha != first)
        assert f"\nRepairs-checks-of: {first}\n" in commit_message(scenario, pull)
    finally:
        process.terminate()
        await process.communicate()
    assert scenario.fake_github.deliveries == ()


async def test_the_commit_for_an_outsiders_issue_is_held_until_a_writer_releases_it(
    scenario: Scenario,
) -> None:
    scenario.repo.commit("main", {".github/workflows/ci.yml": "on: [push, pull_request]\n"})
    await scenario.script_model(RecordedTurn("Fix.", FIX), *[RecordedTurn("Done.", DONE)] * 2)
    async with scenario.serve() as served:
        scenario.fake_github.add_webhook(served.webhook, SECRET)
        await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
        await until(lambda: scenario.repo.pulls and scenario.comments[0].startswith("I opened"))
        pull = scenario.pull
        held = pull.head.sha
        assert "\n\n[skip ci]\n\n" in commit_message(scenario, pull)
        assert "the agent read text by reporter, who has no write access." in (pull.body or "")
        await scenario.fake_github.add_comment(pull, "@agent run-ci", by="reporter")
        await until(lambda: len(own_comments(pull)) == 1)
        assert pull.head.sha == held
        assert own_comments(pull)[0].startswith("@reporter needs write access to start a run")
        delivery = await scenario.fake_github.add_comment(pull, "@agent run-ci, please", by="maintainer")
        await until(lambda: len(own_comments(pull)) == 2)
        await scenario.fake_github.redeliver(delivery)
        await asyncio.sleep(1)
    assert own_comments(pull)[1].startswith(
        f"I pushed the empty commit {pull.head.sha[:12]} to `patchwright/issue-1`. The commit message "
        f"does not contain `[skip "
        "ci]`"
    )
    assert scenario.repo.bare.git("rev-list", f"{held}..{pull.head.sha}").decode().split() == [pull.head.sha]
    assert "[skip ci]" not in commit_message(scenario, pull) and len(own_comments(pull)) == 2
