"""Turns comments into jobs as the server does, and resolves them in this process."""

from patchwright.bot.webhooks.delivery import parse_delivery
from patchwright.bot.webhooks.triggers import Triggers, find_job
from patchwright.demo.github import FakePullRequest, Issue
from patchwright.resolver.domain import Job, Rejected
from tests.end_to_end.conftest import Scenario


async def comment_job(
    scenario: Scenario, text: str, by: str = "maintainer", on: Issue | FakePullRequest | None = None
) -> Job:
    """Adds a comment and returns the job that it requests."""
    scenario.fake_github.add_webhook("http://127.0.0.1:9/nobody", "none")
    delivery = await scenario.fake_github.add_comment(on or scenario.issue, text, by=by)
    job = find_job(parse_delivery("issue_comment", delivery.body), Triggers())
    assert job is not None
    return job


async def rejection_text(scenario: Scenario, text: str, by: str = "maintainer") -> str:
    """Adds a comment that is rejected and returns the bot's reply."""
    outcome = await scenario.resolve(await comment_job(scenario, text, by))
    assert isinstance(outcome, Rejected), outcome
    return scenario.comments[-1].strip()
