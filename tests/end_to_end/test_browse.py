"""The agent asks a browsing agent to look at a page: real browser, real loop, scripted model over HTTP."""

import json
import os
import re
import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from patchwright.demo.recorded_model import ModelFault, RecordedCall, RecordedTurn
from patchwright.resolver.delegation.browse_tool import BrowseTool
from patchwright.resolver.domain import Published, RunId
from patchwright.resolver.pipeline import agent_setup
from patchwright.resolver.tool_actions.subagent_actions import Browse
from patchwright.runtime.actions import RunShell
from tests.end_to_end.conftest import CODE, FIX_TURNS, TESTS, Scenario
from tests.preloaded_command import COMMAND
from tests.resolver.git_repository import Repository

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PAGE = """<!doctype html><title>The ultimate answer</title>
<p>Click the button to reveal the answer to life, the universe and everything.</p>
<button onclick="this.insertAdjacentHTML('afterend', '<p>The answer is forty-two.</p>')">Click me</button>
"""
FILES = {"calc.py": CODE, "tests/test_calc.py": TESTS, "site/index.html": PAGE}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def serves(port: int) -> RecordedTurn:
    """Returns a turn in which the agent serves the repository's page on its loopback interface."""
    serve = f"python3 -m http.server --bind 127.0.0.1 --directory site {port} >/dev/null 2>&1 &"
    wait = f"for _ in $(seq 100); do curl -s -o /dev/null http://127.0.0.1:{port}/ && break; sleep 0.1; done"
    return RecordedTurn("Serve it.", RunShell(command=f"{serve}\n{wait}"))


def reveals(port: int) -> Browse:
    return Browse(task=f"Open http://127.0.0.1:{port}/, click its button, and report what it reveals.")


Says = Callable[[str], str]


class BrowsingScript:
    """Scripts the browsing agent's replies per task, which it identifies by a word."""

    def __init__(self, scenario: Scenario, **tasks: tuple[Says, ...]) -> None:
        self._scene = scenario
        self._tasks = tasks
        self.prompts: list[str] = []

    def __call__(self, turn: int, request: dict[str, Any]) -> None:
        content = request["messages"][-1]["content"]
        prompt = content if isinstance(content, str) else content[0]["text"]  # with a picture
        if not prompt.startswith("# Instructions"):
            return
        goal = prompt[prompt.index("# Goal:") : prompt.index("# Action Space")]
        (says,) = (says for word, says in self._tasks.items() if word in goal)
        (step,) = re.findall(r"This is step (\d+) of", prompt)
        self.prompts.append(prompt)
        message = {"role": "assistant", "content": says[int(step) - 1](prompt)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020}
        body = {"id": "b", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        self._scene.endpoint.add_faults(ModelFault(body=json.dumps(body | {"usage": usage})))


def opens(prompt: str) -> str:
    (address,) = re.findall(r"Open (\S+),", prompt)
    return f'The goal names the address.\n```\ngoto("{address}")\n```'


def clicks(prompt: str) -> str:
    (bid,) = re.findall(r"\[(\w+)\] button 'Click me'", prompt)
    return f'The button is [{bid}].\n\n```click("{bid}")```'


def reports(prompt: str) -> str:
    (answer,) = re.findall(r"StaticText '(The answer is [^']+)'", prompt)
    return f'It reveals this.\n```\nsend_msg_to_user("{answer}")\n```'


def gives_up(prompt: str) -> str:
    return '```\nreport_infeasible("There is no towel here.")\n```'


def mumbles(prompt: str) -> str:
    return "I am not sure what to do."


def waits(prompt: str) -> str:
    return "It may still load.\n```\nnoop(10)\n```"


async def test_a_browsing_agent_opens_the_agents_page_and_reports_back(
    make_scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = make_scenario(files=FILES)
    scenario.environment["PATCHWRIGHT_SANDBOX_FEATURES"] = "browser"
    monkeypatch.setattr(agent_setup, "BrowseTool", partial(BrowseTool, max_steps=5))
    port = free_port()
    reader = BrowsingScript(
        scenario,
        reveals=(opens, mumbles, mumbles, clicks, reports),
        Buy=(gives_up,),
        Wait=(waits, mumbles, mumbles, waits, mumbles),
    )
    others = (Browse(task="Buy a towel."), Browse(task="Wait for the end of the world."))
    asks = (RecordedTurn("Look at it.", reveals(port)), RecordedTurn("And at others.", *others))
    await scenario.script_model(serves(port), *asks, *FIX_TURNS, on_request=reader)
    assert isinstance(await scenario.resolve(), Published)

    run = scenario.trajectory(scenario.job().id)
    reports_of = [report for _, report in run.subagents() if report is not None]
    assert [(report.status, report.usage.steps) for report in reports_of] == [
        ("answered", 5),
        ("infeasible", 1),
        ("unfinished", 5),
    ]
    answered, infeasible, unfinished = (report.text for report in reports_of)
    assert (answered, infeasible) == ("The answer is forty-two.", "There is no towel here.")
    assert "step limit of 5 is reached" in unfinished and "The ultimate answer" in unfinished

    messages = scenario.endpoint.requests[-1]["messages"]
    texts = [message["content"] for message in messages if message["role"] == "tool"]
    assert "> The answer is forty-two." in texts[1] and "never instructions" in texts[1]
    # Each prompt shows only the current page, first the one named in the task. The parent's conversation shows none.
    assert all("button 'Click me'" in prompt for prompt in reader.prompts[:5])
    assert ["forty-two" in prompt for prompt in reader.prompts[:5]] == [False, False, False, False, True]
    assert "button 'Click me'" not in json.dumps(messages)

    assert "The ultimate answer" in reader.prompts[5]  # the next task continues in the same browser

    child = scenario.trajectory(run.subagents()[0][0].run)
    assert child.subagent_started is not None and child.subagent_started.parent == scenario.job().id
    assert child.usage() == reports_of[0].usage
    assert run.usage().steps == len(run.replies()) + 5 + 1 + 5
    assert "Browsed 3 times, in 11 of the steps:" in scenario.pull.body


async def test_the_main_agent_uses_the_browser_itself_if_the_operator_lets_it(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files=FILES, body="The page shows a wrong sum: http://shop.example/")
    scenario.environment |= {
        "PATCHWRIGHT_SANDBOX_FEATURES": "browser",
        "PATCHWRIGHT_MULTIMODAL_MODEL": "openai/scripted",
        "PATCHWRIGHT_AGENT_USES_BROWSER": "true",
        "PATCHWRIGHT_BROWSER_CALLS": "navigation coordinates",
        "PATCHWRIGHT_BROWSER_OBSERVATION": "html screenshot",
    }
    port = free_port()
    codes = (f"goto('http://127.0.0.1:{port}/')", "mouse_click(40, 60)", "click('1')")
    looks = [
        RecordedTurn("I look.", calls=(RecordedCall(name="use_browser", arguments={"code": code}),))
        for code in codes
    ]
    reader = BrowsingScript(scenario, reveals=(opens, gives_up))
    asks = RecordedTurn("And another agent.", reveals(port))
    await scenario.script_model(serves(port), *looks, asks, *FIX_TURNS, on_request=reader)
    assert isinstance(await scenario.resolve(), Published)

    requests = scenario.endpoint.requests
    (spec,) = (tool["function"] for tool in requests[0]["tools"] if tool["function"]["name"] == "use_browser")
    described = spec["description"]
    assert "mouse_click(x: float" in described and "click(bid" not in described.replace("mouse_click", "")
    assert list(spec["parameters"]["properties"]) == ["code"]
    messages = requests[-1]["messages"]
    texts = [message["content"] for message in messages if message["role"] == "tool"]
    assert "Click me</button>" in texts[1] and "forty-two" not in texts[1]
    assert "forty-two" in texts[2] and "RootWebArea" not in texts[2]
    assert "click is not allowed here; nothing was run. Allowed calls: noop, go_back" in texts[3]
    pictures = [
        part for message in messages if isinstance(message["content"], list) for part in message["content"]
    ]
    assert sum(part["type"] == "image_url" for part in pictures) == 2
    # The browsing agent has the same calls, sees the page in the same form, and uses the same browser.
    assert "6 different types" not in reader.prompts[0] and "# Current HTML:" in reader.prompts[0]
    assert "mouse_click(x: float" in reader.prompts[0] and "fill(" not in reader.prompts[0]


@pytest.mark.slow
async def test_a_run_killed_while_browsing_counts_the_cost_and_continues(
    make_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    scenario = make_scenario(files=FILES)
    scenario.environment["PATCHWRIGHT_SANDBOX_FEATURES"] = "browser"
    repository = Repository(tmp_path / "calc")
    repository.commit(FILES)
    issue, fix = tmp_path / "issue.md", tmp_path / "fix.diff"
    issue.write_text("add() subtracts")
    victims: list[int] = []

    def dies(prompt: str) -> str:
        victims.append(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        return clicks(prompt)

    port = free_port()
    asks = (serves(port), RecordedTurn("Look at it.", reveals(port)))
    await scenario.script_model(*asks, *FIX_TURNS, on_request=BrowsingScript(scenario, reveals=(opens, dies)))
    process = await scenario.cli(
        "resolve", "--repo", str(repository.path), "--issue", str(issue), program=COMMAND
    )
    await process.communicate()
    assert process.returncode == -signal.SIGKILL and len(victims) == 1
    run = RunId(next(name for name in scenario.runs if "-browse-" not in name))

    code, out, error = await scenario.command("resolve", "--continue", run, "--out", str(fix))
    assert code == 0, out + error
    ((event, report),) = scenario.trajectory(run).subagents()
    assert report is not None and report.status == "unfinished" and report.usage.steps == 1
    assert "process was stopped" in report.text
    assert scenario.trajectory(run).usage().steps == len(scenario.trajectory(run).replies()) + 1
    ended = scenario.trajectory(event.run).agent_stopped
    assert ended is not None and ended.reason == "interrupted"
    assert "a + b" in fix.read_text()
