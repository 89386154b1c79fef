"""Secrets in a model's own words and calls are masked before anything is recorded, shown or executed."""

import json

import pytest

from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.masking_model import MaskingModel
from patchwright.resolver.llm.model import RawToolCall, Reply
from patchwright.resolver.secrets import SECRET_PLACEHOLDER, Secrets
from tests.resolver.scripted_model import ScriptedModel

KEY = "sk-canary-model-4711"
USAGE = ReplyUsage(model="m", prompt_tokens=1, completion_tokens=1)


def reply(arguments: str, *, text: str = "", reasoning: str = "") -> Reply:
    call = RawToolCall(id="1", name="run_shell", arguments=arguments)
    blocks = ({"type": "thinking", "thinking": reasoning, "signature": "s"},) if reasoning else ()
    return Reply(text=text, tool_calls=(call,), usage=USAGE, reasoning=blocks)


async def masked(line: Reply) -> Reply:
    return await MaskingModel(ScriptedModel([line]), Secrets([KEY])).reply((), ())


async def test_words_calls_and_reasoning_are_masked() -> None:
    found = await masked(
        reply(json.dumps({"command": f"echo {KEY}"}), text=f"It is {KEY}.", reasoning=f"{KEY}?")
    )
    assert found.text == f"It is {SECRET_PLACEHOLDER}."
    assert json.loads(found.tool_calls[0].arguments) == {"command": f"echo {SECRET_PLACEHOLDER}"}
    assert found.reasoning == ()


@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps({"command": [{"nested": f"echo {KEY}"}]}),
        '{"command": "' + "".join(f"\\u{ord(char):04x}" for char in KEY) + '"}',
        json.dumps({"command": "\u200b".join(KEY)}),
        f'{{"command": "{KEY}" and no json',
    ],
)
async def test_no_spelling_of_an_argument_hides_a_secret(arguments: str) -> None:
    shown = (await masked(reply(arguments))).tool_calls[0].arguments
    assert SECRET_PLACEHOLDER in shown
    # Positive control: decoded, the same arguments without masking contain the key.
    plain = json.dumps(json.loads(arguments), ensure_ascii=False) if arguments.endswith("}") else arguments
    assert KEY in plain.replace("\u200b", "")


async def test_a_reply_without_a_secret_does_not_change() -> None:
    line = reply('{"command":  "echo \\u00e9"}', text="Fine.", reasoning="Hm.")
    assert await masked(line) == line
