"""The dependencies of a repository are installed for the agent and for verification."""

from collections.abc import Callable

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import Job, JobId, Published, Reported
from tests.end_to_end.conftest import CODE, DONE, FIX_TURNS, TESTS, Scenario
from tests.runtime.fake_internet import package_index_egress

pytestmark = pytest.mark.slow

NEEDS = {
    "calc.py": f"import wcwidth\n\n\n{CODE}",
    "tests/test_calc.py": TESTS,
    "requirements.txt": "wcwidth==0.2.13\n",
}


async def test_the_local_sandbox_skips_the_setup_and_the_pull_request_reports_it(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(
        files={"calc.py": CODE, "tests/test_calc.py": TESTS, "requirements.txt": "wcwidth\n"}
    )
    await scenario.script_model(*FIX_TURNS)
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published)
    expected = "setup failed, and the tests ran without it: the local sandbox has no setup"
    assert expected in str(scenario.pull.body)
    assert "The repository's own setup failed" in str(scenario.endpoint.requests[0]["messages"][1]["content"])


@pytest.mark.docker
async def test_dependencies_are_installed_once_for_agent_and_verification(
    make_scenario: Callable[..., Scenario], sources: list[str]
) -> None:
    scenario = make_scenario(files=NEEDS)
    policy = package_index_egress().policy
    scenario.environment |= {
        "PATCHWRIGHT_SANDBOX": "docker",
        "PATCHWRIGHT_MEMORY_MB": "1024",
        "PATCHWRIGHT_ALLOWED_ADDRESSES": ",".join(str(each) for each in policy.allowed_networks),
    }
    await scenario.script_model(*FIX_TURNS)
    outcome = await scenario.resolve()
    sources.append(scenario.trajectory().run_started.source)
    assert isinstance(outcome, Published)
    assert (outcome.verdict.kind, outcome.verdict.fail_to_pass) == (
        "fixed",
        ("tests/test_calc.py::test_add",),
    )
    first = scenario.trajectory().environment_prepared
    assert first and (first.problem, first.was_cached) == (None, False)
    assert "Its dependencies are installed." in str(scenario.endpoint.requests[0]["messages"][1]["content"])
    assert "Network: `" in str(scenario.pull.body)

    await scenario.script_model(RecordedTurn("Nothing to do.", DONE))
    job = scenario.job()
    again = Job(**{**job.model_dump(), "id": JobId(f"{job.id}-again")})
    assert isinstance(await scenario.resolve(again), Reported)
    second = scenario.trajectory(again.id).environment_prepared
    assert second and (second.problem, second.was_cached) == (None, True)
