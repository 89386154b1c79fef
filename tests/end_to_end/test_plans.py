"""A plan before the work, and a question instead of it: conversations with their exact words."""

from datetime import timedelta

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.actions import Ask, ProposePlan, Report
from patchwright.resolver.domain import InputRequired, Published, Rejected, Reported
from patchwright.resolver.events import Checkpoint, Message, VerificationCompleted
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ActionFailure
from tests.end_to_end.comments import answered, comment
from tests.end_to_end.conftest import CODE, DONE, FIX, NEW_TEST, RUN_TESTS, Scene
from tests.end_to_end.scripted_models import PRICES, SEES_IT_FAIL, answers, says, told

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
    RecordedTurn("Mend.", FIX),
    RecordedTurn("Test it.", NEW_TEST),
    RecordedTurn("Run them.", RUN_TESTS),
    RecordedTurn("Done.", DONE),
    RecordedTurn("Done.", DONE),
)


def place(scene: Scene) -> str:
    """The place that they name, as it is shown."""
    at = f"{scene.world.server_url}/acme/calc/blob/{scene.repo.bare.branch_sha('main')}"
    return f"[`calc.py:2`]({at}/calc.py#L2)"


async def test_a_plan_waits_for_a_go_and_goes_on_in_the_same_log(scene: Scene) -> None:
    planning = (
        RecordedTurn("See.", SEES_IT_FAIL),
        RecordedTurn("Look.", LOOK),
        RecordedTurn("Try.", FIX),
        RecordedTurn("End.", DONE),
    )
    await says(
        scene,
        *planning,
        RecordedTurn("So.", PLAN),
        RecordedTurn("Longer.", LONGER),
        *WORK,
        model_prices=PRICES,
    )

    plan = await comment(scene, "@agent plan $1.50 how to mend this")
    asked = await scene.resolve(plan)
    assert isinstance(asked, InputRequired) and asked.question == "The plan of 2 steps waits for approval."
    posted = scene.comments[-1]
    assert posted.partition("\n---\n")[0].strip() == (
        "Here is my plan. I have not changed anything yet.\n\n"
        f"{place(scene)} subtracts; @\u200breporter is right.\n\n"
        "1. [ ] calc.py: add `b` to `a`\n"
        "2. [ ] tests/test_calc.py: `test_add` for 2 and 3\n\n"
        "**How I will test it:** `test_add` fails now and passes then; `python3 -m pytest`.\n\n"
        "**Risks:** None that I know of."
    )
    assert (
        "To approve the plan, comment `@agent go`; you can add instructions. To change it, mention me "
        "and say what to change: I reply with a new plan. The plan expires after 14 days."
    ) in posted
    assert "5 steps of `openai/scripted` · $0." in posted
    assert (scene.repo.pulls, scene.repo.branches) == ((), ("main",))
    refusals = [seen.message for action, seen in answers(scene) if isinstance(seen, ActionFailure)]
    assert [one.partition(":")[0] for one in refusals] == ["Not done", "Not done"]  # the edit, the finish
    brief = str(scene.endpoint.requests[0]["messages"][1])
    assert "# The task: a plan first" in brief and "> how to mend this" in brief

    refused = await answered(scene, "@agent go", by="stranger")
    assert refused.startswith("I did not start a run: stranger does not have write access to this repository")
    corrected = await scene.resolve(await comment(scene, "@agent say in the code what it does"))
    assert (
        isinstance(corrected, InputRequired)
        and corrected.question == "The plan of 3 steps waits for approval."
    )
    assert "3. [ ] calc.py: a docstring for `add`" in scene.comments[-1]

    go = await comment(scene, "@agent go, but leave out the docstring")
    done = await scene.resolve(go)
    assert isinstance(done, Published) and done.verdict.kind == "fixed"
    assert scene.repo.read(done.branch, "calc.py") == CODE.replace(
        "a - b", "a + b"
    )  # nothing of the plan's tries
    assert await scene.resolve(go) == done, "the same delivery again"

    run = scene.trajectory(plan.id)
    heard = [event for event in run if isinstance(event, Message) and event.source == "comment"]
    assert [event.approves_plan for event in heard] == [False, True]
    assert "has replied to your plan and not approved it:\n\n> say in the code what it does" in heard[0].text
    assert "has approved your plan." in heard[1].text and "> but leave out the docstring" in heard[1].text
    first, last = scene.endpoint.requests[0], scene.endpoint.requests[-1]
    assert "The run was stopped and now continues in a new sandbox." in str(last["messages"])
    assert first["tools"] == last["tools"], "what a provider has cached stays so"
    assert last["messages"][: len(first["messages"])] == first["messages"]
    changed = next(n for n, event in enumerate(run) if isinstance(event, Checkpoint | VerificationCompleted))
    assert changed > next(
        n for n, event in enumerate(run) if isinstance(event, Message) and event.approves_plan
    )
    configured = run.run_configured
    assert configured is not None and str(configured.usd) == "1.50"  # the go said nothing else

    assert await answered(scene, "@agent go") == (
        "I did not start a run: I know of no plan that waits for approval here. Ask me for one with "
        "`plan`, or tell me what to do."
    )


@pytest.mark.slow
async def test_a_plan_that_waited_too_long_is_not_done(scene: Scene) -> None:
    await says(scene, RecordedTurn("So.", PLAN), RecordedTurn("So.", PLAN))
    assert isinstance(await scene.resolve(await comment(scene, "@agent plan")), InputRequired)
    days = timedelta(seconds=0.01) / timedelta(days=1)
    late = await scene.resolve(await comment(scene, "@agent go"), plan_expiry_days=days)
    assert isinstance(late, Rejected)
    assert scene.comments[-1].strip() == (
        "I did not start a run: the plan has expired, and the code may have changed since. Ask me for a "
        "new one with `plan`, or tell me what to do."
    )
    anew = await comment(scene, "@agent plan")
    assert isinstance(await scene.resolve(anew, plan_expiry_days=days), InputRequired)
    assert scene.trajectory(anew.id).run_started is not None, "a run of its own, from the code as it is"


@pytest.mark.slow
async def test_a_question_while_planning_is_answered_before_the_plan(scene: Scene) -> None:
    question = Ask(question="Floats too?")
    await says(scene, RecordedTurn("Unclear.", question), RecordedTurn("So.", PLAN))
    plan = await comment(scene, "@agent plan")
    assert isinstance(await scene.resolve(plan), InputRequired)
    assert (
        "I need an answer to continue:\n\nFloats too?\n\n**To answer**, write a comment that starts with "
        "`@agent`. I then continue from where I stopped; my changes so far are saved." in scene.comments[-1]
    )
    assert isinstance(await scene.resolve(await comment(scene, "@agent no floats")), InputRequired)
    assert "1. [ ] calc.py" in scene.comments[-1]
    (heard,) = told(scene, "comment", plan.id)
    assert "answers your question:\n\n> no floats" in heard


async def test_an_explanation_is_a_comment_that_names_places_and_changes_nothing(scene: Scene) -> None:
    look = RecordedTurn("Look.", LOOK)
    endpoint = await says(
        scene, RecordedTurn("So.", PLAN), look, RecordedTurn("Try.", FIX), RecordedTurn("So.", ANSWER), *WORK
    )
    assert isinstance(await scene.resolve(await comment(scene, "@agent plan")), InputRequired)

    job = await comment(scene, "@agent explain why does add() subtract?")
    outcome = await scene.resolve(job)
    assert isinstance(outcome, Reported) and outcome.branch is None
    assert scene.comments[-1].partition("\n---\n")[0].strip() == (
        f"It subtracts: {place(scene)} says `return a - b`.\n\nI did not look at the tests, @\u200bmaintainer."
    )
    assert (scene.repo.pulls, scene.repo.branches) == ((), ("main",))
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
    kinds = [event.kind for event in scene.trajectory(job.id)]
    assert "checkpoint" not in kinds and "verification_completed" not in kinds

    done = await scene.resolve(await comment(scene, "@agent go"))
    assert isinstance(done, Published), "the plan has waited behind the question"


@pytest.mark.slow
async def test_a_question_without_an_answer_says_why_and_can_be_gone_on_with(scene: Scene) -> None:
    look = RecordedTurn("Look.", RunShell(command="ls"))
    await says(scene, look, RecordedTurn("So.", ANSWER), max_steps=1)
    job = await comment(scene, "@agent explain")
    outcome = await scene.resolve(job)
    assert isinstance(outcome, Reported)
    assert scene.comments[-1].startswith(
        "I found no answer. The limit of 1 replies of the model is reached.\n\n"
        "**To continue** from where I stopped, with fresh limits, comment `@agent resume`."
    )
    assert "asks you to explain this issue" in str(scene.endpoint.requests[0]["messages"][1])
    await scene.resolve(await comment(scene, "@agent resume"))
    assert scene.comments[-1].startswith("It subtracts:")


async def test_a_question_on_a_pull_request_is_answered_and_leaves_it_as_it_is(scene: Scene) -> None:
    scene.repo.commit("topic", {"calc.py": CODE + "\n\nX = 1\n"})
    pull = scene.world.create_pull(scene.repo, "topic", by="contributor", title="Add X", body="I need X.")
    endpoint = await says(scene, RecordedTurn("Look.", LOOK), RecordedTurn("So.", ANSWER))
    job = await comment(scene, "@agent explain how to resolve the conflicts with main", on=pull)
    outcome = await scene.resolve(job)
    assert isinstance(outcome, Reported), "no merge, although it speaks of one"
    assert pull.comments[-1].body.partition("\n")[2].startswith("It subtracts: [`calc.py:2`](http")
    system, brief = (str(message["content"]) for message in endpoint.requests[0]["messages"][:2])
    assert "as the pull request would make it" in system
    assert brief.startswith("# The pull request that the question is about: #2")
    assert "# What is asked" not in brief and "+X = 1" in brief
    assert brief.rstrip().endswith("> how to resolve the conflicts with main")


@pytest.mark.slow
async def test_a_plan_on_a_pull_request_becomes_a_commit_on_it(scene: Scene) -> None:
    scene.repo.commit("topic", {"calc.py": CODE + "\n\nX = 1\n"})
    pull = scene.world.create_pull(scene.repo, "topic", by="contributor", title="Add X", body="I need X.")
    await says(scene, RecordedTurn("Try.", FIX), RecordedTurn("So.", PLAN), *WORK)
    asked = await scene.resolve(await comment(scene, "@agent plan to mend add() too", on=pull))
    assert isinstance(asked, InputRequired) and len(scene.repo.branches) == 2
    before = scene.repo.read("topic", "calc.py")
    done = await scene.resolve(await comment(scene, "@agent go", on=pull))
    assert isinstance(done, Published) and done.branch == "topic"
    assert scene.repo.read("topic", "calc.py") == before.replace("a - b", "a + b")
