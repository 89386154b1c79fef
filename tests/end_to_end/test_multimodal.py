"""The agent has an image and a PDF described from its Python session."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import Published
from patchwright.resolver.events import AuxiliaryModelCall, ToolResult
from patchwright.runtime.actions import RunPython, ViewFile
from patchwright.runtime.observations import CellResult, TextResult
from tests.end_to_end.conftest import CODE, DONE, FIX, NEW_TEST, TESTS, Scenario
from tests.runtime import sample_documents

pytestmark = pytest.mark.slow

SEEN = "The screenshot shows add(2, 3) = -1 in red."


@pytest.fixture
def scenario(make_scenario: Callable[..., Scenario], tmp_path: Path) -> Scenario:
    picture = sample_documents.png(tmp_path / "shot.png", 40, 30).read_bytes()
    paper = sample_documents.pdf(tmp_path / "report.pdf", "It subtracts.").read_bytes()
    files = {"calc.py": CODE, "tests/test_calc.py": TESTS, "shot.png": picture, "report.pdf": paper}
    scenario = make_scenario(files)
    scenario.environment |= {
        "PATCHWRIGHT_SANDBOX_FEATURES": "kernel,documents",
        "PATCHWRIGHT_MULTIMODAL_MODEL": "openai/scripted",
    }
    return scenario


async def test_an_image_and_a_pdf_are_described_to_the_agent_and_counted(
    scenario: Scenario, tmp_path: Path
) -> None:
    scenario.issue.body = " ".join(
        scenario.fake_github.add_attachment(f"files/1/{name}", (tmp_path / name).read_bytes())
        for name in ("shot.png", "report.pdf")
    )
    # An auxiliary request is its own conversation, so the first turn is its reply.
    look = RunPython(
        code=f"import glob\nd = glob.glob('{scenario.data}/**/attachments', recursive=True)[0]\n"
        "parse_image(d + '/1-shot.png', 'What does it show?')\nparse_pdf(d + '/2-report.pdf')",
        timeout=20,
    )
    await scenario.script_model(
        RecordedTurn(SEEN, look, ViewFile(path="report.pdf")),
        RecordedTurn("Fix.", FIX, NEW_TEST),
        RecordedTurn("Done.", DONE),
    )
    assert isinstance(await scenario.resolve(), Published)
    events = list(scenario.trajectory())
    observed = [event.observation for event in events if isinstance(event, ToolResult)]
    ran, viewed = observed[:2]
    assert isinstance(ran, CellResult), ran
    assert ran.output == f"{SEEN}\n## Page 1 of 1\n\nIt subtracts.\n\n"
    assert isinstance(viewed, TextResult), viewed
    assert "It subtracts." in viewed.text
    (consulted,) = [event for event in events if isinstance(event, AuxiliaryModelCall)]
    assert consulted.purpose == "vision"
    spent = scenario.trajectory().usage()
    alone = [
        event.usage
        for event in events
        if hasattr(event, "usage") and not isinstance(event, AuxiliaryModelCall)
    ]
    assert spent.prompt_tokens == consulted.usage.prompt_tokens + sum(usage.prompt_tokens for usage in alone)
    assert spent.steps == len(alone)
    first, second = scenario.endpoint.requests[:2]
    (use_tool,) = [tool["function"] for tool in first["tools"] if tool["function"]["name"] == "use_tool"]
    assert "- run_python: Run a cell" in use_tool["description"] and "reads documents and media" in str(
        use_tool
    )
    assert "What does it show?" in str(second["messages"][1]["content"])


async def test_a_run_without_remaining_budget_describes_no_images(scenario: Scenario) -> None:
    scenario.environment["PATCHWRIGHT_MAX_USD"] = "0.000001"
    scenario.environment["PATCHWRIGHT_MODEL_PRICES"] = '{"openai/scripted": {"input": 1000, "output": 1000}}'
    look = RunPython(code="parse_image('shot.png')")
    await scenario.script_model(RecordedTurn(SEEN, look))
    await scenario.resolve()
    (ran,) = [event.observation for event in scenario.trajectory() if isinstance(event, ToolResult)]
    assert isinstance(ran, CellResult), ran
    assert ran.output.startswith("[parse_image: The budget of $0.000001 is spent ")
    assert scenario.trajectory().usage().usd > Decimal("0.000001")
    assert len(scenario.endpoint.requests) == 1
