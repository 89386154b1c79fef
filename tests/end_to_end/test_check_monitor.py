"""`patchwright serve` hears that checks of its pull request fail, repairs them so many times, and then says so."""

import asyncio
from collections.abc import Callable

import pytest

from patchwright.demo.github import FakePullRequest
from patchwright.demo.recorded_model import RecordedTurn
from patchwright.runtime.actions import ReplaceText
from tests.end_to_end.conftest import CODE, DONE, FIX, Scene
from tests.end_to_end.own_pull_request import LOG, answers, message, opened
from tests.end_to_end.review_setup import MUL, WIP

pytestmark = [pytest.mark.slow, pytest.mark.redis]

SECRET = "story-webhook-secret"
NEG = ReplaceText(path="calc.py", old="def neg(a):\n    return a\n", new="def neg(a):\n    return -a\n")


@pytest.fixture
def scene(a_scene: Callable[..., Scene]) -> Scene:
    """acme/calc without a test: nothing is run to prove anything."""
    scene = a_scene({"calc.py": CODE})
    scene.world.ci.grant_access("patchwright")
    scene.environment["PATCHWRIGHT_MAX_CI_REPAIRS"] = "1"
    return scene


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(90):
        while not holds():
            await asyncio.sleep(0.1)


async def fails(scene: Scene, pull: FakePullRequest, *names: str) -> None:
    """These checks of its head fail, and webhooks tell of each in three ways, each twice."""
    checks = [scene.world.ci.add_check(scene.repo, pull.head.sha, name, log=LOG) for name in names]
    for one in checks:
        for event in ("check_run", "workflow_run", "check_suite"):
            await scene.world.redeliver(await scene.world.ci.deliver_check(pull, one, event))


async def test_a_failing_head_is_repaired_once_and_then_said(scene: Scene) -> None:
    pull = opened(scene, {"calc.py": WIP})
    first = pull.head.sha
    await scene.will(RecordedTurn("Mend.", MUL, NEG), *[RecordedTurn("Done.", DONE)] * 2)
    async with scene.serving() as served:
        scene.world.add_webhook(served.webhook, SECRET)
        await fails(scene, pull, "test (3.11)", "test (3.12)")
        await until(lambda: pull.head.sha != first and answers(pull)[0].startswith("Checks failed on"))
        second = pull.head.sha
        assert f"\nRepairs-checks-of: {first}\n" in message(scene, pull)
        await fails(scene, pull, "test (3.12)")
        await until(lambda: len(answers(pull)) == 2)
        await asyncio.sleep(1)
    assert pull.head.sha == second
    assert answers(pull)[1] == (
        f"This check still fails on {second[:12]} after 1 repair attempt: `test (3.12)`. I made no "
        "further attempt. Mention me and say what to try next, or push a fix to the branch."
    )
    assert len(answers(pull)) == 2
    assert len([run for run in scene.runs if run.startswith("acme-calc")]) == 2


async def test_a_server_that_polls_finds_them_by_looking(scene: Scene) -> None:
    pull = opened(scene, {"calc.py": WIP})
    first = pull.head.sha
    scene.world.ci.add_check(scene.repo, first, "test", log=LOG)
    await scene.will(RecordedTurn("Mend.", MUL, NEG), *[RecordedTurn("Done.", DONE)] * 2)
    process = await scene.cli(
        "serve", "--poll", "--port", "0", environment={"PATCHWRIGHT_WEBHOOK_SECRET": ""}
    )
    try:
        await until(lambda: pull.head.sha != first)
        assert f"\nRepairs-checks-of: {first}\n" in message(scene, pull)
    finally:
        process.terminate()
        await process.communicate()
    assert scene.world.deliveries == ()


async def test_an_outsiders_issue_is_held_until_a_writer_says_run_ci(scene: Scene) -> None:
    await scene.will(RecordedTurn("Mend.", FIX), *[RecordedTurn("Done.", DONE)] * 2)
    async with scene.serving() as served:
        scene.world.add_webhook(served.webhook, SECRET)
        await scene.world.add_label(scene.issue, "fix-me", by="maintainer")
        await until(lambda: scene.repo.pulls and scene.comments[0].startswith("I opened"))
        pull = scene.pull
        held = pull.head.sha
        assert "\n\n[skip ci]\n\n" in message(scene, pull)
        assert "I read text by reporter, who cannot write to this repository." in (pull.body or "")
        await scene.world.add_comment(pull, "@agent run-ci", by="reporter")
        await until(lambda: len(answers(pull)) == 1)
        assert pull.head.sha == held
        assert answers(pull)[0].startswith(
            "I did not start a run: reporter does not have write access to this repository"
        )
        told = await scene.world.add_comment(pull, "@agent run-ci, please", by="maintainer")
        await until(lambda: len(answers(pull)) == 2)
        await scene.world.redeliver(told)
        await asyncio.sleep(1)
    assert answers(pull)[1].startswith(
        f"I pushed the empty commit {pull.head.sha[:12]} to `patchwright/issue-1`. It does not say `[skip "
        "ci]`"
    )
    assert scene.repo.bare.git("rev-list", f"{held}..{pull.head.sha}").decode().split() == [pull.head.sha]
    assert "[skip ci]" not in message(scene, pull) and len(answers(pull)) == 2
