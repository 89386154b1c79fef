"""Complaint 11: what a repository depends on is behind the firewall (`copilot user-feedback#36`). Which host is it?"""

from collections.abc import Callable

import pytest

from tests.end_to_end.conftest import CODE, MENDED, TESTS, Scene
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
async def test_who_reads_the_step_or_the_pull_request_learns_which_host_to_allow(
    a_scene: Callable[..., Scene], sources: list[str]
) -> None:
    scene = a_scene(files=PRIVATE)
    scene.environment |= {"PATCHWRIGHT_SANDBOX": "docker", "PATCHWRIGHT_MEMORY_MB": "1024"}
    workflow = Workflow(scene)
    sources.append(f"{scene.world.server_url}/acme/calc.git")
    await scene.will(*MENDED)
    await workflow.labeled()
    done = await workflow.all()
    assert (done.code, done.outputs["verdict"]) == (0, "fixed"), done.said
    assert BLOCKED in str(scene.pull.body)
    assert BLOCKED in done.summary
    log = " ".join(line.partition(" s ")[2].strip() for line in done.said.splitlines())
    assert f"refused a connection to {HOST}: it is not on the allowlist (setting `allowed_hosts`)" in log

    await scene.will(*MENDED)
    await workflow.commented("@agent retry")
    done = await workflow.all(PATCHWRIGHT_ALLOWED_HOSTS=HOST)  # as the input `allowed-hosts` sets it
    assert done.code == 0, done.said
    assert f"refused a connection to {HOST}: its name does not resolve" in " ".join(done.summary.split())
