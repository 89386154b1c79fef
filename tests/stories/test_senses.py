"""A run whose agent has a picture looked at and a PDF read, from its Python session."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from demo.model import Turn
from resolver.domain import Delivered
from resolver.events import Consulted, Observed
from runtime.actions import RunPython, ViewFile
from runtime.observations import RanPython, Viewed
from tests.runtime import papers
from tests.stories.conftest import CODE, DONE, FIX, NEW_TEST, TESTS, Scene

pytestmark = pytest.mark.slow

SEEN = "The screenshot shows add(2, 3) = -1 in red."


@pytest.fixture
def scene(a_scene: Callable[..., Scene], tmp_path: Path) -> Scene:
    picture = papers.png(tmp_path / "shot.png", 40, 30).read_bytes()
    paper = papers.pdf(tmp_path / "report.pdf", "It subtracts.").read_bytes()
    files = {"calc.py": CODE, "tests/test_calc.py": TESTS, "shot.png": picture, "report.pdf": paper}
    scene = a_scene(files)
    scene.environment |= {"PATCHWRIGHT_PLUGINS": "kernel,documents", "PATCHWRIGHT_MODEL_SEES": "true"}
    return scene


async def test_the_agent_gets_text_for_a_picture_and_a_pdf_and_the_look_is_paid(scene: Scene) -> None:
    # A question on the side is a conversation of its own, so its answer is what the first reply says.
    look = RunPython(
        code="parse_image('shot.png', 'What does it show?')\nparse_pdf('report.pdf')", timeout=20
    )
    await scene.will(
        Turn(SEEN, look, ViewFile(path="report.pdf")), Turn("Mend.", FIX, NEW_TEST), Turn("Done.", DONE)
    )
    assert isinstance(await scene.resolve(), Delivered)
    events = list(scene.trajectory())
    observed = [event.observation for event in events if isinstance(event, Observed)]
    ran, viewed = observed[:2]
    assert isinstance(ran, RanPython), ran
    assert ran.output == f"{SEEN}\n## Page 1 of 1\n\nIt subtracts.\n\n"
    assert isinstance(viewed, Viewed), viewed
    assert "It subtracts." in viewed.text
    (consulted,) = [event for event in events if isinstance(event, Consulted)]
    assert consulted.purpose == "senses"
    spent = scene.trajectory().spent()
    alone = [event.usage for event in events if hasattr(event, "usage") and not isinstance(event, Consulted)]
    assert spent.prompt_tokens == consulted.usage.prompt_tokens + sum(usage.prompt_tokens for usage in alone)
    assert spent.steps == len(alone)
    first, second = scene.endpoint.requests[:2]
    assert "parse_image(file_path: str" in first["messages"][0]["content"]
    assert "What does it show?" in str(second["messages"][1]["content"])


async def test_a_run_without_money_left_looks_no_more(scene: Scene) -> None:
    scene.environment["PATCHWRIGHT_MAX_USD"] = "0.000001"
    scene.environment["PATCHWRIGHT_MODEL_PRICES"] = '{"openai/scripted": {"input": 1000, "output": 1000}}'
    look = RunPython(code="parse_image('shot.png')")
    await scene.will(Turn(SEEN, look))
    await scene.resolve()
    (ran,) = [event.observation for event in scene.trajectory() if isinstance(event, Observed)]
    assert isinstance(ran, RanPython), ran
    assert ran.output.startswith("[parse_image: The budget of $0.000001 is spent ")
    assert scene.trajectory().spent().usd > Decimal("0.000001")
    assert len(scene.endpoint.requests) == 1
