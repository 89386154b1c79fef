"""Answers of the browsing agent that follow a schema, and guessed URLs."""

import json
from pathlib import Path

import pytest

from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.agent.messages import render_observation
from patchwright.resolver.browsing.structured_output import OutputSchemaError, parse_output
from patchwright.resolver.domain import RunId
from patchwright.resolver.llm.model import RawToolCall, ToolMessage
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.tool_actions.subagent_actions import Browse, OutputField
from patchwright.resolver.tools.tool import ActionTool, ToolRegistry
from patchwright.runtime.observations import PageSnapshot
from tests.resolver.fake_browser import BLANK, BROWSE, FakeBrowserSandbox, code_reply, page, run_browse_task

START = page("RootWebArea 'Shop', focused\n  StaticText 'The red mug: $279.49, in S and M.'")
PRICE = OutputField(name="price", type="number", description="in dollars")
SIZES = OutputField(name="sizes", type="list")
SOLD = OutputField(name="sold_out", type="boolean")
NAME = OutputField(name="name")
MUG = Browse(task="What of the red mug on http://localhost:8000?", fields=(NAME, PRICE, SIZES, SOLD))
WHOLE = '{"name": "Red mug", "price": 279.49, "sizes": ["S", "M"], "sold_out": null}'


def answers(text: str) -> PageSnapshot:
    return START.model_copy(update={"user_message": text})


# The schema


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        f"```json\n{WHOLE}\n```",
        '{"sold_out": null, "sizes": ["S", "M"],\n "price": 279.49, "name": "Red mug"}',
    ],
)
def test_an_answer_with_all_fields_is_parsed_in_every_form(text: str) -> None:
    assert parse_output(text, MUG.fields) == WHOLE


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("The mug costs $279.49.", "it is not valid JSON"),
        (WHOLE + WHOLE, "it is not valid JSON"),
        ("[1, 2]", "not an object"),
        ('{"name": "Red mug", "price": 279.49, "sizes": []}', "`sold_out` is missing"),
        (WHOLE.replace("279.49", '"$279.49"'), "`price` must be a number, or null"),
        (WHOLE.replace("279.49", "true"), "`price` must be a number, or null"),
        (WHOLE.replace("279.49", "NaN"), "it is not valid JSON"),
        (WHOLE.replace('["S", "M"]', '"S, M"'), "`sizes` must be a list of texts, or null"),
        (WHOLE.replace("null", '"no"'), "`sold_out` must be true or false, or null"),
        (WHOLE.replace('"Red mug"', '{"a": 1}'), "`name` must be a text, or null"),
        (WHOLE.replace("}", ', "url": "x"}'), "`url` is not a requested field"),
        ("[" * 100_000, "it is not valid JSON"),
        ("", "it is not valid JSON"),
    ],
)
def test_schema_errors_are_named(text: str, problem: str) -> None:
    with pytest.raises(OutputSchemaError) as off:
        parse_output(text, MUG.fields)
    assert problem in str(off.value) and len(str(off.value)) < 500


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        (NAME, "$279.49", "$279.49"),
        (NAME, "279.49", "279.49"),
        (NAME, '"$279.49"', "$279.49"),
        (NAME, '{"name": "Mug"}', "Mug"),
        (NAME, "{mug}", "{mug}"),
        (NAME, "null", None),
        (PRICE, "279.49", 279.49),
        (PRICE, "1,279.49", 1279.49),
        (SOLD, "true", True),
        (SIZES, '["S"]', ["S"]),
    ],
)
def test_a_single_field_can_be_answered_by_its_value(field: OutputField, text: str, value: object) -> None:
    assert json.loads(parse_output(text, (field,))) == {field.name: value}


@pytest.mark.parametrize("text", ["$279.49", "about 280", "", '{"cost": 1}', "12,34"])
def test_an_invalid_number_is_a_schema_error(text: str) -> None:
    with pytest.raises(OutputSchemaError, match="`price` must be a number, or null"):
        parse_output(text, (PRICE,))


# Messages to the agents


async def test_the_requested_fields_are_returned_as_one_object(tmp_path: Path) -> None:
    box = FakeBrowserSandbox(START, answers(f"```\n{WHOLE}\n```"))
    answer, model = await run_browse_task(tmp_path, box, code_reply("send_msg_to_user('...')"), browse=MUG)
    assert isinstance(answer, SubagentResult)
    assert (answer.status, answer.text, answer.schema_error) == ("answered", WHOLE, "")
    prompt = model.requests[1][-1].text
    assert "- `price`, a number: in dollars\n- `sizes`, a list of texts\n" in prompt
    assert "do not state, and an empty list if the pages say that there are no entries:\n" in prompt
    assert """r'''{"name": "...", "price": 0, "sizes": ["..."], "sold_out": true}'''""" in prompt
    message = model.requests[2][-1]
    assert isinstance(message, ToolMessage) and f"> {WHOLE}\n" in message.text


async def test_an_invalid_report_is_sent_back_once_with_the_error(tmp_path: Path) -> None:
    box = FakeBrowserSandbox(START, answers("It costs $279.49."), answers(WHOLE))
    script = [
        code_reply("send_msg_to_user('It costs $279.49.')"),
        code_reply("send_msg_to_user('...')", "As an object."),
    ]
    answer, model = await run_browse_task(tmp_path, box, *script, browse=MUG)
    assert isinstance(answer, SubagentResult) and (answer.text, answer.usage.steps) == (WHOLE, 2)
    assert "Your report was not delivered" not in model.requests[1][-1].text
    assert "Your report was not delivered" in model.requests[2][-1].text
    assert "it is not valid JSON" in model.requests[2][-1].text


async def test_a_report_that_is_invalid_twice_is_returned_with_the_error(tmp_path: Path) -> None:
    box = FakeBrowserSandbox(START, answers("It is dear."), answers("It costs $279.49."))
    script = [code_reply("send_msg_to_user('1')"), code_reply("send_msg_to_user('2')")]
    answer, _ = await run_browse_task(tmp_path, box, *script, browse=MUG)
    assert isinstance(answer, SubagentResult) and answer.status == "answered"
    assert answer.text == "It costs $279.49." and "not valid JSON" in answer.schema_error
    assert "not in the requested form (it is not valid JSON" in render_observation(answer).splitlines()[0]


async def test_an_invalid_report_is_returned_when_steps_run_out(tmp_path: Path) -> None:
    box = FakeBrowserSandbox(START, answers("It costs $279.49."), START)
    script = [code_reply("send_msg_to_user('1')"), code_reply("noop()")]
    answer, _ = await run_browse_task(tmp_path, box, *script, browse=MUG, max_steps=2)
    assert isinstance(answer, SubagentResult) and (answer.status, answer.text) == (
        "answered",
        "It costs $279.49.",
    )
    assert answer.schema_error


async def test_a_report_that_is_too_long_is_a_schema_error(tmp_path: Path) -> None:
    long = WHOLE.replace("Red mug", "x" * 5_000)
    box = FakeBrowserSandbox(START, answers(long), answers(WHOLE))
    script = [code_reply("send_msg_to_user('1')"), code_reply("send_msg_to_user('2')")]
    answer, model = await run_browse_task(tmp_path, box, *script, browse=MUG)
    assert isinstance(answer, SubagentResult) and answer.text == WHOLE
    assert "the limit is 4,000" in model.requests[2][-1].text


async def test_the_concise_example_is_shown_for_a_single_field(tmp_path: Path) -> None:
    box = FakeBrowserSandbox(START, answers("$279.49"))
    one = BROWSE.model_copy(update={"fields": (NAME,)})
    answer, model = await run_browse_task(
        tmp_path / "one", box, code_reply("send_msg_to_user('$279.49')"), browse=one
    )
    assert isinstance(answer, SubagentResult) and answer.text == '{"name": "$279.49"}'
    assert "# Example of a Concise Report" in model.requests[1][-1].text
    for number, browse in enumerate((BROWSE, MUG)):
        box = FakeBrowserSandbox(START, answers(WHOLE))
        _, model = await run_browse_task(
            tmp_path / str(number), box, code_reply("send_msg_to_user('1')"), browse=browse
        )
        assert "# Example of a Concise Report" not in model.requests[1][-1].text


async def nobody(action: Browse) -> SubagentResult:
    raise AssertionError(action)


@pytest.mark.parametrize(
    "fields",
    [
        [{"name": "a b"}],
        [{"name": "a"}, {"name": "a"}],
        [{"name": "a", "holds": "date"}],
        [{"name": f"f{n}"} for n in range(21)],
        "price",
    ],
)
def test_invalid_fields_are_rejected(fields: object) -> None:
    call = RawToolCall(id="1", name="browse", arguments=json.dumps({"task": "t", "fields": fields}))
    action = ToolRegistry([ActionTool(Browse, nobody)]).parse(call)
    assert action.kind == "malformed_call" and "fields" in action.model_dump()["problem"]


# Guessed URLs


async def test_a_guessed_url_is_noted_on_the_page_and_in_the_report(tmp_path: Path) -> None:
    gone = page("RootWebArea 'Not Found'", url="http://localhost:8000/price-list", title="Not Found")
    gone = gone.model_copy(update={"notes": ("the server responded with status 404 Not Found",)})
    box = FakeBrowserSandbox(BLANK, gone, answers("$1"))
    script = [code_reply("goto('http://localhost:8000/price-list')"), code_reply("send_msg_to_user('$1')")]
    answer, model = await run_browse_task(tmp_path, box, *script)
    assert isinstance(answer, SubagentResult) and answer.guessed_urls == ("http://localhost:8000/price-list",)
    notes = model.requests[2][-1].text.partition("# Notes")[2].partition("# Previous")[0]
    assert "- the server responded with status 404 Not Found\n" in notes
    assert "- you made up the address http://localhost:8000/price-list" in notes
    assert "> http://localhost:8000/price-list\n" in render_observation(answer)


async def test_a_guessed_url_that_does_not_exist_is_opened_once(tmp_path: Path) -> None:
    gone = page("RootWebArea 'Not Found'", url="http://localhost:8000/price-list", title="Not Found")
    gone = gone.model_copy(update={"notes": ("the server responded with status 404 Not Found",)})
    steps = ("goto('http://localhost:8000/price-list')", "click('3')\ngoto('localhost:8000/price-list/#top')")
    others = ("goto('http://localhost:8000/price-list?page=2')", "send_msg_to_user('$1')")
    box = FakeBrowserSandbox(BLANK, gone, START, answers("$1"))
    answer, model = await run_browse_task(tmp_path, box, *map(code_reply, (*steps, *others)))
    assert isinstance(answer, SubagentResult) and answer.text == "$1"
    assert [use.code for use in box.used] == ["", steps[0], *others]
    assert (
        "nothing was done: you made up the address localhost:8000/price-list/#top, and the server already "
        "responded to it with status 404 in this task. Do not open it again: start at the site's front page "
        "or its search" in model.requests[3][-1].text
    )


async def test_a_url_from_the_task_the_issue_or_a_page_is_not_guessed(tmp_path: Path) -> None:
    named = page(
        "RootWebArea 'Shop'\n\tStaticText 'See http://other.test/manual.'\n\t[3] link '', url='http://x.test/y'"
    )
    steps = (
        "goto('http://localhost:8000/')",
        "goto('127.0.0.1:8000')",
        "goto('http://localhost:8000/#top')",
        "goto('http://other.test/manual')",
        "goto('other.test')",
        "goto('http://x.test/y')",
        "goto('https://issue.test/7?a=1')",
        "goto('about:blank')",
    )
    box = FakeBrowserSandbox(BLANK, named, *([named] * (len(steps) - 1)), answers("1"))
    script = [*map(code_reply, steps), code_reply("send_msg_to_user('1')")]
    answer, _ = await run_browse_task(tmp_path, box, *script, prompt="As in https://issue.test/7.")
    assert isinstance(answer, SubagentResult) and answer.guessed_urls == ()
    child = FileLogStore(tmp_path).read(RunId("job-7-browse-1"))
    assert child.subagent_started is not None and child.subagent_started.known_urls == (
        "https://issue.test/7",
    )


async def test_each_guessed_url_is_noted_once(tmp_path: Path) -> None:
    steps = ("goto('http://a.test')", "goto('http://a.test/b')", "goto('http://a.test/b?c=1')", "goto('::')")
    box = FakeBrowserSandbox(BLANK, *[BLANK] * len(steps), answers("1"))
    answer, _ = await run_browse_task(
        tmp_path, box, *map(code_reply, steps), code_reply("send_msg_to_user('1')")
    )
    assert isinstance(answer, SubagentResult) and answer.guessed_urls == ("http://a.test", "http://a.test/b")
