"""Recorded conversations: replayed for the exact prompt, refreshed by a model, shown as a diff when a prompt
changed.

`script/regenerate` refreshes those in tests/golden/recorded.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.resolver.agent.agent import record_prompts
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import ModelReply
from patchwright.resolver.llm.model import (
    AssistantMessage,
    ChatMessage,
    SystemMessage,
    ToolSpec,
    UserMessage,
)
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.tool_actions.control_actions import Finish, Think
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.tool import ToolRegistry
from tests.resolver.agent_runs import FakeSandbox, make_agent
from tests.resolver.llm.test_chat_completions import PIXEL
from tests.resolver.recorded_model import RecordingModel, ReplayModel, open_recording, read_replies
from tests.resolver.scripted_model import ScriptedModel

KEPT = Path(__file__).parents[2] / "golden/recorded"
TOOLS = tuple(tool.spec for tool in build_control_tools())
BRIEF: tuple[ChatMessage, ...] = (
    SystemMessage(text="You mend."),
    UserMessage(text="Issue 7\nadd() subtracts"),
)


async def test_the_agent_works_with_a_recorded_model(tmp_path: Path) -> None:
    path = KEPT / "account.jsonl"
    async with FileLogStore(tmp_path).open(RunId("run")) as log:
        with open_recording(path) as model:
            worker = make_agent(model, FakeSandbox())  # type: ignore[arg-type]
            worker.tools = ToolRegistry(build_control_tools())
            brief = "Nothing is broken. Think once, about nothing; then finish and say so in each field."
            await record_prompts(log, "You act by calling tools, one at a time.", brief, worker.tools)
            assert (await worker.run(log)).reason == "finished"
        actions = [event.calls[0].action for event in log.trajectory if isinstance(event, ModelReply)]
    assert isinstance(actions[0], Think) and isinstance(actions[-1], Finish)


@pytest.fixture
async def recorded(tmp_path: Path) -> Path:
    """Two recorded turns of a conversation with an image."""
    path = tmp_path / "recorded.jsonl"
    recording = RecordingModel(path, ScriptedModel([Think(thought="x"), Think(thought="y")], name="m"))
    assert recording.name == "m"
    for prompt in conversation(BRIEF):
        await recording.reply(prompt, TOOLS)
    recording.save()
    return path


def conversation(brief: tuple[ChatMessage, ...]) -> list[tuple[ChatMessage, ...]]:
    later = (AssistantMessage(text="Hm.", model="m"), UserMessage(text="Go on.", images=(PIXEL,)))
    return [brief, (*brief, *later)]


async def test_recorded_replies_are_replayed(recorded: Path) -> None:
    model = ReplayModel(recorded)
    replies = [await model.reply(prompt, TOOLS) for prompt in conversation(BRIEF)]
    assert [reply.tool_calls[0].arguments for reply in replies] == ['{"thought":"x"}', '{"thought":"y"}']
    assert {reply.usage.model for reply in replies} == {"m"}


async def test_a_changed_prompt_is_shown_as_a_diff_to_the_nearest_one(recorded: Path) -> None:
    model = ReplayModel(recorded)
    for turn, changed in enumerate(conversation((BRIEF[0], UserMessage(text="Issue 8\nadd() subtracts")))):
        with pytest.raises(AssertionError) as error:
            await model.reply(changed, TOOLS)
        first, *difference = str(error.value).splitlines()
        assert first == "the prompt is not in recorded.jsonl; if it should change, run script/regenerate:"
        assert [line for line in difference if line[0] in "+-"] == [
            "--- the recorded prompt",
            "+++ the prompt now",
            "-Issue 7",
            "+Issue 8",
        ], turn


async def test_a_changed_tool_is_shown_as_a_diff(recorded: Path) -> None:
    changed = (TOOLS[0].model_copy(update={"description": "To muse."}), *TOOLS[1:])
    with pytest.raises(AssertionError, match=r"\+To muse\."):
        await ReplayModel(recorded).reply(BRIEF, changed)


async def test_a_turn_beyond_the_recording_is_shown_as_a_diff(recorded: Path) -> None:
    last = conversation(BRIEF)[1]
    with pytest.raises(AssertionError, match=r"\+--- assistant\n\+One more\.$"):
        await ReplayModel(recorded).reply((*last, AssistantMessage(text="One more.")), TOOLS)


async def record_again(
    path: Path, *prompts: Sequence[ChatMessage], tools: Sequence[ToolSpec] = TOOLS
) -> None:
    with open_recording(path) as model:
        for prompt in prompts:
            await model.reply(prompt, tools)


@pytest.fixture
def regenerate(monkeypatch: pytest.MonkeyPatch) -> None:
    """As script/regenerate does without PATCHWRIGHT_MODEL."""
    monkeypatch.setenv("PATCHWRIGHT_REGENERATE", "keep")


@pytest.mark.usefixtures("regenerate")
async def test_a_cosmetic_change_reuses_the_recorded_replies(recorded: Path) -> None:
    before = read_replies(recorded)
    described = (TOOLS[0].model_copy(update={"description": "To muse."}), *TOOLS[1:])
    changed = conversation((SystemMessage(text="You mend."), UserMessage(text="Issue 8\nadd() subtracts")))
    await record_again(recorded, *changed, tools=described)
    again = ReplayModel(recorded)
    assert [await again.reply(prompt, described) for prompt in changed] == before


LONGER = (*BRIEF, UserMessage(text="And sub() adds."))
REPLACED = (BRIEF[0], UserMessage(text="Write a poem about rain."))
OTHER_FIELD = TOOLS[0].model_copy(update={"parameters": {"type": "object", "properties": {}}})


@pytest.mark.usefixtures("regenerate")
@pytest.mark.parametrize(
    ("prompt", "tools"),
    [(LONGER, TOOLS), (REPLACED, TOOLS), (BRIEF, TOOLS[1:]), (BRIEF, (OTHER_FIELD, *TOOLS[1:]))],
    ids=["message added", "text replaced", "tool removed", "field removed"],
)
async def test_a_structural_change_asks_for_a_live_model(
    recorded: Path, prompt: tuple[ChatMessage, ...], tools: tuple[ToolSpec, ...]
) -> None:
    before = recorded.read_bytes()
    with pytest.raises(
        AssertionError, match=r"PATCHWRIGHT_MODEL=\S+ \S+ script/regenerate\n--- the recorded prompt"
    ):
        await record_again(recorded, prompt, tools=tools)
    assert recorded.read_bytes() == before


async def test_a_live_model_records_other_replies(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with RecordedModel([RecordedTurn("No.")], key="sk") as endpoint:
        monkeypatch.setenv("PATCHWRIGHT_REGENERATE", "openai/live")
        monkeypatch.setenv("PATCHWRIGHT_MODEL_BASE_URL", endpoint.base_url)
        monkeypatch.setenv("PATCHWRIGHT_MODEL_API_KEY", "sk")
        await record_again(recorded, LONGER)
    assert [reply.text for reply in read_replies(recorded)] == ["No."]
