"""Who may say so shows on the commit itself what the tests said of it."""

from collections.abc import Callable

import pytest

from patchwright.demo.github.state import APP_PERMISSIONS
from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import Published
from tests.end_to_end.conftest import CODE, DONE, FIX, MENDED, Scene
from tests.end_to_end.review_setup import THREADS, WORK, asked, proposed


def in_a_workflow(scene: Scene, **permissions: str) -> dict[str, str]:
    """The variables of a workflow whose token may this."""
    actions = scene.world.create_app("github-actions", {**APP_PERMISSIONS, **permissions})
    token = scene.world.create_installation_token(scene.world.install_app(actions, scene.repo))
    for name in ("PATCHWRIGHT_APP_ID", "PATCHWRIGHT_PRIVATE_KEY"):
        scene.environment.pop(name)
    return {"GITHUB_TOKEN": token, "PATCHWRIGHT_WORKFLOW_URL": "https://forge.test/acme/calc/actions/runs/5"}


async def test_a_fix_is_a_success_with_its_table_and_leads_to_its_run(scene: Scene) -> None:
    scene.environment |= in_a_workflow(scene, checks="write")
    await scene.will(*MENDED)
    outcome = await scene.resolve()
    assert isinstance(outcome, Published)
    (check,) = scene.repo.checks
    assert (check.name, check.sha, check.conclusion) == ("patchwright", scene.pull.head.sha, "success")
    assert (
        check.output["title"]
        == "Fixed: 1 new test fails without this change and passes with it, no test broke"
    )
    summary = str(check.output["summary"])
    assert summary.startswith(
        "**Fixed:** 1 new test fails without this change and passes with it, and nothing that passed"
    )
    assert "| passed | 1 | 2 |\n| failed | 0 | 0 |" in summary
    assert check.details_url == "https://forge.test/acme/calc/actions/runs/5"
    (comment,) = scene.comments
    assert comment.rstrip().endswith(f"[the whole run]({check.details_url})")
    assert f"[the whole run]({check.details_url})" in str(scene.pull.body)


async def test_what_is_not_proven_is_neutral_and_says_why(a_scene: Callable[..., Scene]) -> None:
    scene = a_scene(files={"calc.py": CODE})
    scene.environment |= in_a_workflow(scene, checks="write")
    await scene.will(RecordedTurn("Mend.", FIX), RecordedTurn("Done.", DONE), RecordedTurn("Done.", DONE))
    assert isinstance(outcome := await scene.resolve(), Published) and outcome.draft
    (check,) = scene.repo.checks
    assert check.conclusion == "neutral"
    assert check.output["title"] == f"Untested: {outcome.verdict.reason}"
    assert str(check.output["summary"]).startswith("**Untested:** the tests could not be run")


async def test_a_token_that_may_not_make_one_delivers_all_the_same(a_scene: Callable[..., Scene]) -> None:
    scene = a_scene(files={"calc.py": CODE})
    scene.environment |= in_a_workflow(scene)
    await scene.will(RecordedTurn("Mend.", FIX), RecordedTurn("Done.", DONE), RecordedTurn("Done.", DONE))
    assert isinstance(await scene.resolve(), Published)
    assert scene.repo.checks == [] and len(scene.comments) == 1


@pytest.mark.slow
async def test_a_later_push_of_ours_has_its_own(scene: Scene) -> None:
    scene.environment |= in_a_workflow(scene, checks="write")
    pull = proposed(scene)
    review = scene.world.add_review(pull, *THREADS, by="maintainer", body="@agent please mend these")
    await scene.will(*WORK)
    assert isinstance(await scene.resolve(asked(scene, pull, review, "please mend these")), Published)
    (check,) = scene.repo.checks
    assert (check.sha, check.conclusion) == (pull.head.sha, "success")
