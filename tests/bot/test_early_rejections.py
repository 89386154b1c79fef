"""Commands that cannot do anything are answered without a worker, a reaction, and a queue notice."""

from functools import partial
from pathlib import Path

from patchwright.bot.webhooks.triggers import Triggers
from patchwright.resolver.domain import Job, Rejected
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.pipeline.admission import find_early_rejection
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.settings.settings import Settings
from tests.bot.handler_scenario import HandlerScenario
from tests.bot.handler_scenario import scenario as scenario  # the fixture
from tests.bot.local_services import local_handler


async def test_a_command_that_makes_no_sense_is_answered_at_once_and_not_queued(
    scenario: HandlerScenario, tmp_path: Path
) -> None:
    logs, settings = FileLogStore(tmp_path / "runs"), Settings(data=tmp_path, model="openai/x")
    find = partial(find_early_rejection, forge=scenario.forge, logs=logs, settings=settings)
    scenario.handler = local_handler(
        scenario.queue,
        Triggers(),
        scenario.forge,
        queue_notices=scenario.queue_notices,
        find_rejection=find,
    )
    commands = {
        "@agent retry": "no earlier request here",
        "@agent resume": "no stopped run here",
        "@agent rebase": "works on pull requests only",
        "@agent model=other fix it": "`other`",
        "@agent base=nope fix it": "The branch `nope` does not exist in this repository.",
    }
    for number, (command, reply) in enumerate(commands.items(), start=1):
        past = len(scenario.fake_github.api_requests)
        job = await scenario.request(command)
        assert reply in scenario.replies[-1]
        record = await scenario.queue.get_record(job.id)
        assert record is not None and isinstance(record.result, Rejected)
        paths = [one.path for one in scenario.fake_github.api_requests[past:]]
        assert sum(path.endswith("/maintainer/permission") for path in paths) <= 2  # once as an author
        assert len(scenario.replies) == len(scenario.fake_github.writes) == number  # no reaction and no edit
    # A run that is active may end in a state that can be resumed, so a worker decides.
    await scenario.label()
    resumed = await scenario.request("@agent resume")
    assert resumed.id in {record.job.id for record in await scenario.queue.all_active_jobs()}


async def test_a_mention_that_asks_for_nothing_is_answered_at_once_on_a_pull_request(
    scenario: HandlerScenario, tmp_path: Path
) -> None:
    find = partial(
        find_early_rejection,
        forge=scenario.forge,
        logs=FileLogStore(tmp_path / "runs"),
        settings=Settings(data=tmp_path, model="openai/x"),
    )
    scenario.handler = local_handler(scenario.queue, Triggers(), scenario.forge, find_rejection=find)
    queued = await scenario.request("@agent")
    based = await scenario.request("@agent base=main fix it")
    active = [record.job.id for record in await scenario.queue.all_active_jobs()]
    assert active == [queued.id, based.id]
    scenario.repo.commit("topic", {"a.py": "x = 2\n"})
    scenario.issue = scenario.fake_github.create_pull(scenario.repo, "topic", by="reporter")
    await scenario.request("@agent")
    assert scenario.replies[-1].startswith("There is no open review thread here")
    scenario.fake_github.close_silently(scenario.issue)
    await scenario.request("@agent rebase")
    assert scenario.replies[-1] == "The pull request is closed. Reopen it and ask me again."
    assert [record.job.id for record in await scenario.queue.all_active_jobs()] == active


async def test_a_command_is_queued_if_its_thread_cannot_be_read(
    scenario: HandlerScenario, tmp_path: Path
) -> None:
    async def fail(job: Job, *, has_active_run: bool) -> str | None:
        raise ForgeError("GitHub is down")

    scenario.handler = local_handler(scenario.queue, Triggers(), scenario.forge, find_rejection=fail)
    job = await scenario.request("@agent resume")
    assert [record.job.id for record in await scenario.queue.all_active_jobs()] == [job.id]
