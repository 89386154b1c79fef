"""Recorded conversations: found by the exact prompt, renewed by a model, and readable when a prompt changed.

`script/regenerate` renews those that are kept in tests/golden/recorded.
"""

import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from resolver.actions import Finish, Think
from resolver.agent import begin
from resolver.domain import RunId
from resolver.events import Decided
from resolver.llm.litellm import LitellmModel
from resolver.llm.model import FromModel, FromUser, Message, Model, System
from resolver.log import FileLogs
from resolver.tools.talk import talk_tools
from resolver.tools.tool import Tools
from tests.resolver.agents import Box, agent
from tests.resolver.llm.test_pictures import PIXEL
from tests.resolver.recorded import Recorded, keeping
from tests.resolver.scripted import Scripted

KEPT = Path(__file__).parents[2] / "golden/recorded"
TOOLS = tuple(tool.spec for tool in talk_tools())
BRIEF: tuple[Message, ...] = (System(text="You mend."), FromUser(text="Issue 7\nadd() subtracts"))


def renewing(path: Path) -> Model | None:
    """What renews the recordings that are kept: a model, their own replies, or nothing."""
    if not (name := os.environ.get("PATCHWRIGHT_REGENERATE")):
        return None
    if name == "keep":
        return keeping(path)
    key = os.environ.get("PATCHWRIGHT_MODEL_API_KEY")
    base_url = os.environ.get("PATCHWRIGHT_MODEL_BASE_URL")
    return LitellmModel(name, base_url=base_url, api_key=SecretStr(key) if key else None)


async def test_the_agent_works_with_a_model_as_it_was_recorded(tmp_path: Path) -> None:
    path = KEPT / "account.jsonl"
    async with FileLogs(tmp_path).open(RunId("run")) as log:
        worker = agent(Recorded(path, renewing(path)), Box())  # type: ignore[arg-type]
        worker.tools = Tools(talk_tools())
        brief = "Nothing is broken. Think once, about nothing; then finish and say so in each field."
        await begin(log, "You act by calling tools, one at a time.", brief, worker.tools)
        assert (await worker.run(log)).reason == "finished"
        said = [event.calls[0].action for event in log.trajectory if isinstance(event, Decided)]
    assert isinstance(said[0], Think) and isinstance(said[-1], Finish)


@pytest.fixture
async def recorded(tmp_path: Path) -> Path:
    """Two turns of a conversation, with a picture in it."""
    path = tmp_path / "recorded.jsonl"
    recording = Recorded(path, Scripted([Think(thought="x"), Think(thought="y")], name="m"))
    assert recording.name == "m"
    for prompt in conversation(BRIEF):
        await recording.reply(prompt, TOOLS)
    return path


def conversation(brief: tuple[Message, ...]) -> list[tuple[Message, ...]]:
    later = (FromModel(text="Hm.", model="m"), FromUser(text="Go on.", pictures=(PIXEL,)))
    return [brief, (*brief, *later)]


async def test_what_was_recorded_is_said_again(recorded: Path) -> None:
    model = Recorded(recorded)
    replies = [await model.reply(prompt, TOOLS) for prompt in conversation(BRIEF)]
    assert [reply.calls[0].arguments for reply in replies] == ['{"thought":"x"}', '{"thought":"y"}']
    assert {reply.usage.model for reply in replies} == {"m"}


async def test_a_prompt_that_changed_is_shown_as_a_difference(recorded: Path) -> None:
    model = Recorded(recorded)
    changed = conversation((System(text="You mend."), FromUser(text="Issue 8\nadd() subtracts")))[1]
    with pytest.raises(AssertionError) as error:
        await model.reply(changed, TOOLS)
    shown = str(error.value).splitlines()
    assert shown[0] == "the prompt is not the recorded one (script/regenerate makes it so):"
    assert [line for line in shown if line.startswith(("-Issue", "+Issue"))] == ["-Issue 7", "+Issue 8"]
    assert len(shown) < 20


async def test_a_tool_that_changed_is_shown_too(recorded: Path) -> None:
    changed = (TOOLS[0].model_copy(update={"description": "To muse."}), *TOOLS[1:])
    with pytest.raises(AssertionError, match=r"\+To muse\."):
        await Recorded(recorded).reply(BRIEF, changed)


async def test_a_turn_more_than_was_recorded_is_told(recorded: Path) -> None:
    with pytest.raises(AssertionError, match=r"has 2 replies, and none for turn 4"):
        await Recorded(recorded).reply((FromModel(text=""), FromModel(text=""), FromModel(text="")), TOOLS)


async def test_a_recording_is_renewed_with_its_own_replies(recorded: Path) -> None:
    changed = conversation((System(text="You mend."), FromUser(text="Issue 8")))
    renewal = Recorded(recorded, keeping(recorded))
    renewed = [await renewal.reply(prompt, TOOLS) for prompt in changed]
    again = Recorded(recorded)
    assert [await again.reply(prompt, TOOLS) for prompt in changed] == renewed
    assert len(recorded.read_text().splitlines()) == 2
