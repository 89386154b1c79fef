"""CI does not start on commits that strangers could influence until a writer releases them."""

from typing import Any

import pytest

from patchwright.bot.composition import composition_root
from patchwright.bot.github.auth import RequestPolicy
from patchwright.demo.github import FakePullRequest
from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import Published, PullRequest, Rejected, Reported
from patchwright.resolver.pipeline.run_ci import run_ci
from tests.end_to_end.conftest import Scenario
from tests.end_to_end.publish_scenario import PublishScenario
from tests.end_to_end.review_setup import MUL, THREADS, WIP, finish_with_replies, request_job

WORKFLOW = {".github/workflows/ci.yml": "on: [push, pull_request]\n"}


def message(scenario: PublishScenario | Scenario, pull: FakePullRequest) -> str:
    return scenario.repo.bare.git("show", "-s", "--format=%B", pull.head.sha).decode()


async def test_a_commit_for_an_outsiders_issue_is_held_and_the_pull_request_says_so(
    publish_scenario: PublishScenario,
) -> None:
    publish_scenario.repo.commit("main", WORKFLOW)
    await publish_scenario.publish()
    (pull,) = publish_scenario.pulls
    assert message(publish_scenario, pull).startswith(
        "Fix: add(2, 3) gives -1\n\n[skip ci]\n\nadd() subtracted."
    )
    assert (
        "CI is on hold (`[skip ci]`): the agent read text by reporter, who has no write access. "
        "After your review, comment `@agent run-ci`." in pull.body
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "writer", "is_held"),
    [("never", False, False), ("untrusted", True, False), ("always", True, True)],
)
async def test_the_operator_decides_which_commits_are_held(
    publish_scenario: PublishScenario, setting: str, writer: bool, is_held: bool
) -> None:
    publish_scenario.settings = {"hold_ci": setting}
    publish_scenario.repo.commit("main", WORKFLOW)
    if writer:
        publish_scenario.fake_github.set_role(publish_scenario.repo, "reporter", "write")
    await publish_scenario.publish()
    (pull,) = publish_scenario.pulls
    assert ("[skip ci]" in message(publish_scenario, pull), "run-ci" in pull.body) == (is_held, is_held)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "is_told"),
    [
        ({}, False),
        ({".github/workflows/patchwright.yml": "on: {issues: {types: [labeled]}}\n"}, False),
        (
            {".github/workflows/ci.yml": "on: {push: {branches: [main]}, pull_request: {branches: [v*]}}\n"},
            False,
        ),
        ({".github/workflows/ci.yml": "on: {push: {branches: ['patchwright/**']}}\n"}, True),
        ({".github/workflows/ci.yml": "on: {pull_request: {branches: ['!x', ma*]}}\n"}, True),
        ({".github/workflows/ci.yml": "on: [\n"}, True),
        ({".circleci/config.yml": "version: 2\n"}, True),
    ],
)
async def test_held_ci_is_only_told_where_something_would_start(
    publish_scenario: PublishScenario, files: dict[str, str], is_told: bool
) -> None:
    if files:
        publish_scenario.repo.commit("main", files)
    await publish_scenario.publish()
    (pull,) = publish_scenario.pulls
    assert ("[skip ci]" in message(publish_scenario, pull), "CI is on hold" in pull.body) == (True, is_told)


HELD = "Fix: the sum\n\n[skip ci]\n\nIssue: #1\nPatchwright-Run: first\n"


def open_held_pull(scenario: Scenario) -> FakePullRequest:
    """Opens the bot's pull request with a held commit."""
    scenario.repo.commit("patchwright/issue-1", {"calc.py": WIP}, HELD)
    return scenario.fake_github.create_pull(
        scenario.repo, "patchwright/issue-1", by="patchwright[bot]", title="Fix: the sum"
    )


def answers(pull: FakePullRequest) -> list[str]:
    return [one.body.partition("\n")[2].strip() for one in pull.comments if "patchwright:" in one.body]


@pytest.mark.slow
async def test_a_writer_releases_a_held_commit_with_an_empty_commit(scenario: Scenario) -> None:
    pull = open_held_pull(scenario)
    before = pull.head.sha
    await scenario.script_model()
    job = request_job(scenario, pull, command="run-ci")
    outcome = await scenario.resolve(job)
    assert isinstance(outcome, Reported)
    after = pull.head.sha
    assert scenario.repo.bare.git("rev-parse", f"{after}^", f"{after}^{{tree}}").decode().split() == [
        before, scenario.repo.bare.git("rev-parse", f"{before}^{{tree}}").decode().strip(),
    ]  # fmt: skip
    assert message(scenario, pull).startswith(
        "Start continuous integration\n\n"
        "This commit changes nothing. The commits below were on hold until someone\n"
        "with write access reviewed them.\n\nPull-request: #"
    )
    assert "[skip ci]" not in message(scenario, pull) and "Co-authored-by: maintainer" in message(
        scenario, pull
    )
    assert answers(pull) == [
        f"I pushed the empty commit {after[:12]} to `patchwright/issue-1`. The commit message does not "
        f"contain `[skip ci]`, "
        "so continuous integration starts. If you squash and merge, remove `[skip ci]` from the commit "
        "message. Otherwise, GitHub skips continuous integration on `main` too."
    ]
    log = scenario.data / "runs" / job.id / "events.jsonl"
    log.unlink()  # killed before it could log the effect
    await scenario.resolve(job)
    assert (pull.head.sha, len(answers(pull))) == (after, 1)
    again = request_job(scenario, pull, command="please run ci").model_copy(update={"id": "again"})
    await scenario.resolve(again)
    assert pull.head.sha == after
    assert answers(pull)[1] == (
        "Nothing is on hold here. The last commit on `patchwright/issue-1` does not say `[skip ci]`, so "
        "continuous integration was not held back. To run a check again, rerun it on GitHub."
    )


async def test_an_outsider_cannot_release_a_held_commit(scenario: Scenario) -> None:
    pull = open_held_pull(scenario)
    before = pull.head.sha
    await scenario.script_model()
    outcome = await scenario.resolve(request_job(scenario, pull, command="run-ci", by="reporter"))
    assert isinstance(outcome, Rejected)
    assert pull.head.sha == before
    assert answers(pull) == [
        "@reporter needs write access to start a run. A maintainer can add the label `fix-me`."
    ]


async def test_a_release_overtaken_by_a_push_does_nothing(scenario: Scenario) -> None:
    pull = open_held_pull(scenario)
    await scenario.script_model()
    push = lambda: scenario.repo.commit("patchwright/issue-1", {"more.py": "1\n"})  # noqa: E731
    scenario.fake_github.before_next_request("GET", "/git/ref/heads/patchwright/issue-1", push)
    await scenario.resolve(request_job(scenario, pull, command="run-ci"))
    assert answers(pull) == [
        "Someone pushed to `patchwright/issue-1` at the same time, so I pushed nothing. Continuous "
        "integration starts on their commit unless that commit skips it."
    ]
    assert scenario.repo.bare.count_commits("main", "patchwright/issue-1") == 2


async def is_not_released(scenario: Scenario, pull: FakePullRequest, why: str) -> None:
    """Asserts that a writer's release gets this reply and moves no branch."""
    before = pull.head.sha
    await scenario.script_model()
    outcome = await scenario.resolve(request_job(scenario, pull, command="run-ci"))
    assert isinstance(outcome, Reported) and outcome.branch is None
    assert (answers(pull), pull.head.sha) == ([why], before)


@pytest.mark.slow
async def test_a_release_on_a_protected_fork_is_left_to_its_author(scenario: Scenario) -> None:
    fork = scenario.fake_github.create_fork(scenario.repo, "contributor")
    fork.commit("topic", {"calc.py": WIP}, HELD)
    pull = scenario.fake_github.create_pull(
        scenario.repo, "topic", by="contributor", title="Multiply", fork=fork
    )
    await is_not_released(
        scenario, pull,
        "I cannot start continuous integration: the owner of the fork does not allow edits by maintainers. The pull "
        "request's author can start it by pushing a commit that does not say `[skip ci]`.",
    )  # fmt: skip


@pytest.mark.slow
async def test_a_release_on_a_deleted_fork_does_not_blame_its_owner(scenario: Scenario) -> None:
    """GitHub returns null here, although its API description, which the fake server follows, does not allow it."""
    pull = open_held_pull(scenario)
    job = request_job(scenario, pull, command="run-ci")
    settings = composition_root.read_settings({}, scenario.environment, None, None)
    async with (
        composition_root.build_run_dependencies(settings, notify=print) as dependencies,
        composition_root.open_forge(settings, RequestPolicy(write_interval=0)) as forge,
    ):
        thread = await forge.get_thread(job)
        assert isinstance(thread, PullRequest)
        gone = thread.model_copy(update={"head_repo": None, "is_same_repository": False})
        await run_ci(job, gone, await forge.get_repo_facts(job.repo), dependencies, forge)
    assert answers(pull) == [
        "I cannot start continuous integration: the head repository or branch was deleted."
    ]


@pytest.mark.slow
async def test_a_release_with_the_workflow_token_reports_that_ci_does_not_start(scenario: Scenario) -> None:
    pull = open_held_pull(scenario)
    token = scenario.fake_github.create_installation_token(
        scenario.fake_github.install_app(scenario.fake_github.create_app("github-actions"), scenario.repo)
    )
    for name in ("PATCHWRIGHT_APP_ID", "PATCHWRIGHT_PRIVATE_KEY"):
        del scenario.environment[name]
    scenario.environment["GITHUB_TOKEN"] = token
    await is_not_released(
        scenario, pull,
        "I cannot start continuous integration: GitHub starts no workflows for commits that are pushed "
        "with `GITHUB_TOKEN`, "
        "the only token I have. Close and reopen this pull request, or push a commit to its branch.",
    )  # fmt: skip


@pytest.mark.slow
async def test_a_release_rejected_by_github_quotes_the_reason(scenario: Scenario) -> None:
    pull = open_held_pull(scenario)
    scenario.repo.protect("patchwright/*", "Only people push here.")
    await is_not_released(
        scenario, pull,
        "I cannot start continuous integration: GitHub rejected an empty commit on `patchwright/issue-1`: "
        f"{scenario.fake_github.server_url}/acme/calc.git rejected the push to patchwright/issue-1: remote: error: "
        "GH006: Protected branch update failed for refs/heads/patchwright/issue-1.",
    )  # fmt: skip


@pytest.mark.slow
async def test_a_release_does_not_change_the_default_branch(scenario: Scenario) -> None:
    pull = open_held_pull(scenario)
    scenario.repo.bare.git("symbolic-ref", "HEAD", "refs/heads/patchwright/issue-1")
    scenario.repo.default_branch = "patchwright/issue-1"
    await is_not_released(
        scenario, pull,
        ("I cannot start continuous integration: the head branch is the default branch of this "
         "repository, and I never push "
         "to the default branch."),
    )  # fmt: skip


async def follow(scenario: Scenario, pull: FakePullRequest, comment: str = "@agent") -> str:
    """Completes a writer's review of one thread and returns the status comment."""
    review = scenario.fake_github.add_review(pull, THREADS[0], by="maintainer", body=comment)
    await scenario.script_model(
        RecordedTurn("Fix.", MUL),
        *[RecordedTurn("Done.", finish_with_replies((1, True, "It multiplies.")))] * 2,
    )
    assert isinstance(await scenario.resolve(request_job(scenario, pull, review)), Published)
    return answers(pull)[-1]


@pytest.mark.slow
async def test_commits_on_a_held_commit_are_held_and_on_a_released_one_are_not(
    make_scenario: Any,
) -> None:
    scenario = make_scenario(
        {"calc.py": "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a * 2\n", **WORKFLOW}
    )
    pull = open_held_pull(scenario)
    reply = await follow(scenario, pull)
    assert "[skip ci]" in message(scenario, pull)
    assert ("CI is on hold (`[skip ci]`): the parent commit is on hold.") in reply
    scenario.repo.commit("patchwright/issue-1", {"calc.py": WIP}, "A writer's own")
    reply = await follow(scenario, pull)
    assert "[skip ci]" not in message(scenario, pull) and "held" not in reply


@pytest.mark.parametrize("workflows", [True, False])
async def test_a_push_with_the_workflow_token_reports_that_ci_does_not_start(
    publish_scenario: PublishScenario, workflows: bool
) -> None:
    """Complaint 3: CI does not run on the bot's commits."""
    if workflows:
        publish_scenario.repo.commit("main", WORKFLOW)
    publish_scenario.app, publish_scenario.uses_installation_token = (
        publish_scenario.fake_github.create_app("github-actions"),
        True,
    )
    await publish_scenario.publish()
    (pull,) = publish_scenario.pulls
    assert "[skip ci]" not in message(publish_scenario, pull)
    notice = "GitHub starts no workflows for commits that are pushed with `GITHUB_TOKEN`. "
    assert (notice in pull.body) == workflows


async def test_an_app_token_is_not_mistaken_for_the_workflow_token(
    publish_scenario: PublishScenario,
) -> None:
    publish_scenario.repo.commit("main", WORKFLOW)
    publish_scenario.fake_github.create_app("github-actions")  # its account exists, as on GitHub
    publish_scenario.uses_installation_token = True
    await publish_scenario.publish()
    (pull,) = publish_scenario.pulls
    assert "[skip ci]" in message(publish_scenario, pull)
    assert "`@agent run-ci`" in pull.body and "GITHUB_TOKEN" not in pull.body
