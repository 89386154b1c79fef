"""Plans before a change, and questions instead of one, with their exact texts."""

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import InputRequired, Published, Rejected, Reported
from patchwright.resolver.events import Checkpoint, Message, VerificationCompleted
from patchwright.resolver.request import plan_texts
from patchwright.resolver.tool_actions.control_actions import Ask, ProposePlan, Report
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ActionFailure
from tests.end_to_end.comments import comment_job, rejection_text
from tests.end_to_end.conftest import CODE, DONE, FIX, NEW_TEST, RUN_TESTS, Scenario
from tests.end_to_end.scripted_models import (
    PRICES,
    SHOW_FAILURE,
    call_results,
    messages_from,
    use_ordered_model,
)

LOOK = RunShell(command="cat calc.py; echo '# left behind' >> calc.py")
PLAN = ProposePlan(
    cause="`calc.py:2` subtracts; @reporter is right.",
    steps=("calc.py: add `b` to `a`", "tests/test_calc.py: `test_add` for 2 and 3"),
    test_plan="`test_add` fails now and passes then; `python3 -m pytest`.",
    risks="None that I know of.",
)
LONGER = PLAN.model_copy(update={"steps": (*PLAN.steps, "calc.py: a docstring for `add`")})
ANSWER = Report(
    text="It subtracts: `calc.py:2` says `return a - b`.\n\nI did not look at the tests, @maintainer."
)
WORK = (
    RecordedTurn("Fix.", FIX),
    RecordedTurn("Test it.", NEW_TEST),
    RecordedTurn("Run them.", RUN_TESTS),
    RecordedTurn("Done.", DONE),
    RecordedTurn("Done.", DONE),
)


def permalink(scenario: Scenario) -> str:
    """Returns the permalink that they mention."""
    at = f"{scenario.fake_github.server_url}/acme/calc/blob/{scenario.repo.bare.branch_sha('main')}"
    return f"[`calc.py:2`]({at}/calc.py#L2)"


@pytest.mark.slow
async def test_a_plan_waits_for_go_and_continues_in_the_same_log(scenario: Scenario) -> None:
    planning = (
        RecordedTurn("See.", SHOW_FAILURE),
        RecordedTurn("Look.", LOOK),
        RecordedTurn("Try.", FIX),
        RecordedTurn("End.", DONE),
    )
    await use_ordered_model(
        scenario,
        *planning,
        RecordedTurn("So.", PLAN),
        RecordedTurn("Longer.", LONGER),
        *WORK,
        model_prices=PRICES,
    )

    plan = await comment_job(scenario, "@agent plan $1.50 how to fix this")
    outcome = await scenario.resolve(plan)
    assert (
        isinstance(outcome, InputRequired) and outcome.question == "The plan of 2 steps is ready for review."
    )
    posted = scenario.comments[-1]
    assert posted.partition("\n---\n")[0].strip() == (
        "Here is my plan. I have not changed anything yet.\n\n"
        f"{permalink(scenario)} subtracts; @\u200breporter is right.\n\n"
        "1. [ ] calc.py: add `b` to `a`\n"
        "2. [ ] tests/test_calc.py: `test_add` for 2 and 3\n\n"
        "**How I will test it:** `test_add` fails now and passes then; `python3 -m pytest`.\n\n"
        "**Risks:** None that I know of."
    )
    assert (
        "To approve the plan, comment `@agent go`; you can add instructions. To change the plan, mention me "
        "and say what to change. I then reply with a new plan. The plan expires after 14 days."
    ) in posted
    assert "5 steps of `openai/scripted` · $0." in posted
    assert (scenario.repo.pulls, scenario.repo.branches) == ((), ("main",))
    refusals = [
        result.message for action, result in call_results(scenario) if isinstance(result, ActionFailure)
    ]
    assert [one.partition(",")[0] for one in refusals] == [
        "This call was not run"
    ] * 2  # the edit and the finish
    brief = str(scenario.endpoint.requests[0]["messages"][1])
    assert "# The task: a plan first" in brief and "> how to fix this" in brief

    refused = await rejection_text(scenario, "@agent go", by="stranger")
    assert refused.startswith("@stranger needs write access to approve a plan")
    corrected = await scenario.resolve(await comment_job(scenario, "@agent say in the code what it does"))
    assert (
        isinstance(corrected, InputRequired)
        and corrected.question == "The plan of 3 steps is ready for review."
    )
    assert "3. [ ] calc.py: a docstring for `add`" in scenario.comments[-1]

    go = await comment_job(scenario, "@agent go, but leave out the docstring")
    done = await scenario.resolve(go)
    assert isinstance(done, Published) and done.verdict.kind == "fixed"
    assert scenario.repo.read(done.branch, "calc.py") == CODE.replace(
        "a - b", "a + b"
    )  # nothing from the planning phase
    assert await scenario.resolve(go) == done, "the same delivery again"

    run = scenario.trajectory(plan.id)
    messages = [event for event in run if isinstance(event, Message) and event.source == "comment"]
    assert [event.approves_plan for event in messages] == [False, True]
    assert (
        "has replied to your plan without approving it:\n\n> say in the code what it does" in messages[0].text
    )
    assert (
        "has approved your plan." in messages[1].text and "> but leave out the docstring" in messages[1].text
    )
    first, last = scenario.endpoint.requests[0], scenario.endpoint.requests[-1]
    assert "The run was stopped and now continues in a new sandbox." in str(last["messages"])
    assert first["tools"] == last["tools"], "what a provider has cached stays so"
    assert last["messages"][: len(first["messages"])] == first["messages"]
    changed = next(n for n, event in enumerate(run) if isinstance(event, Checkpoint | VerificationCompleted))
    assert changed > next(
        n for n, event in enumerate(run) if isinstance(event, Message) and event.approves_plan
    )
    configured = run.run_configured
    assert configured is not None and str(configured.usd) == "1.50"  # the approval contained nothing else

    assert await rejection_text(scenario, "@agent go") == (
        "I found no plan here that waits for approval. Tell me what to do, or ask me for a plan with `plan`."
    )


@pytest.mark.slow
async def test_an_expired_plan_is_not_executed(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    await use_ordered_model(scenario, RecordedTurn("So.", PLAN), RecordedTurn("So.", PLAN))
    assert isinstance(await scenario.resolve(await comment_job(scenario, "@agent plan")), InputRequired)
    monkeypatch.setattr(plan_texts, "PLAN_DAYS", 0)
    late = await scenario.resolve(await comment_job(scenario, "@agent go"))
    assert isinstance(late, Rejected)
    assert scenario.comments[-1].strip() == (
        "The plan has expired, and the code may have changed since. Ask me for a "
        "new one with `plan`, or tell me what to do."
    )
    anew = await comment_job(scenario, "@agent plan")
    assert isinstance(await scenario.resolve(anew), InputRequired)
    assert scenario.trajectory(anew.id).run_started is not None, "a run of its own, from the code as it is"


@pytest.mark.slow
async def test_a_question_while_planning_is_answered_before_the_plan(scenario: Scenario) -> None:
    question = Ask(question="Floats too?")
    await use_ordered_model(scenario, RecordedTurn("Unclear.", question), RecordedTurn("So.", PLAN))
    plan = await comment_job(scenario, "@agent plan")
    assert isinstance(await scenario.resolve(plan), InputRequired)
    assert (
        "I need an answer to continue:\n\n<!--question-->\n\nFloats too?\n\n<!--/question-->\n\n**To answer**, "
        "write a comment that starts with `@agent`. I then continue from where I stopped; my changes so far are saved."
        in scenario.comments[-1]
    )
    assert isinstance(await scenario.resolve(await comment_job(scenario, "@agent no floats")), InputRequired)
    assert "1. [ ] calc.py" in scenario.comments[-1]
    (message,) = messages_from(scenario, "comment", plan.id)
    assert "answers your question:\n\n> no floats" in message


@pytest.mark.slow
async def test_an_explanation_is_a_comment_with_permalinks_and_no_change(scenario: Scenario) -> None:
    look = RecordedTurn("Look.", LOOK)
    endpoint = await use_ordered_model(
        scenario,
        RecordedTurn("So.", PLAN),
        look,
        RecordedTurn("Try.", FIX),
        RecordedTurn("So.", ANSWER),
        *WORK,
    )
    assert isinstance(await scenario.resolve(await comment_job(scenario, "@agent plan")), InputRequired)

    job = await comment_job(scenario, "@agent explain why does add() subtract?")
    outcome = await scenario.resolve(job)
    assert isinstance(outcome, Reported) and (outcome.branch, outcome.verdict) == (None, None)
    assert scenario.comments[-1].partition("<details>")[0].strip() == (
        f"It subtracts: {permalink(scenario)} says `return a - b`.\n\nI did not look at the tests, @\u200bmaintainer."
    )
    assert (scenario.repo.pulls, scenario.repo.branches) == ((), ("main",))
    system, brief = (str(message["content"]) for message in endpoint.requests[-1]["messages"][:2])
    assert system.startswith("You answer a question about one repository")
    assert (
        "# The question\n\nmaintainer, who may write to the repository, asks:\n> why does add() subtract?"
        in brief
    )
    offered = {tool["function"]["name"] for tool in endpoint.requests[-1]["tools"]}
    assert "report" in offered and not offered & {
        "replace_text",
        "create_file",
        "finish",
        "ask",
        "propose_plan",
    }
    kinds = [event.kind for event in scenario.trajectory(job.id)]
    assert "checkpoint" not in kinds and "verification_completed" not in kinds

    assert isinstance(await scenario.resolve(await comment_job(scenario, "@agent setup")), Published)
    done = await scenario.resolve(await comment_job(scenario, "@agent go"))
    assert isinstance(done, Published), "the plan has waited behind the question and the setup"


@pytest.mark.slow
async def test_an_unanswered_question_reports_why_and_can_be_resumed(scenario: Scenario) -> None:
    look = RecordedTurn("Look.", RunShell(command="ls"))
    await use_ordered_model(scenario, look, RecordedTurn("So.", ANSWER), max_steps=1)
    job = await comment_job(scenario, "@agent explain")
    outcome = await scenario.resolve(job)
    assert isinstance(outcome, Reported)
    assert scenario.comments[-1].startswith(
        "I found no answer. The step limit of 1 is reached.\n\n"
        "**To continue** from where I stopped, with fresh limits, comment `@agent resume`."
    )
    assert "asks you to explain this issue" in str(scenario.endpoint.requests[0]["messages"][1])
    await scenario.resolve(await comment_job(scenario, "@agent resume"))
    assert scenario.comments[-1].startswith("It subtracts:")


@pytest.mark.slow
async def test_a_question_on_a_pull_request_is_answered_without_a_commit(scenario: Scenario) -> None:
    scenario.repo.commit("topic", {"calc.py": CODE + "\n\nX = 1\n"})
    pull = scenario.fake_github.create_pull(
        scenario.repo, "topic", by="contributor", title="Add X", body="I need X."
    )
    endpoint = await use_ordered_model(scenario, RecordedTurn("Look.", LOOK), RecordedTurn("So.", ANSWER))
    job = await comment_job(scenario, "@agent explain how to resolve the conflicts with main", on=pull)
    outcome = await scenario.resolve(job)
    assert isinstance(outcome, Reported), "no merge, although it speaks of one"
    assert pull.comments[-1].body.partition("\n")[2].startswith("It subtracts: [`calc.py:2`](http")
    system, brief = (str(message["content"]) for message in endpoint.requests[0]["messages"][:2])
    assert "at the head of the pull request" in system
    assert brief.startswith("# The pull request that the question is about: #2")
    assert "# Your task" not in brief and "+X = 1" in brief
    assert brief.rstrip().endswith("> how to resolve the conflicts with main")


@pytest.mark.slow
async def test_an_approved_plan_on_a_pull_request_becomes_a_commit(scenario: Scenario) -> None:
    scenario.repo.commit("topic", {"calc.py": CODE + "\n\nX = 1\n"})
    pull = scenario.fake_github.create_pull(
        scenario.repo, "topic", by="contributor", title="Add X", body="I need X."
    )
    await use_ordered_model(scenario, RecordedTurn("Try.", FIX), RecordedTurn("So.", PLAN), *WORK)
    outcome = await scenario.resolve(await comment_job(scenario, "@agent plan to fix add() too", on=pull))
    assert isinstance(outcome, InputRequired) and len(scenario.repo.branches) == 2
    before = scenario.repo.read("topic", "calc.py")
    done = await scenario.resolve(await comment_job(scenario, "@agent go", on=pull))
    assert isinstance(done, Published) and done.branch == "topic"
    assert scenario.repo.read("topic", "calc.py") == before.replace("a - b", "a + b")
