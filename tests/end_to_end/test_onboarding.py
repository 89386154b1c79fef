"""`@agent setup` proposes a configuration file with a test command that ran, in a pull request."""

import asyncio
import shutil
import tomllib
from collections.abc import Callable

import pytest

from patchwright.bot.github.rest import MAX_ATTEMPTS
from patchwright.resolver.domain import Job, Published, Rejected, Reported
from patchwright.resolver.events import RunStarted, VerificationCompleted
from patchwright.resolver.settings.settings import REPO_CONFIG_PATH, RepoConfig
from tests.end_to_end.conftest import CODE, TESTS, Scenario
from tests.end_to_end.review_setup import open_pull_request, request_job
from tests.end_to_end.test_salvage import service
from tests.end_to_end.workflow_jobs import Workflow

SECRET = "story-webhook-secret"
BRANCH = "patchwright/setup"
MAKEFILE = "test:\n\t{}\n"


def setup_job(scenario: Scenario, by: str = "maintainer", id: str = "") -> Job:
    job = scenario.job(by)
    return job.model_copy(update={"command": "setup", "id": id or job.id})


async def wait_for(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.1)


def config(scenario: Scenario) -> dict[str, object]:
    return tomllib.loads(scenario.repo.read(BRANCH, REPO_CONFIG_PATH))


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.redis
async def test_setup_proposes_the_command_that_ran_and_accepts_a_no(scenario: Scenario) -> None:
    scenario.environment["PATCHWRIGHT_SANDBOX"] = "docker"
    await scenario.script_model()
    async with scenario.serve() as served:
        scenario.fake_github.add_webhook(served.webhook, SECRET)
        await scenario.fake_github.add_comment(scenario.issue, "@agent setup", by="stranger")
        await wait_for(lambda: len(scenario.comments) == 2)
        request = await scenario.fake_github.add_comment(
            scenario.issue, "@agent setup, please", by="maintainer"
        )
        await wait_for(lambda: scenario.comments[3:] and not scenario.comments_in_progress)
        await scenario.fake_github.redeliver(request)
        pull = scenario.pull
        assert (pull.title, pull.head_ref, pull.base_ref, pull.draft) == (
            "Configure Patchwright", BRANCH, "main", False,
        )  # fmt: skip
        assert scenario.repo.diff(pull).count("\ndiff --git") == 0  # one file
        assert set(config(scenario)) == {"test_command"}
        assert [user.login for user in pull.requested_reviewers] == ["maintainer"]
        await scenario.fake_github.close_thread(pull, by="maintainer")
        await scenario.fake_github.add_comment(scenario.issue, "@agent setup", by="maintainer")
        await wait_for(lambda: scenario.comments[5:] and not scenario.comments_in_progress)
    assert scenario.comments[1].strip() == (
        "@stranger needs write access to start a run. A maintainer can add the label `fix-me`."
    )
    assert scenario.comments[3].strip().startswith("I opened pull request #2, which adds")
    assert scenario.comments[5].strip() == (
        "Pull request #2 proposed `.github/patchwright.toml`, and someone closed it. I do not propose the file "
        "again. If you want it after all, reopen that pull request, or add the file yourself."
    )
    assert len(scenario.repo.pulls) == 1
    assert scenario.endpoint.requests == []  # no model is needed


@pytest.mark.slow
async def test_the_pull_request_says_what_was_found_and_what_to_do(scenario: Scenario) -> None:
    await scenario.script_model()
    outcome = await scenario.resolve(setup_job(scenario))
    assert isinstance(outcome, Published) and not outcome.draft
    body = scenario.pull.body
    (verdict,) = [one.verdict for one in scenario.trajectory() if isinstance(one, VerificationCompleted)]
    assert verdict.before is not None and verdict.before.passed_count == 1
    command = config(scenario)["test_command"]
    assert command == verdict.before.command
    assert f"| `{command}` | 1 passed in " in body
    assert "add the label `fix-me` to an issue, or comment `@agent` and a request" in body
    assert "**To decline,** close this pull request." in body
    assert [name for name in RepoConfig.model_fields if f"| `{name}` |" not in body] == []
    (comment,) = scenario.comments
    assert comment.startswith(f"I opened pull request #2, which adds `{REPO_CONFIG_PATH}`.")
    message = scenario.repo.bare.git("show", "-s", "--format=%B", BRANCH).decode()
    # Without a run trailer, failing checks on the commit start no repair.
    assert "Co-authored-by: maintainer" in message and "Patchwright-Run" not in message
    assert "[skip ci]" not in message  # the text of the issue, by a reporter, was not read

    again = await scenario.resolve(setup_job(scenario, id="again"))
    assert isinstance(again, Reported) and len(scenario.repo.pulls) == 1
    assert scenario.comments[1].startswith(f"Pull request #2 already proposes `{REPO_CONFIG_PATH}`.")


@pytest.mark.slow
async def test_each_project_gets_a_table_and_a_command_that_fails_is_left_out(
    make_scenario: Callable[..., Scenario],
) -> None:
    files = {
        "Makefile": MAKEFILE.format("true"),
        "one/pyproject.toml": "[project]\nname = 'one'\n",
        "one/tests/test_one.py": TESTS.replace("calc", "one_calc"),
        "one/one_calc.py": CODE,
        'od "d/pyproject.toml': "[tool.pytest.ini_options]\n",
        'od "d/tests/test_odd.py': "def test_odd():\n    assert True\n",
        "two/Makefile": MAKEFILE.format("false"),
    }
    scenario = make_scenario(files=files)
    await scenario.script_model()
    assert isinstance(await scenario.resolve(setup_job(scenario)), Published)
    tables = config(scenario)["tests"]
    assert isinstance(tables, list)
    assert {table.get("directory", "") for table in tables} == {"", "one", 'od "d'}
    left_out = scenario.pull.body.partition("**Not in the file**")[2].partition("**What to do next")[0]
    assert "`cd two && make test`" in left_out


@pytest.mark.slow
async def test_without_a_command_that_runs_the_answer_says_so_and_nothing_is_pushed(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files={"README": "Hello\n"})
    await scenario.script_model()
    for number, (file, content, answer) in enumerate(
        (
            ("LICENSE", "Free\n", "because I found no tests in this repository."),
            (
                "Makefile",
                MAKEFILE.format("false"),
                "because no test command that I found runs in the sandbox:",
            ),
            (
                REPO_CONFIG_PATH,
                "",
                "because `.github/patchwright.toml` already exists on the default branch.",
            ),
        )
    ):
        scenario.repo.commit("main", {file: content})
        outcome = await scenario.resolve(setup_job(scenario, id=f"{scenario.data.name}-{number}"))
        assert isinstance(outcome, Reported) and outcome.branch is None
        assert scenario.comments[number].startswith(f"I propose nothing, {answer}")
    reason = "exit code 2 after " if shutil.which("make") else "`make` was not found"
    assert f"- `make test`: {reason}" in scenario.comments[1]
    assert (list(scenario.repo.branches), scenario.repo.pulls) == (["main"], ())


@pytest.mark.slow
async def test_setup_on_a_pull_request_or_by_a_stranger_is_rejected(scenario: Scenario) -> None:
    await scenario.script_model()
    stranger = await scenario.resolve(setup_job(scenario, "reporter"))
    assert stranger == Rejected(
        explanation="@reporter needs write access to start a run. A maintainer can add the label `fix-me`."
    )
    on_pull = await scenario.resolve(request_job(scenario, open_pull_request(scenario), command="setup"))
    assert on_pull == Rejected(explanation="this command works on issues only. Write it on an issue.")
    assert BRANCH not in scenario.repo.branches


@pytest.mark.slow
async def test_a_setup_during_an_outage_of_github_repeats_no_test_run_and_opens_one_pull_request(
    scenario: Scenario,
) -> None:
    await scenario.script_model()
    for _ in range(MAX_ATTEMPTS):
        scenario.fake_github.lose_next_request("POST", "/pulls")
    async with service(scenario) as running:
        assert isinstance(await running.done(setup_job(scenario)), Published)
    assert len(scenario.repo.pulls) == 1
    events = scenario.trajectory()
    assert sum(isinstance(event, VerificationCompleted) for event in events) == 1
    assert sum(isinstance(event, RunStarted) for event in events) == 1


@pytest.mark.slow
async def test_setup_works_in_a_workflow_with_two_jobs(scenario: Scenario) -> None:
    workflow = Workflow(scenario)
    await scenario.script_model()
    await workflow.comment("@agent setup")
    first = await workflow.resolve()
    assert (first.code, first.outputs["outcome"]) == (0, "prepared"), first.output
    assert scenario.repo.pulls == ()
    second = await workflow.publish()
    assert (second.code, second.outputs["outcome"]) == (0, "published"), second.output
    assert "test_command" in config(scenario)
