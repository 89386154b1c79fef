"""One issue, three callers, and the few primitives that do all of it."""

from typing import Any

import pytest

from demo.model import Turn
from resolver.domain import Delivered
from resolver.events import Decided
from runtime.actions import RunPython, RunShell
from tests.stories.conftest import CODE, DONE, MENDED, Scene

pytestmark = pytest.mark.slow

Told = tuple[list[str], list[Any], bytes]


def told(scene: Scene, run: str) -> Told:
    """What happened in a run: its events, its calls and its patch."""
    trajectory = scene.trajectory(run)
    calls = [call.action for event in trajectory if isinstance(event, Decided) for call in event.calls]
    patch = trajectory.checkpoint()
    assert patch is not None
    return [event.kind for event in trajectory], calls, patch.diff


@pytest.mark.redis
@pytest.mark.slow
async def test_server_workflow_and_command_line_do_the_same(scene: Scene) -> None:
    issues = [scene.issue] + [
        scene.world.issue(scene.repo, title=scene.issue.title, body=scene.issue.body, by="reporter")
        for _ in range(2)
    ]
    runs: list[Told] = []
    before: set[str] = set()

    def note() -> None:
        (run,) = set(scene.runs) - before
        before.add(run)
        runs.append(told(scene, run))

    await scene.will(*MENDED)
    async with scene.serving() as served:
        scene.world.hook(served.webhook, "story-webhook-secret")
        await scene.world.label(issues[0], "fix-me", by="maintainer")
        await scene.settled()
    note()
    scene.world.hook("http://127.0.0.1:9/nobody", "none")
    await scene.will(*MENDED)
    delivery = await scene.world.label(issues[1], "fix-me", by="maintainer")
    code, out, error = await scene.command("action", environment=scene.event(delivery))
    assert code == 0, out + error
    note()
    await scene.will(*MENDED)
    url = f"{scene.world.server_url}/acme/calc/issues/{issues[2].number}"
    code, out, error = await scene.command("resolve", url)
    assert code == 0, out + error
    note()
    assert runs[0] == runs[1] == runs[2]
    assert b"+    return a + b" in runs[0][2]


async def test_shell_and_python_alone_are_enough_for_an_issue(scene: Scene) -> None:
    scene.environment["PATCHWRIGHT_PLUGINS"] = "kernel"
    edit = "from pathlib import Path\nit = Path('calc.py')\nit.write_text(it.read_text().replace('a - b', 'a + b'))"
    test = "printf 'from calc import add\\n\\n\\ndef test_add():\\n    assert add(2, 3) == 5\\n' > tests/test_add.py"
    await scene.will(
        Turn("See it fail.", RunShell(command=test), RunShell(command="python3 -m pytest -q")),
        Turn("Mend it.", RunPython(code=edit)),
        Turn("Run them.", RunShell(command="python3 -m pytest -q")),
        Turn("Done.", DONE),
    )
    outcome = await scene.resolve()
    assert isinstance(outcome, Delivered) and outcome.verdict.kind == "fixed"
    assert scene.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
