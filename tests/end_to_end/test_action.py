"""The same pull request from a workflow's event file."""

from tests.end_to_end.conftest import CODE, MENDED, Scene


async def test_a_workflow_step_opens_the_same_pull_request_and_sets_its_outputs(scene: Scene) -> None:
    await scene.will(*MENDED)
    scene.world.add_webhook("http://127.0.0.1:9/nobody", "none")
    delivery = await scene.world.add_label(scene.issue, "fix-me", by="maintainer")
    code, out, error = await scene.command("action", environment=scene.event(delivery))
    assert code == 0, out + error
    assert scene.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    assert not scene.pull.draft
    output = (scene.data / "output").read_text()
    for expected in ("published", "fixed", "patchwright/issue-1", "/acme/calc/pull/2"):
        assert expected in output
    assert "fixed" in (scene.data / "summary.md").read_text()


async def test_an_event_that_asks_for_nothing_needs_no_model(scene: Scene) -> None:
    scene.world.add_webhook("http://127.0.0.1:9/nobody", "none")
    delivery = await scene.world.add_label(scene.issue, "question", by="maintainer")
    del scene.environment["PATCHWRIGHT_MODEL"]
    nowhere = {"GITHUB_OUTPUT": "", "GITHUB_STEP_SUMMARY": ""}
    code, out, _ = await scene.command("action", environment=scene.event(delivery) | nowhere)
    assert (code, scene.comments) == (0, [])
    assert "Nothing to do" in out


async def test_a_workflow_answers_commands_that_it_cannot_carry_out_without_a_model(scene: Scene) -> None:
    scene.world.add_webhook("http://127.0.0.1:9/nobody", "none")
    del scene.environment["PATCHWRIGHT_MODEL"]
    said = ("@agent stop", "maintainer"), ("@agent stop", "stranger"), ("@agent hlep", "maintainer")
    for text, by in (*said, ("@agent help", "stranger")):
        delivery = await scene.world.add_comment(scene.issue, text, by=by)
        code, out, error = await scene.command("action", environment=scene.event(delivery))
        assert code == 0, out + error
    stopped, refused, slip, helped = scene.comments[1::2]
    assert stopped == (
        "I run in a GitHub Actions workflow here, and a comment cannot stop it. Cancel it in [the list "
        f"of workflow runs]({scene.world.server_url}/acme/calc/actions): I save the work so far to a "
        "branch.\n"
    )
    assert refused.startswith("I did not start a run: stranger does not have write access to this repository")
    assert "`hlep` is not a command. Did you mean `help`?" in slip
    assert helped.startswith("I understand these commands")
    assert (scene.data / "output").read_text().count("answered") == 4
