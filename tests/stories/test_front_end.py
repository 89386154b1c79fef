"""An issue on a page: the agent mends it, looks at it in a browser in its own sandbox, and lets others look too."""

import re
from collections.abc import Callable

import pytest

from demo.model import Turn
from resolver.actions import AnswerField, Browse, Delegate, Report
from resolver.domain import Delivered
from resolver.events import Observed
from runtime.actions import ReplaceText, RunShell
from runtime.docker.image import PYTHON
from runtime.observations import Page
from tests.stories.conftest import CODE, MENDED, TESTS, Scene
from tests.stories.test_browse import free_port
from tests.stories.voices import heard

PAGE = "<!doctype html><title>Calc</title><h1>Calculator</h1><button>Sumbit</button>\n"
FILES = {"calc.py": CODE, "tests/test_calc.py": TESTS, "site/index.html": PAGE}
LABEL = AnswerField(name="label", description="the words on the page's button")
SEEN, WHERE = "Which files name the button?", "Which port is served?"


def opens(prompt: str) -> str:
    (address,) = re.findall(r"Open (\S+) and", prompt)
    return f'The goal names the address.\n```\ngoto("{address}")\n```'


def reports(prompt: str) -> str:
    (label,) = re.findall(r"button '([^']+)'", prompt)
    return f'The button says it.\n```\nsend_msg_to_user("{label}")\n```'


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("local", marks=[pytest.mark.browser, pytest.mark.slow]),
        pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.slow]),
    ],
)
async def test_a_page_is_mended_looked_at_and_asked_about(a_scene: Callable[..., Scene], kind: str) -> None:
    scene = a_scene(files=FILES, title="The button says Sumbit, and add() subtracts")
    scene.environment |= {
        "PATCHWRIGHT_SANDBOX": kind,
        "PATCHWRIGHT_PLUGINS": "browser",
        "PATCHWRIGHT_MODEL_SEES": "true",
    }
    port = free_port() if kind == "local" else 8765
    python = "python3" if kind == "local" else PYTHON
    serve = f"{python} -m http.server --bind 127.0.0.1 --directory site {port} >/dev/null 2>&1 &"
    wait = f"until (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.1; done"
    browse = Browse(task=f"Open http://127.0.0.1:{port}/ and say what its button says.", fields=(LABEL,))
    there = RunShell(command="grep -rl Submit site; rm -r site")
    served = RunShell(command=f"(: </dev/tcp/127.0.0.1/{port}) 2>&1 || echo unserved")
    voices = await heard(
        scene,
        Turn("Mend it.", ReplaceText(path="site/index.html", old="Sumbit", new="Submit")),
        Turn("Serve it.", RunShell(command=f"{serve}\n{wait}", timeout=30)),
        Turn("Look at it.", browse),
        Turn("Let others look.", Delegate(tasks=(SEEN, WHERE))),
        *MENDED,
        others={
            SEEN: (Turn("Search.", there), Turn("There.", Report(text="site/index.html"))),
            WHERE: (Turn("Try.", served), Turn("So.", Report(text="None that I see."))),
        },
        browsing=(opens, reports),
    )
    assert isinstance(await scene.resolve(), Delivered)

    run = scene.trajectory(scene.job().id)
    browsed, seen, where = (report for _, report in run.delegations())
    assert browsed is not None and (browsed.status, browsed.text) == ("answered", '{"label": "Submit"}')
    assert seen is not None and (seen.status, seen.text) == ("answered", "site/index.html")
    assert where is not None and where.status == "answered"
    assert run.spent().steps == len(run.decisions()) + 2 + 2 + 2

    # What the page looked like after the change is kept, for the one who reads the run.
    child = scene.trajectory(run.delegations()[0][0].run)
    *_, page = [event.observation for event in child if isinstance(event, Observed)]
    assert isinstance(page, Page) and "button 'Submit'" in page.tree
    assert page.screenshot is not None and page.screenshot.data.startswith((b"\x89PNG", b"\xff\xd8"))

    tried = voices.heard[WHERE][-1]["messages"][-1]["content"]
    # A sandbox of its own has a loopback of its own.
    assert ("\nunserved\n" in tried) == (kind == "docker")
    assert "<button>Submit</button>" in scene.repo.diff(scene.pull)
    assert scene.pull.body is not None and "Browsed 1 time, in 2 of the steps" in scene.pull.body
