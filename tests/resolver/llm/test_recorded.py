"""Recorded conversations: replayed for the exact prompt, refreshed by a model, shown as a diff when a prompt
changed.

`script/regenerate` refreshes those in tests/golden/recorded.
"""

import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from patchwright.resolver.agent.agent import record_prompts
from patchwright.resolver.domain import RunId
from patchwright.resolver.events import ModelReply
from patchwright.resolver.llm.litellm import LitellmModel
from patchwright.resolver.llm.model import (
    AssistantMessage,
    ChatMessage,
    Model,
    ProviderConnection,
    SystemMessage,
    UserMessage,
)
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.tool_actions.control_actions import Finish, Think
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.tool import ToolRegistry
from tests.resolver.agent_runs import FakeSandbox, make_agent
from tests.resolver.llm.test_chat_completions import PIXEL
from tests.resolver.recorded_model import ReplayModel, replay_recorded_replies
from tests.resolver.scripted_model import ScriptedModel

KEPT = Path(__file__).parents[2] / "golden/recorded"
TOOLS = tuple(tool.spec for tool in build_control_tools())
BRIEF: tuple[ChatMessage, ...] = (
    SystemMessage(text="You mend."),
    UserMessage(text="Issue 7\nadd() subtracts"),
)


def build_refresh_model(path: Path) -> Model | None:
    """Returns the model that refreshes the recordings: a real one, their own replies, or None."""
    if not (name := os.environ.get("PATCHWRIGHT_REGENERATE")):
        return None
    if name == "keep":
        return replay_recorded_replies(path)
    key = os.environ.get("PATCHWRIGHT_MODEL_API_KEY")
    base_url = os.environ.get("PATCHWRIGHT_MODEL_BASE_URL")
    return LitellmModel(name, ProviderConnection(base_url=base_url, api_key=SecretStr(key) if key else None))


async def test_the_agent_works_with_a_recorded_model(tmp_path: Path) -> None:
    path = KEPT / "account.jsonl"
    async with FileLogStore(tmp_path).open(RunId("run")) as log:
        worker = make_agent(ReplayModel(path, build_refresh_model(path)), FakeSandbox())  # type: ignore[arg-type]
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
    recording = ReplayModel(path, ScriptedModel([Think(thought="x"), Think(thought="y")], name="m"))
    assert recording.name == "m"
    for prompt in conversation(BRIEF):
        await recording.reply(prompt, TOOLS)
    return path


def conversation(brief: tuple[ChatMessage, ...]) -> list[tuple[ChatMessage, ...]]:
    later = (AssistantMessage(text="Hm.", model="m"), UserMessage(text="Go on.", images=(PIXEL,)))
    return [brief, (*brief, *later)]


async def test_recorded_replies_are_replayed(recorded: Path) -> None:
    model = ReplayModel(recorded)
    replies = [await model.reply(prompt, TOOLS) for prompt in conversation(BRIEF)]
    assert [reply.tool_calls[0].arguments for reply in replies] == ['{"thought":"x"}', '{"thought":"y"}']
    assert {reply.usage.model for reply in replies} == {"m"}


async def test_a_changed_prompt_is_shown_as_a_diff(recorded: Path) -> None:
    model = ReplayModel(recorded)
    changed = conversation((SystemMessage(text="You mend."), UserMessage(text="Issue 8\nadd() subtracts")))[1]
    with pytest.raises(AssertionError) as error:
        await model.reply(changed, TOOLS)
    shown = str(error.value).splitlines()
    assert shown[0] == "the prompt is not the recorded one (script/regenerate makes it so):"
    assert [line for line in shown if line.startswith(("-Issue", "+Issue"))] == ["-Issue 7", "+Issue 8"]
    assert len(shown) < 20


async def test_a_changed_tool_is_shown_as_a_diff(recorded: Path) -> None:
    changed = (TOOLS[0].model_copy(update={"description": "To muse."}), *TOOLS[1:])
    with pytest.raises(AssertionError, match=r"\+To muse\."):
        await ReplayModel(recorded).reply(BRIEF, changed)


async def test_a_turn_beyond_the_recording_is_reported(recorded: Path) -> None:
    with pytest.raises(AssertionError, match=r"has 2 replies, and none for turn 4"):
        await ReplayModel(recorded).reply(
            (AssistantMessage(text=""), AssistantMessage(text=""), AssistantMessage(text="")), TOOLS
        )


async def test_a_recording_is_refreshed_with_its_own_replies(recorded: Path) -> None:
    changed = conversation((SystemMessage(text="You mend."), UserMessage(text="Issue 8")))
    renewal = ReplayModel(recorded, replay_recorded_replies(recorded))
    renewed = [await renewal.reply(prompt, TOOLS) for prompt in changed]
    again = ReplayModel(recorded)
    assert [await again.reply(prompt, TOOLS) for prompt in changed] == renewed
    assert len(recorded.read_text().splitlines()) == 2
