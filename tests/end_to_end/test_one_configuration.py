"""One configuration of the agent handles issues about code, about documentation, and with a picture."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import JobId, Published
from patchwright.resolver.events import Trajectory
from patchwright.resolver.run_events import RunConfigured
from patchwright.resolver.tool_actions.subagent_actions import Browse
from patchwright.runtime.actions import RunShell
from tests.bot.github.test_attachments import png
from tests.end_to_end.conftest import CODE, FIX_TURNS, TESTS, Scenario
from tests.end_to_end.multi_agent_model import MultiAgentModel, use_multi_agent_model
from tests.end_to_end.test_browse import free_port

pytestmark = [pytest.mark.slow, pytest.mark.browser]

CONFIGURATION = {"PATCHWRIGHT_SANDBOX_FEATURES": "browser", "PATCHWRIGHT_MULTIMODAL_MODEL": "openai/scripted"}
MANUAL = "<!doctype html><title>Manual</title><p>add(a, b) returns the sum of both numbers.</p>\n"
FILES = {"calc.py": CODE, "tests/test_calc.py": TESTS, "manual/index.html": MANUAL}


def opens(prompt: str) -> str:
    (address,) = re.findall(r"Open (\S+) and", prompt)
    return f'The goal names the address.\n```\ngoto("{address}")\n```'


def reports(prompt: str) -> str:
    (rule,) = re.findall(r"add\(a, b\) returns [\w ]+", prompt.partition("# Current")[2] or prompt)
    return f'The manual says it.\n```\nsend_msg_to_user("{rule}")\n```'


def look_up(port: int) -> tuple[RecordedTurn, RecordedTurn]:
    """Returns the turns in which the agent serves the manual and asks the browsing agent."""
    serve = f"python3 -m http.server --bind 127.0.0.1 --directory manual {port} >/dev/null 2>&1 &"
    wait = f"until (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.1; done"
    browse = Browse(task=f"Open http://127.0.0.1:{port}/ and say what add(a, b) has to return.")
    return RecordedTurn("Serve it.", RunShell(command=f"{serve}\n{wait}", timeout=30)), RecordedTurn(
        "", browse
    )


async def resolve(
    scenario: Scenario, *turns: RecordedTurn
) -> tuple[RunConfigured, Trajectory, MultiAgentModel]:
    scenario.environment |= CONFIGURATION
    model = await use_multi_agent_model(scenario, *turns, *FIX_TURNS, browsing=(opens, reports))
    job = scenario.job().model_copy(update={"id": JobId(f"acme-calc-{scenario.issue.number}")})
    outcome = await scenario.resolve(job)
    assert isinstance(outcome, Published) and outcome.verdict.kind == "fixed"
    run = scenario.trajectory(job.id)
    assert run.run_configured is not None
    return run.run_configured, run, model


async def test_one_configuration_handles_code_documentation_and_pictures(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files=FILES)

    def report_issue(title: str, body: str = "It should give 5.") -> Scenario:
        issue = scenario.fake_github.create_issue(scenario.repo, title=title, body=body, by="reporter")
        return replace(scenario, issue=issue)

    of_code, run, _ = await resolve(scenario)
    assert run.subagents() == ()

    documented = report_issue("add() differs from the manual")
    of_documentation, run, _ = await resolve(documented, *look_up(free_port()))
    ((_, report),) = run.subagents()
    assert report is not None
    assert (report.status, report.text) == ("answered", "add(a, b) returns the sum of both numbers")

    shot = scenario.fake_github.add_attachment("assets/shot", png())
    of_picture, _, model = await resolve(report_issue("The result is wrong", f"See ![it]({shot})."))
    first = model.requests_by_question[""][0]["messages"][1]["content"]
    assert [part["type"] for part in first] == ["text", "image_url"]

    def settings(configured: RunConfigured) -> RunConfigured:
        """Returns what does not depend on the port of the scenario's servers."""
        known = {key: value for key, value in configured.settings.items() if "127.0.0.1" not in str(value)}
        return configured.model_copy(update={"settings": known})

    assert settings(of_code) == settings(of_documentation) == settings(of_picture)
