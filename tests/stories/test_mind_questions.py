"""A question ends a run; its answer goes on with it in the same log, with the files as they were."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.webhooks.delivery import read
from bot.webhooks.triggers import Triggers, job_for
from demo.model import Turn
from resolver.actions import Ask
from resolver.domain import Asked, Delivered, Job, Refused
from resolver.events import Ended, Told
from runtime.actions import RunShell
from runtime.observations import Ran
from tests.resolver.repositories import Repository
from tests.stories.conftest import CODE, DONE, FIX, NEW_TEST, RUN_TESTS, Scene
from tests.stories.minds import SEES_IT_FAIL, answers, says, told

QUESTION = Ask(question="Should add() take floats as well, @maintainer?")
LOOK = RunShell(command="git diff --stat; cat calc.py | head -n 2")
ASKING = (Turn("See it fail.", SEES_IT_FAIL), Turn("Mend it.", FIX), Turn("Unclear.", QUESTION))
GOING_ON = (
    Turn("Look.", LOOK),
    Turn("Test it.", NEW_TEST),
    Turn("Run them.", RUN_TESTS),
    Turn("Done.", DONE),
)


@pytest.fixture
def hooked(scene: Scene) -> Scene:
    """A scene whose comments become deliveries, to nobody."""
    scene.world.hook("http://127.0.0.1:9/nobody", "none")
    return scene


async def comment(scene: Scene, text: str, by: str = "maintainer") -> Job:
    """What a person's comment asks for."""
    delivery = await scene.world.comment(scene.issue, text, by=by)
    job = job_for(read("issue_comment", delivery.body), Triggers())
    assert job is not None
    return job


async def test_a_question_is_answered_in_the_thread_and_the_run_goes_on_where_it_was(hooked: Scene) -> None:
    scene = hooked
    endpoint = await says(scene, *ASKING, *GOING_ON)
    asked = await scene.resolve()
    assert isinstance(asked, Asked) and asked.question == QUESTION.question
    (posted,) = scene.comments
    assert (
        "I cannot go on without an answer:\n\nShould add() take floats as well, @\u200bmaintainer?" in posted
    )
    assert scene.repo.pulls == () and scene.repo.branches == ("main",)

    refused = await scene.resolve(await comment(scene, "@agent no floats", by="stranger"))
    assert isinstance(refused, Refused) and len(endpoint.requests) == len(ASKING)

    answer = await comment(scene, "@agent No, integers only. Ignore `@agent` here.")
    outcome = await scene.resolve(answer)
    assert isinstance(outcome, Delivered) and outcome.verdict.kind == "fixed"
    assert await scene.resolve(answer) == outcome, "the same delivery again"
    assert len(endpoint.requests) == len(ASKING) + len(GOING_ON)

    run = scene.trajectory(scene.job().id)
    first = run.started
    assert first is not None and [event.kind for event in run].count("started") == 1
    heard = [event for event in run if isinstance(event, Told) and event.source == "comment"]
    assert [event.by for event in heard] == [answer.id]
    assert "maintainer, who may write to the repository, answers your question:" in heard[0].text
    assert "> No, integers only." in heard[0].text
    assert [event.reason for event in run if isinstance(event, Ended)] == ["asked", "finished"]
    assert str(endpoint.requests[-1]["messages"]).count("integers only") == 1
    begun = endpoint.requests[0]["messages"]
    assert endpoint.requests[-1]["messages"][: len(begun)] == begun
    seen = [
        result.output
        for action, result in answers(scene, scene.job().id)
        if action == LOOK and isinstance(result, Ran)
    ]
    assert "1 insertion(+), 1 deletion(-)" in seen[0] and "return a + b" in seen[0]


@pytest.mark.slow
async def test_a_second_question_is_answered_too_and_what_is_said_after_the_work_is_new_work(
    a_scene: Callable[..., Scene],
) -> None:
    scene = a_scene(files={"calc.py": CODE})
    scene.world.hook("http://127.0.0.1:9/nobody", "none")
    again = Turn("Unclear still.", Ask(question="And complex numbers?"))
    await says(scene, Turn("Mend.", FIX), Turn("Unclear.", QUESTION), again, Turn("Done.", DONE))
    assert isinstance(await scene.resolve(), Asked)
    second = await scene.resolve(await comment(scene, "@agent no floats"))
    assert isinstance(second, Asked) and second.question == "And complex numbers?"
    assert isinstance(await scene.resolve(await comment(scene, "@agent neither")), Delivered)
    assert ["no floats" in text for text in told(scene, "comment", scene.job().id)] == [True, False]
    later = await comment(scene, "@agent now mend double() as well")
    await scene.resolve(later)
    run = scene.trajectory(later.id)
    assert run.started is not None and run.resumed is None


@pytest.mark.slow
async def test_the_action_ends_with_its_own_exit_code_and_names_the_question(hooked: Scene) -> None:
    scene = hooked
    await says(scene, Turn("Unclear.", QUESTION))
    delivery = await scene.world.label(scene.issue, "fix-me", by="maintainer")
    code, out, error = await scene.command("action", environment=scene.event(delivery))
    assert code == 6, out + error
    assert "asked" in (scene.data / "output").read_text()
    assert "Should add" in (scene.data / "summary.md").read_text()
    assert len(scene.comments) == 1


@pytest.mark.slow
async def test_without_a_forge_the_question_is_printed_and_answered_at_the_command_line(
    scene: Scene, tmp_path: Path
) -> None:
    made = Repository(tmp_path / "calc")
    made.commit({"calc.py": CODE})
    issue = tmp_path / "issue.md"
    issue.write_text("add() subtracts\n")
    start = ("resolve", "--repo", str(made.path), "--issue", str(issue))
    await says(scene, Turn("Mend.", FIX), Turn("Unclear.", QUESTION), Turn("Done.", DONE))

    code, out, error = await scene.command(*start, "--json")
    (run,) = scene.runs
    assert (code, json.loads(out)["outcome"], json.loads(out)["question"]) == (6, "asked", QUESTION.question)
    assert f"patchwright resolve --continue {run} --answer" in error
    assert "the agent asks:" in error and "proving" not in error
    code, out, error = await scene.command("resolve", "--continue", run, "--answer", "Integers only.")
    assert code == 5 and "verdict: untested" in out and "+    return a + b" in out, error
    (heard,) = told(scene, "comment")
    assert "The person who started you" in heard and "> Integers only." in heard
