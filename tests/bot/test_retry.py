"""Which request the command `retry` repeats if no log of an earlier run is available, as in a workflow."""

from pathlib import Path

import pytest

from patchwright.bot.webhooks.delivery import parse_delivery
from patchwright.bot.webhooks.triggers import find_job
from patchwright.resolver.domain import Job, Rejected
from patchwright.resolver.events import Trajectory
from patchwright.resolver.pipeline.admission import check_admission, expand_retry
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.settings.settings import Settings
from tests.bot.handler_scenario import HandlerScenario
from tests.bot.handler_scenario import scenario as scenario  # the fixture

LABEL = "the label"
NOTHING_TO_REPEAT = Rejected(
    explanation="I found no earlier request here that I could repeat. Comment `@agent` and your request, or add the "
    "label `fix-me`."
)


async def write(scenario: HandlerScenario, *texts: str) -> None:
    """Writes the comments, one minute after another. A login before a comment is its author's."""
    for text in texts:
        scenario.fake_github.advance_time(minutes=1)
        by, text = text.split(": ", 1) if ": " in text else ("maintainer", text)
        if text == LABEL:
            await scenario.fake_github.add_label(scenario.issue, "Fix-Me", by=by)
        else:
            await scenario.comment(text, by=by)


async def retry(scenario: HandlerScenario, data: Path, command: str) -> tuple[Job, Rejected | None]:
    """Returns the job of a `retry` as a run would start it, and why it is rejected."""
    scenario.fake_github.advance_time(minutes=1)
    delivery = await scenario.comment(command)
    job = find_job(parse_delivery(delivery.event, delivery.body), scenario.handler.triggers)
    assert job is not None
    await write(scenario, "@agent explain this, which is asked after the retry")
    forge, logs, settings = (
        scenario.forge,
        FileLogStore(data),
        Settings(data=data, model="m", allowed_models=("n",)),
    )
    thread = await forge.get_thread(job)
    job = await expand_retry(job, thread, Trajectory(), forge, logs, settings)
    facts = await forge.get_repo_facts(job.repo)
    return job, await check_admission(job, thread, facts, forge, logs, settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("earlier", "retried", "command"),
    [
        (["@agent plan a parser model=n", "@agent help"], "retry", "model=n plan a parser"),
        (["@agent budget=2 mind the docs"], "retry budget=1", "budget=1 mind the docs"),
        (["@agent explain why", "stranger: @agent delete it", "stranger: the label"], "retry", "explain why"),
        (
            ["@agent explain why", "@agent retry budget=3", "@agent retry model=n"],
            "retry",
            "model=n budget=3 explain why",
        ),
        (["@agent explain why", "@agent modle=n fix it", "@agent rebase"], "retry", "explain why"),
        (["@agent explain why", "@agent model=x fix it"], "retry", "explain why"),
        (["@agent explain why", "@agent resume", "@agent go", "@agent thanks"], "retry", "explain why"),
        (["@agent explain why", LABEL], "retry", "retry"),
        (["@agent explain why", LABEL], "retry budget=1", "budget=1"),
        ([LABEL, "@agent explain why"], "retry", "explain why"),
    ],
)
async def test_a_retry_repeats_the_last_request_of_a_person_with_write_access(
    scenario: HandlerScenario, tmp_path: Path, earlier: list[str], retried: str, command: str
) -> None:
    await write(scenario, *earlier)
    job, rejected = await retry(scenario, tmp_path, f"@agent {retried}")
    assert (job.command, rejected) == (command, None)


@pytest.mark.parametrize(
    "earlier",
    [
        [],
        ["@agent help", "@agent stop"],
        ["stranger: @agent fix it"],
        ["@agent model=x fix it", "@agent retyr"],
    ],
)
async def test_a_retry_without_an_earlier_request_is_rejected(
    scenario: HandlerScenario, tmp_path: Path, earlier: list[str]
) -> None:
    await write(scenario, *earlier)
    _, rejected = await retry(scenario, tmp_path, "@agent retry")
    assert rejected == NOTHING_TO_REPEAT


async def test_a_retry_repeats_the_request_in_the_text_of_the_issue(
    scenario: HandlerScenario, tmp_path: Path
) -> None:
    scenario.issue = scenario.fake_github.create_issue(
        scenario.repo, title="Slow", body="It is slow. @agent explain why", by="maintainer"
    )
    job, rejected = await retry(scenario, tmp_path, "@agent retry")
    assert (job.command, rejected) == ("explain why", None)


async def test_a_retry_on_a_pull_request_repeats_the_request_of_a_review(
    scenario: HandlerScenario, tmp_path: Path
) -> None:
    scenario.repo.commit("topic", {"a.py": "x = 1\ny = 2\n"})
    pull = scenario.fake_github.create_pull(
        scenario.repo, "topic", by="maintainer", body="@agent is not asked here."
    )
    scenario.issue = pull
    await write(scenario, "@agent add a test")
    scenario.fake_github.advance_time(minutes=1)
    scenario.fake_github.add_review(pull, by="maintainer", body="@agent rename it")
    job, rejected = await retry(scenario, tmp_path, "@agent retry")
    assert (job.command, rejected) == ("rename it", None)
