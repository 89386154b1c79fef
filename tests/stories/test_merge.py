"""A base branch is merged on request: by git alone or by the agent, and proven on both sides."""

from demo.model import Turn
from resolver.domain import Commented, Delivered
from runtime.actions import RunShell
from tests.stories.conftest import CODE, DONE, MENDED, RUN_TESTS, Scene
from tests.stories.reviews import asked, brief, proposed, told

HEAD_TEST = "from calc import double\n\n\ndef test_head():\n    assert double(2) == 4\n"
BASE_TEST = "from calc import double\n\n\ndef test_base():\n    assert double(3) == 6\n"


async def test_a_conflict_with_the_base_is_resolved_on_request_and_proven_on_both_sides(scene: Scene) -> None:
    """Complaint 16: merge conflicts and rebase."""
    pull = proposed(scene, {"calc.py": CODE.replace("a * 2", "2 * a"), "tests/test_head.py": HEAD_TEST})
    base = scene.repo.commit(
        "main", {"calc.py": CODE.replace("a * 2", "a + a"), "tests/test_base.py": BASE_TEST}
    )
    head = pull.head.sha
    # The lines of our side stay, those of the other go.
    take = RunShell(command="grep '^<<<<<<<' calc.py && sed -i '/^=======/,/^>>>>>>>/d; /^<<<<<<</d' calc.py")
    await scene.will(Turn("Look.", take), Turn("Run.", RUN_TESTS), Turn("Done.", DONE), Turn("Done.", DONE))
    outcome = await scene.resolve(asked(scene, pull, command="resolve conflicts"))
    assert isinstance(outcome, Delivered), told(pull)
    assert scene.repo.bare.git("show", "-s", "--format=%P", "topic").decode().split() == [head, base]
    assert scene.repo.read("topic", "calc.py") == CODE.replace("a * 2", "2 * a")
    assert scene.repo.read("topic", "tests/test_base.py") == BASE_TEST
    before = outcome.verdict.before
    assert before is not None
    assert {"tests/test_head.py::test_head", "tests/test_base.py::test_base"} <= before.results.keys()
    assert "  calc.py\n" in brief(scene).partition("conflict markers are in them:")[2]
    assert told(pull).startswith(f"I merged `main` at {base[:12]} and resolved what was in conflict, in ")


async def test_a_resolution_that_loses_a_test_of_the_base_is_not_pushed(scene: Scene) -> None:
    """Complaint 16: merge conflicts and rebase."""
    pull = proposed(scene, {"calc.py": CODE.replace("a * 2", "2 * a"), "tests/test_head.py": HEAD_TEST})
    base = CODE.replace("a * 2", "a + a") + "\n\ndef triple(a):\n    return a * 3\n"
    test = BASE_TEST.replace("double", "triple").replace("== 6", "== 9")
    scene.repo.commit("main", {"calc.py": base, "tests/test_base.py": test})
    head = pull.head.sha
    ours = RunShell(command="git show HEAD^1:calc.py > calc.py")
    await scene.will(Turn("Take ours.", ours), *[Turn("Done.", DONE)] * 6)
    outcome = await scene.resolve(asked(scene, pull, command="rebase"))
    assert isinstance(outcome, Commented) and outcome.verdict.kind == "regressed"
    assert outcome.verdict.newly_failing == ("tests/test_base.py::test_base",)
    assert pull.head.sha == head


async def test_without_a_conflict_the_base_is_merged_by_git_alone_and_proven(scene: Scene) -> None:
    """Complaint 16: merge conflicts and rebase."""
    pull = proposed(scene, {"tests/test_head.py": HEAD_TEST})
    base, head = scene.repo.commit("main", {"tests/test_base.py": BASE_TEST}), pull.head.sha
    await scene.will(*MENDED)
    outcome = await scene.resolve(asked(scene, pull, command="please rebase this"))
    assert isinstance(outcome, Delivered)
    assert scene.endpoint.requests == []
    assert scene.repo.bare.git("show", "-s", "--format=%P", "topic").decode().split() == [head, base]
    assert outcome.verdict.after is not None and outcome.verdict.after.passed == 3
    assert "git found no conflict" in told(pull)
    again = await scene.resolve(asked(scene, pull, command="update this branch"))
    assert isinstance(again, Commented)
    assert "has everything of `main` already" in pull.comments[-1].body
