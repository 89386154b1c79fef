"""An issue about a web page: the agent fixes it and inspects it in a browser in its sandbox."""

import re
from collections.abc import Callable

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import Published
from patchwright.resolver.events import ToolResult
from patchwright.resolver.tool_actions.control_actions import Report
from patchwright.resolver.tool_actions.subagent_actions import Browse, Delegate, OutputField
from patchwright.runtime.actions import ReplaceText, RunShell
from patchwright.runtime.docker.build_context import PYTHON
from patchwright.runtime.observations import PageSnapshot
from tests.end_to_end.conftest import CODE, FIX_TURNS, TESTS, Scenario
from tests.end_to_end.multi_agent_model import use_multi_agent_model
from tests.end_to_end.test_browse import free_port

PAGE = "<!doctype html><title>Calc</title><h1>Calculator</h1><button>Sumbit</button>\n"
FILES = {"calc.py": CODE, "tests/test_calc.py": TESTS, "site/index.html": PAGE}
LABEL = OutputField(name="label", description="the words on the page's button")
SEEN, WHERE = "Which files name the button?", "Which port is served?"


def opens(prompt: str) -> str:
    (address,) = re.findall(r"Open (\S+) and", prompt)
    return f'The goal names the address.\n```\ngoto("{address}")\n```'


def reports(prompt: str) -> str:
    (label,) = re.findall(r"button '([^']+)'", prompt)
    return f'The button says it.\n```\nsend_msg_to_user("{label}")\n```'


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("local", marks=[pytest.mark.browser, pytest.mark.slow]),
        pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.slow]),
    ],
)
async def test_a_page_is_fixed_browsed_and_inspected(
    make_scenario: Callable[..., Scenario], kind: str
) -> None:
    scenario = make_scenario(files=FILES, title="The button says Sumbit, and add() subtracts")
    scenario.environment |= {
        "PATCHWRIGHT_SANDBOX": kind,
        "PATCHWRIGHT_SANDBOX_FEATURES": "browser",
        "PATCHWRIGHT_MULTIMODAL_MODEL": "openai/scripted",
        "PATCHWRIGHT_MAX_SUBAGENT_STEPS": "20",
    }
    port = free_port() if kind == "local" else 8765
    python = "python3" if kind == "local" else PYTHON
    serve = f"{python} -m http.server --bind 127.0.0.1 --directory site {port} >/dev/null 2>&1 &"
    wait = f"until (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.1; done"
    browse = Browse(task=f"Open http://127.0.0.1:{port}/ and say what its button says.", fields=(LABEL,))
    there = RunShell(command="grep -rl Submit site; rm -r site")
    served = RunShell(command=f"(: </dev/tcp/127.0.0.1/{port}) 2>&1 || echo unserved")
    model = await use_multi_agent_model(
        scenario,
        RecordedTurn("Fix it.", ReplaceText(path="site/index.html", old="Sumbit", new="Submit")),
        RecordedTurn("Serve it.", RunShell(command=f"{serve}\n{wait}", timeout=30)),
        RecordedTurn("Look at it.", browse),
        RecordedTurn("Let others look.", Delegate(tasks=(SEEN, WHERE))),
        *FIX_TURNS,
        others={
            SEEN: (RecordedTurn("Search.", there), RecordedTurn("There.", Report(text="site/index.html"))),
            WHERE: (RecordedTurn("Try.", served), RecordedTurn("So.", Report(text="None that I see."))),
        },
        browsing=(opens, reports),
    )
    assert isinstance(await scenario.resolve(), Published)

    run = scenario.trajectory(scenario.job().id)
    browsed, message, where = (report for _, report in run.subagents())
    assert browsed is not None and (browsed.status, browsed.text) == ("answered", '{"label": "Submit"}')
    assert message is not None and (message.status, message.text) == ("answered", "site/index.html")
    assert where is not None and where.status == "answered"
    assert run.usage().steps == len(run.replies()) + 2 + 2 + 2

    # The screenshot after the change is kept for readers of the run.
    child = scenario.trajectory(run.subagents()[0][0].run)
    *_, page = [event.observation for event in child if isinstance(event, ToolResult)]
    assert isinstance(page, PageSnapshot) and "button 'Submit'" in page.tree
    assert page.screenshot is not None and page.screenshot.data.startswith((b"\x89PNG", b"\xff\xd8"))

    tried = model.requests_by_question[WHERE][-1]["messages"][-1]["content"]
    # Each sandbox has its own loopback interface.
    assert ("\nunserved\n" in tried) == (kind == "docker")
    assert "<button>Submit</button>" in scenario.repo.diff(scenario.pull)
    assert scenario.pull.body is not None and "Browsed 1 time, in 2 of the steps" in scenario.pull.body
