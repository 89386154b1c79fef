"""The base branch is merged on request, by git or by the agent, and both sides are verified."""

from collections.abc import Callable

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import Published, Reported
from patchwright.runtime.actions import RunShell
from tests.end_to_end.conftest import CODE, DONE, FIX_TURNS, RUN_TESTS, Scenario
from tests.end_to_end.review_setup import (
    MUL,
    THREADS,
    finish_with_replies,
    initial_prompt,
    open_pull_request,
    own_thread_replies,
    request_job,
    status_comment,
)

pytestmark = pytest.mark.slow

HEAD_TEST = "from calc import double\n\n\ndef test_head():\n    assert double(2) == 4\n"
BASE_TEST = "from calc import double\n\n\ndef test_base():\n    assert double(3) == 6\n"


async def test_a_merge_conflict_is_resolved_on_request_and_verified_on_both_sides(
    scenario: Scenario,
) -> None:
    """Complaint 16: merge conflicts and rebase."""
    pull = open_pull_request(
        scenario, {"calc.py": CODE.replace("a * 2", "2 * a"), "tests/test_head.py": HEAD_TEST}
    )
    base = scenario.repo.commit(
        "main", {"calc.py": CODE.replace("a * 2", "a + a"), "tests/test_base.py": BASE_TEST}
    )
    head = pull.head.sha
    # The lines of the head stay; those of the base are dropped.
    take = RunShell(command="grep '^<<<<<<<' calc.py && sed -i '/^=======/,/^>>>>>>>/d; /^<<<<<<</d' calc.py")
    await scenario.script_model(
        RecordedTurn("Look.", take),
        RecordedTurn("Run.", RUN_TESTS),
        RecordedTurn("Done.", DONE),
        RecordedTurn("Done.", DONE),
    )
    outcome = await scenario.resolve(request_job(scenario, pull, command="resolve conflicts"))
    assert isinstance(outcome, Published), status_comment(pull)
    assert scenario.repo.bare.git("show", "-s", "--format=%P", "topic").decode().split() == [head, base]
    assert scenario.repo.read("topic", "calc.py") == CODE.replace("a * 2", "2 * a")
    assert scenario.repo.read("topic", "tests/test_base.py") == BASE_TEST
    before = outcome.verdict.before
    assert before is not None
    assert {"tests/test_head.py::test_head", "tests/test_base.py::test_base"} <= before.results.keys()
    assert "  calc.py\n" in initial_prompt(scenario).partition("contain git's conflict markers:")[2]
    assert status_comment(pull).startswith(
        f"I merged `main` at {base[:12]} and resolved the conflicts. The commit is "
    )


async def test_a_request_with_a_merge_is_a_commit_on_top_of_it(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario({"calc.py": CODE})
    pull = open_pull_request(scenario)
    scenario.fake_github.add_review(pull, THREADS[0], by="maintainer")
    base, head = scenario.repo.commit("main", {"notes.txt": "new\n"}), pull.head.sha
    await scenario.script_model(
        RecordedTurn("Fix.", MUL), *[RecordedTurn("Done.", finish_with_replies((1, True, "Yes.")))] * 2
    )
    outcome = await scenario.resolve(request_job(scenario, pull, command="rebase, and mind the review"))
    assert isinstance(outcome, Published)
    assert scenario.repo.bare.git("show", "-s", "--format=%P", "topic").decode().split() == [head, base]
    assert "a * b" in scenario.repo.read("topic", "calc.py")
    assert scenario.repo.read("topic", "notes.txt") == "new\n"
    assert own_thread_replies(pull) == [[f"Done in {pull.head.sha[:12]}. Yes."]]
    assert "was merged into this pull request without conflicts" in initial_prompt(scenario)


async def test_a_merge_does_not_touch_open_threads(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario({"calc.py": CODE})
    pull = open_pull_request(scenario)
    scenario.fake_github.add_review(pull, THREADS[0], by="maintainer")
    scenario.repo.commit("main", {"notes.txt": "new\n"})
    await scenario.script_model(*FIX_TURNS)
    assert isinstance(await scenario.resolve(request_job(scenario, pull, command="rebase")), Published)
    assert scenario.endpoint.requests == []
    assert own_thread_replies(pull) == [[]]


async def test_an_unresolved_conflict_is_returned_to_the_agent_and_never_pushed(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario({"calc.py": CODE})
    pull = open_pull_request(scenario, {"calc.py": CODE.replace("a * 2", "2 * a")})
    scenario.repo.commit("main", {"calc.py": CODE.replace("a * 2", "a + a")})
    head = pull.head.sha
    await scenario.script_model(*[RecordedTurn("All is well.", DONE)] * 8)
    outcome = await scenario.resolve(request_job(scenario, pull, command="rebase"))
    assert isinstance(outcome, Reported) and outcome.verdict.kind == "regressed"
    assert pull.head.sha == head
    assert "Git's conflict markers are still in calc.py." in str(scenario.endpoint.requests[-1]["messages"])
    assert "Git's conflict markers are still in calc.py." in status_comment(pull)


@pytest.mark.slow
async def test_a_resolution_that_loses_a_test_of_the_base_is_not_pushed(scenario: Scenario) -> None:
    """Complaint 16: merge conflicts and rebase."""
    pull = open_pull_request(
        scenario, {"calc.py": CODE.replace("a * 2", "2 * a"), "tests/test_head.py": HEAD_TEST}
    )
    base = CODE.replace("a * 2", "a + a") + "\n\ndef triple(a):\n    return a * 3\n"
    test = BASE_TEST.replace("double", "triple").replace("== 6", "== 9")
    scenario.repo.commit("main", {"calc.py": base, "tests/test_base.py": test})
    head = pull.head.sha
    ours = RunShell(command="git show HEAD^1:calc.py > calc.py")
    await scenario.script_model(RecordedTurn("Take ours.", ours), *[RecordedTurn("Done.", DONE)] * 6)
    outcome = await scenario.resolve(request_job(scenario, pull, command="rebase"))
    assert isinstance(outcome, Reported) and outcome.verdict.kind == "regressed"
    assert outcome.verdict.pass_to_fail == ("tests/test_base.py::test_base",)
    assert pull.head.sha == head


async def test_without_a_conflict_git_merges_the_base_and_the_merge_is_verified(scenario: Scenario) -> None:
    """Complaint 16: merge conflicts and rebase."""
    pull = open_pull_request(scenario, {"tests/test_head.py": HEAD_TEST})
    base, head = scenario.repo.commit("main", {"tests/test_base.py": BASE_TEST}), pull.head.sha
    await scenario.script_model(*FIX_TURNS)
    outcome = await scenario.resolve(request_job(scenario, pull, command="please rebase this"))
    assert isinstance(outcome, Published)
    assert scenario.endpoint.requests == []
    assert scenario.repo.bare.git("show", "-s", "--format=%P", "topic").decode().split() == [head, base]
    assert outcome.verdict.after is not None and outcome.verdict.after.passed_count == 3
    assert "without conflicts" in status_comment(pull)
    again = await scenario.resolve(request_job(scenario, pull, command="update this branch"))
    assert isinstance(again, Reported)
    assert "`topic` is up to date with `main`" in pull.comments[-1].body
