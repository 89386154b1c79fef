"""Answers of the browsing agent in a form that was asked for, and addresses that it made up."""

import json
from pathlib import Path

import pytest

from resolver.actions import AnswerField, Browse, Reported
from resolver.browsing.answers import OffForm, formed
from resolver.domain import RunId
from resolver.llm.model import FromTool, ToolCall
from resolver.log import FileLogs
from resolver.render import result
from resolver.tools.tool import ActionTool, Tools
from runtime.observations import Page
from tests.resolver.pages import BLANK, BROWSE, Paper, browsed, does, page

START = page("RootWebArea 'Shop', focused\n  StaticText 'The red mug: $279.49, in S and M.'")
PRICE = AnswerField(name="price", holds="number", description="in dollars")
SIZES = AnswerField(name="sizes", holds="list")
SOLD = AnswerField(name="sold_out", holds="boolean")
NAME = AnswerField(name="name")
MUG = Browse(task="What of the red mug on http://localhost:8000?", fields=(NAME, PRICE, SIZES, SOLD))
WHOLE = '{"name": "Red mug", "price": 279.49, "sizes": ["S", "M"], "sold_out": null}'


def answers(text: str) -> Page:
    return START.model_copy(update={"answer": text})


# The form


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        f"```json\n{WHOLE}\n```",
        '{"sold_out": null, "sizes": ["S", "M"],\n "price": 279.49, "name": "Red mug"}',
    ],
)
def test_an_answer_with_all_fields_is_read_however_it_is_written(text: str) -> None:
    assert formed(text, MUG.fields) == WHOLE


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("The mug costs $279.49.", "it is no JSON"),
        (WHOLE + WHOLE, "it is no JSON"),
        ("[1, 2]", "no object"),
        ('{"name": "Red mug", "price": 279.49, "sizes": []}', "`sold_out` is missing"),
        (WHOLE.replace("279.49", '"$279.49"'), "`price` must be a number, or null"),
        (WHOLE.replace("279.49", "true"), "`price` must be a number, or null"),
        (WHOLE.replace("279.49", "NaN"), "it is no JSON"),
        (WHOLE.replace('["S", "M"]', '"S, M"'), "`sizes` must be a list of texts, or null"),
        (WHOLE.replace("null", '"no"'), "`sold_out` must be true or false, or null"),
        (WHOLE.replace('"Red mug"', '{"a": 1}'), "`name` must be a text, or null"),
        (WHOLE.replace("}", ', "url": "x"}'), "`url` was not asked for"),
        ("[" * 100_000, "it is no JSON"),
        ("", "it is no JSON"),
    ],
)
def test_what_is_off_the_form_is_named(text: str, problem: str) -> None:
    with pytest.raises(OffForm) as off:
        formed(text, MUG.fields)
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
def test_one_field_alone_is_answered_by_its_value(field: AnswerField, text: str, value: object) -> None:
    assert json.loads(formed(text, (field,))) == {field.name: value}


@pytest.mark.parametrize("text", ["$279.49", "about 280", "", '{"cost": 1}', "12,34"])
def test_a_number_that_is_none_is_off_the_form(text: str) -> None:
    with pytest.raises(OffForm, match="`price` must be a number, or null"):
        formed(text, (PRICE,))


# What the agents are told of it


async def test_the_asked_fields_come_back_as_one_object(tmp_path: Path) -> None:
    box = Paper(START, answers(f"```\n{WHOLE}\n```"))
    answer, model = await browsed(tmp_path, box, does("send_msg_to_user('...')"), browse=MUG)
    assert isinstance(answer, Reported)
    assert (answer.status, answer.text, answer.off_form) == ("answered", WHOLE, "")
    prompt = model.asked[1][-1].text
    assert "- `price`, a number: in dollars\n- `sizes`, a list of texts\n" in prompt
    assert "null where the pages do not say, an empty list where they say that there is none, and" in prompt
    assert """r'''{"name": "...", "price": 0, "sizes": ["..."], "sold_out": true}'''""" in prompt
    told = model.asked[2][-1]
    assert isinstance(told, FromTool) and f"> {WHOLE}\n" in told.text


async def test_a_report_off_the_form_is_sent_back_once_with_what_is_wrong(tmp_path: Path) -> None:
    box = Paper(START, answers("It costs $279.49."), answers(WHOLE))
    script = [does("send_msg_to_user('It costs $279.49.')"), does("send_msg_to_user('...')", "As an object.")]
    answer, model = await browsed(tmp_path, box, *script, browse=MUG)
    assert isinstance(answer, Reported) and (answer.text, answer.spent.steps) == (WHOLE, 2)
    assert "Your report did not arrive" not in model.asked[1][-1].text
    assert "Your report did not arrive" in model.asked[2][-1].text
    assert "it is no JSON" in model.asked[2][-1].text


async def test_a_report_that_is_off_twice_arrives_as_it_is_and_says_so(tmp_path: Path) -> None:
    box = Paper(START, answers("It is dear."), answers("It costs $279.49."))
    script = [does("send_msg_to_user('1')"), does("send_msg_to_user('2')")]
    answer, _ = await browsed(tmp_path, box, *script, browse=MUG)
    assert isinstance(answer, Reported) and answer.status == "answered"
    assert answer.text == "It costs $279.49." and "no JSON" in answer.off_form
    assert "not in the form that you asked for (it is no JSON" in result(answer).splitlines()[0]


async def test_a_report_off_the_form_is_better_than_none_when_steps_run_out(tmp_path: Path) -> None:
    box = Paper(START, answers("It costs $279.49."), START)
    script = [does("send_msg_to_user('1')"), does("noop()")]
    answer, _ = await browsed(tmp_path, box, *script, browse=MUG, steps=2)
    assert isinstance(answer, Reported) and (answer.status, answer.text) == ("answered", "It costs $279.49.")
    assert answer.off_form


async def test_a_report_too_long_to_arrive_is_off_the_form(tmp_path: Path) -> None:
    long = WHOLE.replace("Red mug", "x" * 5_000)
    box = Paper(START, answers(long), answers(WHOLE))
    script = [does("send_msg_to_user('1')"), does("send_msg_to_user('2')")]
    answer, model = await browsed(tmp_path, box, *script, browse=MUG)
    assert isinstance(answer, Reported) and answer.text == WHOLE
    assert "4,000 of them would arrive" in model.asked[2][-1].text


async def test_the_concise_example_is_shown_where_one_value_is_asked_for(tmp_path: Path) -> None:
    box = Paper(START, answers("$279.49"))
    one = BROWSE.model_copy(update={"fields": (NAME,)})
    answer, model = await browsed(tmp_path / "one", box, does("send_msg_to_user('$279.49')"), browse=one)
    assert isinstance(answer, Reported) and answer.text == '{"name": "$279.49"}'
    assert "# Example of a Concise Report" in model.asked[1][-1].text
    for number, browse in enumerate((BROWSE, MUG)):
        box = Paper(START, answers(WHOLE))
        _, model = await browsed(tmp_path / str(number), box, does("send_msg_to_user('1')"), browse=browse)
        assert "# Example of a Concise Report" not in model.asked[1][-1].text


async def nobody(action: Browse) -> Reported:
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
def test_fields_that_are_none_are_told_so(fields: object) -> None:
    call = ToolCall(id="1", name="browse", arguments=json.dumps({"task": "t", "fields": fields}))
    action = Tools([ActionTool(Browse, nobody)]).parse(call)
    assert action.kind == "malformed" and "fields" in action.model_dump()["problem"]


# Addresses that nobody named


async def test_an_address_that_nobody_named_is_noted_on_the_page_and_in_the_report(tmp_path: Path) -> None:
    gone = page("RootWebArea 'Not Found'", url="http://localhost:8000/price-list", title="Not Found")
    gone = gone.model_copy(update={"notes": ("the server answered with the status 404 Not Found",)})
    box = Paper(BLANK, gone, answers("$1"))
    script = [does("goto('http://localhost:8000/price-list')"), does("send_msg_to_user('$1')")]
    answer, model = await browsed(tmp_path, box, *script)
    assert isinstance(answer, Reported) and answer.guessed == ("http://localhost:8000/price-list",)
    notes = model.asked[2][-1].text.partition("# Notes")[2].partition("# Previous")[0]
    assert "- the server answered with the status 404 Not Found\n" in notes
    assert "- nobody named the address http://localhost:8000/price-list" in notes
    assert "> http://localhost:8000/price-list\n" in result(answer)


async def test_what_the_task_the_issue_or_a_page_names_is_no_guess(tmp_path: Path) -> None:
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
    box = Paper(BLANK, named, *([named] * (len(steps) - 1)), answers("1"))
    script = [*map(does, steps), does("send_msg_to_user('1')")]
    answer, _ = await browsed(tmp_path, box, *script, told="As in https://issue.test/7.")
    assert isinstance(answer, Reported) and answer.guessed == ()
    child = FileLogs(tmp_path).read(RunId("job-7-browse-1"))
    assert child.assigned is not None and child.assigned.known == ("https://issue.test/7",)


async def test_a_guess_is_told_once_and_every_other_one_too(tmp_path: Path) -> None:
    steps = ("goto('http://a.test')", "goto('http://a.test/b')", "goto('http://a.test/b?c=1')", "goto('::')")
    box = Paper(BLANK, *[BLANK] * len(steps), answers("1"))
    answer, _ = await browsed(tmp_path, box, *map(does, steps), does("send_msg_to_user('1')"))
    assert isinstance(answer, Reported) and answer.guessed == ("http://a.test", "http://a.test/b")
