"""The result of the tests is shown as a check run on the commit, if permissions allow it."""

from collections.abc import Callable

import pytest

from patchwright.demo.github.state import APP_PERMISSIONS
from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import Published
from tests.end_to_end.conftest import CODE, DONE, FIX, FIX_TURNS, Scenario
from tests.end_to_end.review_setup import THREADS, WORK, open_pull_request, request_job


def in_a_workflow(scenario: Scenario, **permissions: str) -> dict[str, str]:
    """Returns the environment of a workflow whose token has these permissions."""
    actions = scenario.fake_github.create_app("github-actions", {**APP_PERMISSIONS, **permissions})
    token = scenario.fake_github.create_installation_token(
        scenario.fake_github.install_app(actions, scenario.repo)
    )
    for name in ("PATCHWRIGHT_APP_ID", "PATCHWRIGHT_PRIVATE_KEY"):
        scenario.environment.pop(name)
    return {"GITHUB_TOKEN": token, "PATCHWRIGHT_WORKFLOW_URL": "https://forge.test/acme/calc/actions/runs/5"}


@pytest.mark.slow
async def test_a_fix_is_a_successful_check_run_with_a_table_and_a_link(scenario: Scenario) -> None:
    scenario.environment |= in_a_workflow(scenario, checks="write")
    await scenario.script_model(*FIX_TURNS)
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published)
    (check,) = scenario.repo.checks
    assert (check.name, check.sha, check.conclusion) == ("patchwright", scenario.pull.head.sha, "success")
    assert (
        check.output["title"]
        == "Fixed: 1 new test fails without this change and passes with it, no test broke"
    )
    summary = str(check.output["summary"])
    assert summary.startswith(
        "**Fixed:** 1 new test fails without this change and passes with it, and no test broke."
    )
    assert "| passed | 1 | 2 |\n| failed | 0 | 0 |" in summary
    assert check.details_url == "https://forge.test/acme/calc/actions/runs/5"
    (comment,) = scenario.comments
    assert comment.rstrip().endswith(f"[the whole run]({check.details_url})")
    assert f"[the whole run]({check.details_url})" in str(scenario.pull.body)


@pytest.mark.slow
async def test_an_unproven_change_is_a_neutral_check_run_with_the_reason(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files={"calc.py": CODE})
    scenario.environment |= in_a_workflow(scenario, checks="write")
    await scenario.script_model(
        RecordedTurn("Fix.", FIX), RecordedTurn("Done.", DONE), RecordedTurn("Done.", DONE)
    )
    assert isinstance(outcome := await scenario.resolve(), Published) and outcome.draft
    (check,) = scenario.repo.checks
    assert check.conclusion == "neutral"
    assert check.output["title"] == f"Untested: {outcome.verdict.reason}"
    assert str(check.output["summary"]).startswith("**Untested:** nothing proves this change.")


@pytest.mark.slow
async def test_a_token_without_the_checks_permission_publishes_anyway(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files={"calc.py": CODE})
    scenario.environment |= in_a_workflow(scenario)
    await scenario.script_model(
        RecordedTurn("Fix.", FIX), RecordedTurn("Done.", DONE), RecordedTurn("Done.", DONE)
    )
    assert isinstance(await scenario.resolve(), Published)
    assert scenario.repo.checks == [] and len(scenario.comments) == 1


@pytest.mark.slow
async def test_each_later_push_has_its_own_check_run(scenario: Scenario) -> None:
    scenario.environment |= in_a_workflow(scenario, checks="write")
    pull = open_pull_request(scenario)
    review = scenario.fake_github.add_review(pull, *THREADS, by="maintainer", body="@agent please fix these")
    await scenario.script_model(*WORK)
    assert isinstance(
        await scenario.resolve(request_job(scenario, pull, review, "please fix these")), Published
    )
    (check,) = scenario.repo.checks
    assert (check.sha, check.conclusion) == (pull.head.sha, "success")
