"""Complaint 11: the firewall blocks a dependency (`copilot user-feedback#36`). The output names the host."""

from collections.abc import Callable

import pytest

from tests.end_to_end.conftest import CODE, FIX_TURNS, TESTS, Scenario
from tests.end_to_end.workflow_jobs import Workflow

HOST = "packages.corp.invalid"
PRIVATE = {
    "calc.py": CODE,
    "tests/test_calc.py": TESTS,
    "requirements.txt": f"--index-url https://{HOST}/simple\nwidget==1\n",
}
BLOCKED = f"The sandbox refused a connection to {HOST}: it is not on the allowlist (setting `allowed_hosts`)."


@pytest.mark.slow
@pytest.mark.docker
async def test_the_step_summary_and_the_pull_request_name_the_host_to_allow(
    make_scenario: Callable[..., Scenario], sources: list[str]
) -> None:
    scenario = make_scenario(files=PRIVATE)
    scenario.environment |= {"PATCHWRIGHT_SANDBOX": "docker", "PATCHWRIGHT_MEMORY_MB": "1024"}
    workflow = Workflow(scenario)
    sources.append(f"{scenario.fake_github.server_url}/acme/calc.git")
    await scenario.script_model(*FIX_TURNS)
    await workflow.label()
    done = await workflow.run_single_job()
    assert (done.code, done.outputs["verdict"]) == (0, "fixed"), done.output
    assert BLOCKED in str(scenario.pull.body)
    assert BLOCKED in done.summary
    log = " ".join(line.partition(" s ")[2].strip() for line in done.output.splitlines())
    assert f"refused a connection to {HOST}: it is not on the allowlist (setting `allowed_hosts`)" in log

    await scenario.script_model(*FIX_TURNS)
    scenario.fake_github.close_silently(scenario.pull)  # as the reply to a retry would ask for
    await workflow.comment("@agent retry")
    done = await workflow.run_single_job(
        PATCHWRIGHT_ALLOWED_HOSTS=HOST
    )  # as the input `allowed-hosts` sets it
    assert done.code == 0, done.output
    assert f"refused a connection to {HOST}: its name does not resolve" in " ".join(done.summary.split())
