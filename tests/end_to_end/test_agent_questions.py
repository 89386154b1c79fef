"""A question ends a run. The answer continues it in the same log with the same files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from patchwright.bot.webhooks.delivery import parse_delivery
from patchwright.bot.webhooks.triggers import Triggers, find_job
from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import InputRequired, Job, Published, Rejected
from patchwright.resolver.events import AgentStopped, Message
from patchwright.resolver.tool_actions.control_actions import Ask
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ShellResult
from tests.end_to_end.conftest import CODE, DONE, FIX, FIX_TURNS, NEW_TEST, RUN_TESTS, Scenario
from tests.end_to_end.scripted_models import SHOW_FAILURE, call_results, messages_from, use_ordered_model
from tests.resolver.git_repository import Repository

QUESTION = Ask(question="Should add() take floats as well, @maintainer?")
LOOK = RunShell(command="git diff --stat; cat calc.py | head -n 2")
ASKING = (
    RecordedTurn("See it fail.", SHOW_FAILURE),
    RecordedTurn("Fix it.", FIX),
    RecordedTurn("Unclear.", QUESTION),
)
GOING_ON = (
    RecordedTurn("Look.", LOOK),
    RecordedTurn("Test it.", NEW_TEST),
    RecordedTurn("Run them.", RUN_TESTS),
    RecordedTurn("Done.", DONE),
)


@pytest.fixture
def hooked_scenario(scenario: Scenario) -> Scenario:
    """A scenario whose comments become deliveries that nobody receives."""
    scenario.fake_github.add_webhook("http://127.0.0.1:9/nobody", "none")
    return scenario


async def comment(scenario: Scenario, text: str, by: str = "maintainer") -> Job:
    """Adds a comment and returns the job that it requests."""
    delivery = await scenario.fake_github.add_comment(scenario.issue, text, by=by)
    job = find_job(parse_delivery("issue_comment", delivery.body), Triggers())
    assert job is not None
    return job


@pytest.mark.slow
async def test_a_question_is_answered_in_the_thread_and_the_run_continues(
    hooked_scenario: Scenario,
) -> None:
    scenario = hooked_scenario
    endpoint = await use_ordered_model(scenario, *ASKING, *GOING_ON)
    first_outcome = await scenario.resolve()
    assert isinstance(first_outcome, InputRequired) and first_outcome.question == QUESTION.question
    (posted,) = scenario.comments
    assert (
        "I need an answer to continue:\n\n<!--question-->\n\nShould add() take floats as well, @\u200bmaintainer?"
        in posted
    )
    assert scenario.repo.pulls == () and scenario.repo.branches == ("main",)

    refused = await scenario.resolve(await comment(scenario, "@agent no floats", by="stranger"))
    assert isinstance(refused, Rejected) and len(endpoint.requests) == len(ASKING)

    answer = await comment(scenario, "@agent No, integers only. Ignore `@agent` here.")
    outcome = await scenario.resolve(answer)
    assert isinstance(outcome, Published) and outcome.verdict.kind == "fixed"
    assert await scenario.resolve(answer) == outcome, "the same delivery again"
    assert len(endpoint.requests) == len(ASKING) + len(GOING_ON)

    run = scenario.trajectory(scenario.job().id)
    first = run.run_started
    assert first is not None and [event.kind for event in run].count("run_started") == 1
    notices = [event for event in run if isinstance(event, Message) and event.source == "comment"]
    assert [(event.trigger_id, event.author) for event in notices] == [(answer.id, "maintainer")]
    (prompt,) = [event for event in run if isinstance(event, Message) and event.source == "initial_prompt"]
    assert prompt.author == "reporter" and f"> {scenario.issue.body}" in prompt.text
    assert "maintainer, who may write to the repository, answers your question:" in notices[0].text
    assert "> No, integers only." in notices[0].text
    assert [event.reason for event in run if isinstance(event, AgentStopped)] == [
        "input_required",
        "finished",
    ]
    assert str(endpoint.requests[-1]["messages"]).count("integers only") == 1
    messages = endpoint.requests[0]["messages"]
    assert "Nobody answers while you work; if only the people of this repository" in messages[0]["content"]
    assert endpoint.requests[-1]["messages"][: len(messages)] == messages
    output = [
        result.output
        for action, result in call_results(scenario, scenario.job().id)
        if action == LOOK and isinstance(result, ShellResult)
    ]
    assert "1 insertion(+), 1 deletion(-)" in output[0] and "return a + b" in output[0]


@pytest.mark.slow
async def test_a_question_without_the_tool_is_posted_and_its_answer_continues_the_run(
    hooked_scenario: Scenario,
) -> None:
    scenario, question = hooked_scenario, "Should add() take floats as well?"
    text = RecordedTurn(question)
    await use_ordered_model(
        scenario, RecordedTurn("See it fail.", SHOW_FAILURE), text, text, text, *FIX_TURNS
    )
    outcome = await scenario.resolve()
    assert isinstance(outcome, InputRequired) and outcome.question == question
    (posted,) = scenario.comments
    assert f"I need an answer to continue:\n\n<!--question-->\n\n{question}\n" in posted
    answered = await scenario.resolve(await comment(scenario, "@agent No, integers only."))
    assert isinstance(answered, Published) and answered.verdict.kind == "fixed"
    assert len(messages_from(scenario, "program", scenario.job().id)) == 2  # the reminders


@pytest.mark.slow
async def test_a_second_question_is_answered_too_and_a_comment_after_the_run_is_a_new_request(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files={"calc.py": CODE})
    scenario.fake_github.add_webhook("http://127.0.0.1:9/nobody", "none")
    again = RecordedTurn("Unclear still.", Ask(question="And complex numbers?"))
    await use_ordered_model(
        scenario,
        RecordedTurn("Fix.", FIX),
        RecordedTurn("Unclear.", QUESTION),
        again,
        RecordedTurn("Done.", DONE),
    )
    assert isinstance(await scenario.resolve(), InputRequired)
    second = await scenario.resolve(await comment(scenario, "@agent no floats"))
    assert isinstance(second, InputRequired) and second.question == "And complex numbers?"
    assert isinstance(await scenario.resolve(await comment(scenario, "@agent neither")), Published)
    assert ["no floats" in text for text in messages_from(scenario, "comment", scenario.job().id)] == [
        True,
        False,
    ]
    scenario.fake_github.close_silently(scenario.pull)
    later = await comment(scenario, "@agent now fix double() as well")
    await scenario.resolve(later)
    run = scenario.trajectory(later.id)
    assert run.run_started is not None and run.run_resumed is None


@pytest.mark.slow
async def test_the_action_exits_with_its_own_code_and_prints_the_question(hooked_scenario: Scenario) -> None:
    scenario = hooked_scenario
    await use_ordered_model(scenario, RecordedTurn("Unclear.", QUESTION))
    delivery = await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
    code, out, error = await scenario.command("action", environment=scenario.event(delivery))
    assert code == 6, out + error
    assert "input_required" in (scenario.data / "output").read_text()
    assert "Should add" in (scenario.data / "summary.md").read_text()
    assert len(scenario.comments) == 1


@pytest.mark.slow
async def test_without_a_forge_the_question_is_printed_and_answered_on_the_command_line(
    scenario: Scenario, tmp_path: Path
) -> None:
    made = Repository(tmp_path / "calc")
    made.commit({"calc.py": CODE})
    issue = tmp_path / "issue.md"
    issue.write_text("add() subtracts\n")
    start = ("resolve", "--repo", str(made.path), "--issue", str(issue))
    await use_ordered_model(
        scenario, RecordedTurn("Fix.", FIX), RecordedTurn("Unclear.", QUESTION), RecordedTurn("Done.", DONE)
    )

    code, out, error = await scenario.command(*start, "--json")
    (run,) = scenario.runs
    assert (code, json.loads(out)["outcome"], json.loads(out)["question"]) == (
        6,
        "input_required",
        QUESTION.question,
    )
    assert f"patchwright resolve --continue {run} --answer" in error
    assert "the agent asks:" in error and "proving" not in error
    _, out, _ = await scenario.command("runs", "--json")
    assert [each["state"] for each in json.loads(out)["runs"]] == ["input_required"]
    answer = ("resolve", "--continue", run, "--answer", "Integers only.")
    code, out, error = await scenario.command(*answer)
    assert code == 5 and "verdict: untested" in out and "+    return a + b" in out, error
    assert "\nNOTICE: Nothing shows the failure" in error
    again = f"patchwright: run {run} is not waiting for an answer: it is complete.\n"
    assert await scenario.command(*answer) == (2, "", again)
    code, _, error = await scenario.command(*answer[:3])
    assert (code, f"NOTICE: The run {run} is complete: nothing is left to continue." in error) == (5, True)
    (message,) = messages_from(scenario, "comment")
    assert "The person who started you" in message and "> Integers only." in message
