"""A new tool is one class. Everything that shows a run describes its calls without knowing the class."""

import runpy
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from patchwright.resolver.activity.activity import get_activity, render_progress
from patchwright.resolver.agent.messages import build_messages
from patchwright.resolver.domain import JobId
from patchwright.resolver.events import ModelReply, ReplyUsage, ToolCall, ToolResult, Trajectory
from patchwright.resolver.llm.model import RawToolCall
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.tools.tool import ActionTool, ToolRegistry
from patchwright.resolver.viewer.blocks import ImageCollection
from patchwright.resolver.viewer.timeline import build_timeline
from patchwright.runtime.observations import TextResult
from tests.resolver.agent_runs import FakeSandbox
from tests.resolver.sample_runs import run_of, started


def load_example() -> Any:
    """Returns the class of the tool in docs/extending.md."""
    docs = Path(__file__).parents[3] / "docs" / "extending.md"
    code = docs.read_text().split("```python\n# resolver/tool_actions/count_lines.py\n")[1].split("```")[0]
    with NamedTemporaryFile("w", suffix=".py") as file:
        file.write(code)
        file.flush()
        return runpy.run_path(file.name)["CountLines"]


CountLines = load_example()


def build_run(*, answered: bool) -> Trajectory:
    # The class is in no union, so the call is not validated.
    calls = tuple(
        ToolCall.model_construct(id=name, action=CountLines(path=f"{name}.py")) for name in ("a", "b")
    )
    reply = ModelReply(thought="How long is it?", calls=calls, usage=ReplyUsage(model="m"))
    results = [ToolResult(call_id=call.id, observation=TextResult(text="7")) for call in calls]
    return run_of(started(), reply, *(results if answered else ()))


async def test_a_new_tool_is_parsed_and_executed_in_the_sandbox() -> None:
    sandbox = FakeSandbox()
    registry = ToolRegistry((ActionTool(CountLines, lambda call: call.run(sandbox)),))
    (spec,) = registry.specs
    assert (spec.name, spec.description) == ("count_lines", "Count the lines of a file.")
    action = registry.parse(RawToolCall(id="a", name="count_lines", arguments='{"path": "a.py"}'))
    assert await registry.execute(action) == TextResult(text="a.py has wc -l < a.py lines.")


def test_the_comment_shows_the_calls_of_a_new_tool() -> None:
    run = build_run(answered=False)
    assert get_activity(run).target == "a.py"
    assert "**Now:** counting the lines of (and 1 more in parallel) `a.py`" in render_progress(
        JobId("j"), run, Settings(data=Path("/nowhere"))
    )


def test_the_viewer_shows_the_calls_of_a_new_tool() -> None:
    timeline = build_timeline(build_run(answered=True), lambda run: None, ImageCollection(), 4_000, 100)
    call = next(item for item in timeline if item.call_id == "a")
    assert (call.kind, call.title) == ("read", "count the lines of a.py")
    assert [getattr(block, "text", "") for block in call.blocks] == ["7"]


def test_the_model_sees_which_call_of_a_new_tool_a_result_answers() -> None:
    labels = [message.text for message in build_messages(build_run(answered=True))[-2:]]
    assert labels == ["[1 of 2: count_lines a.py]\n7", "[2 of 2: count_lines b.py]\n7"]
