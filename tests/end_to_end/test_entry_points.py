"""Server, workflow, and command line resolve the same issue with the same result."""

from typing import Any

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import JobId, Published
from patchwright.resolver.events import Message, ModelReply
from patchwright.resolver.run_events import RunConfigured
from patchwright.runtime.actions import RunPython, RunShell
from tests.end_to_end.conftest import CODE, DONE, FIX_TURNS, Scenario

pytestmark = pytest.mark.slow

ModelView = tuple[list[str], list[Any], bytes]


def model_view(scenario: Scenario, run: str) -> ModelView:
    """Returns the events, calls, and patch of a run."""
    trajectory = scenario.trajectory(run)
    calls = [call.action for event in trajectory if isinstance(event, ModelReply) for call in event.calls]
    patch = trajectory.last_checkpoint()
    assert patch is not None
    # The results at base come before or after the first reply, as the machine is busy.
    events = [
        event for event in trajectory if not (isinstance(event, Message) and event.source == "baseline")
    ]
    return [event.kind for event in events if event.kind != "baseline_pending"], calls, patch.diff


@pytest.mark.redis
@pytest.mark.slow
async def test_server_workflow_and_command_line_have_the_same_result(scenario: Scenario) -> None:
    issues = [scenario.issue] + [
        scenario.fake_github.create_issue(
            scenario.repo, title=scenario.issue.title, body=scenario.issue.body, by="reporter"
        )
        for _ in range(2)
    ]
    runs: list[ModelView] = []
    settings: list[RunConfigured] = []
    before: set[str] = set()

    def note() -> None:
        (run,) = set(scenario.runs) - before
        before.add(run)
        runs.append(model_view(scenario, run))
        (configured,) = [event for event in scenario.trajectory(run) if isinstance(event, RunConfigured)]
        # The port of the model's server differs.
        known = {key: value for key, value in configured.settings.items() if "127.0.0.1" not in str(value)}
        settings.append(configured.model_copy(update={"settings": known}))

    await scenario.script_model(*FIX_TURNS)
    async with scenario.serve() as served:
        scenario.fake_github.add_webhook(served.webhook, "story-webhook-secret")
        await scenario.fake_github.add_label(issues[0], "fix-me", by="maintainer")
        await scenario.wait_for_completion()
    note()
    scenario.fake_github.add_webhook("http://127.0.0.1:9/nobody", "none")
    await scenario.script_model(*FIX_TURNS)
    delivery = await scenario.fake_github.add_label(issues[1], "fix-me", by="maintainer")
    code, out, error = await scenario.command("action", environment=scenario.event(delivery))
    assert code == 0, out + error
    note()
    await scenario.script_model(*FIX_TURNS)
    url = f"{scenario.fake_github.server_url}/acme/calc/issues/{issues[2].number}"
    code, out, error = await scenario.command("resolve", url)
    assert code == 0, out + error
    note()
    assert runs[0] == runs[1] == runs[2]
    assert settings[0] == settings[1] == settings[2]
    assert b"+    return a + b" in runs[0][2]


@pytest.mark.docker
async def test_a_local_and_a_docker_sandbox_give_the_same_events_and_patch(scenario: Scenario) -> None:
    runs: list[ModelView] = []
    for kind in ("local", "docker"):
        scenario.environment["PATCHWRIGHT_SANDBOX"] = kind
        await scenario.script_model(*FIX_TURNS)
        issue = scenario.fake_github.create_issue(
            scenario.repo, title=scenario.issue.title, body=scenario.issue.body, by="reporter"
        )
        update = {"id": JobId(f"{scenario.job().id}-{kind}"), "number": issue.number}
        job = scenario.job().model_copy(update=update)
        await scenario.resolve(job)
        runs.append(model_view(scenario, job.id))
        started = scenario.trajectory(job.id).run_started
        assert started is not None and started.sandbox == kind
    assert runs[0] == runs[1]


async def test_shell_and_python_are_enough_for_an_issue(scenario: Scenario) -> None:
    scenario.environment["PATCHWRIGHT_SANDBOX_FEATURES"] = "kernel"
    edit = "from pathlib import Path\nit = Path('calc.py')\nit.write_text(it.read_text().replace('a - b', 'a + b'))"
    test = "printf 'from calc import add\\n\\n\\ndef test_add():\\n    assert add(2, 3) == 5\\n' > tests/test_add.py"
    await scenario.script_model(
        RecordedTurn("See it fail.", RunShell(command=test), RunShell(command="python3 -m pytest -q")),
        RecordedTurn("Fix it.", RunPython(code=edit)),
        RecordedTurn("Run them.", RunShell(command="python3 -m pytest -q")),
        RecordedTurn("Done.", DONE),
    )
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published) and outcome.verdict.kind == "fixed"
    assert scenario.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
