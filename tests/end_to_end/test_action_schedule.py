"""A scheduled workflow resolves each unanswered request once, the oldest first."""

from datetime import timedelta

import pytest
from pydantic import SecretStr

from patchwright.bot.github.auth import TokenAuth
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.github_action.scheduled import find_missed_delivery
from patchwright.bot.webhooks.delivery import CommentCreated, IgnoredEvent, LabelAdded
from patchwright.bot.webhooks.triggers import Triggers, find_job
from tests.contracts.forges import QUICK
from tests.end_to_end.conftest import Scenario
from tests.end_to_end.publish_scenario import CALC
from tests.end_to_end.workflow_jobs import Workflow

AT_ONCE = timedelta(minutes=-1)
"""Dates each change a second after the previous one, so that the fake server's clock is ahead."""


@pytest.fixture
def scheduled(scenario: Scenario) -> Workflow:
    workflow = Workflow(scenario)
    event = scenario.data / "event.json"
    event.write_text('{"schedule": "7 * * * *"}')
    workflow.event_environment = {"GITHUB_EVENT_NAME": "schedule", "GITHUB_EVENT_PATH": str(event)}
    return workflow


async def test_a_scheduled_run_finds_labels_without_a_reply(
    scheduled: Workflow,
) -> None:
    scenario, rules = scheduled.scenario, Triggers()
    scenario.fake_github.add_label_silently(scenario.issue, "fix-me", by="maintainer")
    scenario.fake_github.add_comment_silently(scenario.issue, "@agent fix it", by="maintainer")
    urls = scenario.fake_github.urls
    async with GitHubForge(TokenAuth(SecretStr(scheduled.token("publish"))), urls, policy=QUICK) as github:
        found = await find_missed_delivery(github, CALC, rules, AT_ONCE)
        assert isinstance(found, LabelAdded)
        young = await find_missed_delivery(github, CALC, rules, timedelta(hours=1))
        assert isinstance(young, IgnoredEvent)
        assert "a request in #1 has no reply, but it is younger than 60 minutes" in young.reason
        for kind in (LabelAdded, CommentCreated):
            found = await find_missed_delivery(github, CALC, rules, AT_ONCE)
            assert isinstance(found, kind)
            job = find_job(found, rules)
            assert job is not None
            await github.upsert_comment(CALC, 1, job.id, "I am at it.")
        answered = await find_missed_delivery(github, CALC, rules, AT_ONCE)
        assert isinstance(answered, IgnoredEvent)
        assert answered.reason == "No missed requests: all requests of the last 3 days have a reply."


async def test_a_recent_label_is_left_to_its_workflow(scheduled: Workflow) -> None:
    scheduled.scenario.fake_github.add_label_silently(scheduled.scenario.issue, "fix-me", by="maintainer")
    done = await scheduled.run_single_job()
    assert (done.code, done.outputs["outcome"]) == (0, "ignored"), done.output
    assert "Nothing to do yet: a request in #1 has no reply" in done.output


async def test_a_schedule_in_two_jobs_reports_the_required_input(scheduled: Workflow) -> None:
    done = await scheduled.resolve()
    assert done.code == 2
    assert "must use `part: all`" in done.output


async def test_a_schedule_outside_a_repository_reports_the_missing_variable(scheduled: Workflow) -> None:
    done = await scheduled.run_single_job(GITHUB_REPOSITORY="")
    assert done.code == 2
    assert "GITHUB_REPOSITORY is not set" in done.output
