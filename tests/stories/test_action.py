"""The same pull request from a workflow's event file."""

import json

from tests.stories.conftest import CODE, MENDED, Scene, written


async def test_a_workflow_step_opens_the_same_pull_request_and_sets_its_outputs(scene: Scene) -> None:
    await scene.will(*MENDED)
    scene.world.hook("http://127.0.0.1:9/nobody", "none")
    delivery = await scene.world.label(scene.issue, "fix-me", by="maintainer")
    (scene.data / "event.json").write_text(json.dumps(written(delivery)))
    code, out, error = await scene.command(
        "action",
        environment={
            "GITHUB_EVENT_NAME": "issues",
            "GITHUB_EVENT_PATH": str(scene.data / "event.json"),
            "GITHUB_OUTPUT": str(scene.data / "output"),
            "GITHUB_STEP_SUMMARY": str(scene.data / "summary.md"),
        },
    )
    assert code == 0, out + error
    assert scene.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    assert not scene.pull.draft
    output = (scene.data / "output").read_text()
    for expected in ("delivered", "fixed", "patchwright/issue-1", "/acme/calc/pull/2"):
        assert expected in output
    assert "fixed" in (scene.data / "summary.md").read_text()


async def test_an_event_that_asks_for_nothing_needs_no_model(scene: Scene) -> None:
    scene.world.hook("http://127.0.0.1:9/nobody", "none")
    delivery = await scene.world.label(scene.issue, "question", by="maintainer")
    (scene.data / "event.json").write_text(json.dumps(written(delivery)))
    del scene.environment["PATCHWRIGHT_MODEL"]
    event = {"GITHUB_EVENT_NAME": "issues", "GITHUB_EVENT_PATH": str(scene.data / "event.json")}
    code, out, _ = await scene.command("action", environment=event)
    assert (code, scene.comments) == (0, [])
    assert "asks for nothing" in out
