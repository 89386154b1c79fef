"""A request is withdrawn during its run: the run stops, saves its work, and reports it in its status comment."""

import asyncio

import pytest

from patchwright.bot.composition import composition_root
from patchwright.bot.github.auth import RequestPolicy
from patchwright.bot.job_runner import JobCanceled
from patchwright.bot.status_comment import report_failure
from patchwright.demo.github import Delivery
from patchwright.resolver.domain import Published
from patchwright.resolver.forge import MaskingForge
from tests.end_to_end.conftest import CODE, FIX_TURNS, Scenario
from tests.end_to_end.test_commands import answers, until, wait_until_requested, waiting, when


async def _is_stopped(scenario: Scenario, because: str, gone: Delivery) -> None:
    """Asserts that the comment gives the reason, the work is on a branch, and a redelivery changes nothing."""
    await until(lambda: any(answer.startswith("I had to stop") for answer in answers(scenario)))
    await scenario.fake_github.redeliver(gone)
    await scenario.fake_github.redeliver(scenario.fake_github.deliveries[0])
    await asyncio.sleep(1)
    (answer,) = answers(scenario)
    assert answer.startswith(f"I had to stop before I finished. {because}")
    (branch,) = [name for name in scenario.repo.branches if name != "main"]
    assert scenario.repo.read(branch, "calc.py") == CODE.replace("a - b", "a + b")
    assert scenario.repo.pulls == ()


@pytest.mark.slow
@pytest.mark.redis
async def test_a_run_ends_when_its_issue_is_closed(scenario: Scenario) -> None:
    requested = asyncio.Event()
    await scenario.script_model(*waiting(scenario), on_request=when(1, requested))
    async with scenario.serve() as served:
        await wait_until_requested(scenario, served, requested)
        closed = await scenario.fake_github.close_thread(scenario.issue, by="reporter")
        await _is_stopped(scenario, "Someone closed this conversation.", closed)


@pytest.mark.redis
@pytest.mark.slow
async def test_a_run_ends_when_its_label_is_removed(scenario: Scenario) -> None:
    requested = asyncio.Event()
    await scenario.script_model(*waiting(scenario), on_request=when(1, requested))
    async with scenario.serve() as served:
        await wait_until_requested(scenario, served, requested)
        gone = await scenario.fake_github.remove_label(scenario.issue, "fix-me", by="maintainer")
        await _is_stopped(scenario, "@\u200bmaintainer removed the label.", gone)


@pytest.mark.slow
async def test_a_stop_just_after_a_run_changes_nothing(
    scenario: Scenario,
) -> None:
    """For example, merging its own pull request closes the issue."""
    await scenario.script_model(*FIX_TURNS)
    assert isinstance(await scenario.resolve(), Published)
    before = answers(scenario)
    settings = composition_root.read_settings({}, scenario.environment, None, None)
    async with (
        composition_root.build_run_dependencies(settings, notify=print) as dependencies,
        composition_root.open_forge(settings, RequestPolicy(write_interval=0)) as forge,
    ):
        await report_failure(
            MaskingForge(forge, dependencies.secrets.mask),
            scenario.job(),
            JobCanceled("Someone closed this conversation."),
            dependencies,
        )
    assert answers(scenario) == before
    assert before[0].startswith("I opened pull request #2")


async def test_a_stop_before_a_run_began_is_not_reported_as_unfinished_work(scenario: Scenario) -> None:
    await scenario.script_model()
    settings = composition_root.read_settings({}, scenario.environment, None, None)
    async with (
        composition_root.build_run_dependencies(settings, notify=print) as dependencies,
        composition_root.open_forge(settings) as forge,
    ):
        await report_failure(
            forge, scenario.job(), JobCanceled("Someone closed this conversation."), dependencies
        )
    (comment,) = scenario.comments
    assert comment.startswith("**Not done.** Someone closed this conversation.\n")
