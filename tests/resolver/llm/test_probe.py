"""Whether a model can drive the agent, found out over HTTP with one tiny call."""

import json

import pytest

from demo.model import Endpoint, Fault, Turn, WrittenCall, server_error
from resolver.llm.probe import NUMBER, Fitness, probe
from tests.resolver.llm.test_reasoning import model


def calling(name: str, **arguments: object) -> Turn:
    return Turn("", calls=(WrittenCall(name=name, arguments=arguments),))


IN_TEXT = Turn(f'<call name="report_number">\n<number>\n{NUMBER}\n</number>\n</call>')
NO_TOOLS = Fault(
    status=400, body=json.dumps({"error": {"message": "this model does not support tools", "code": "x"}})
)


async def tried(*turns: Turn, faults: tuple[Fault, ...] = (), sees: bool | None = None) -> Fitness:
    async with Endpoint(turns) as endpoint:
        endpoint.fail(*faults)
        return await probe(model(endpoint, "openai/recorded", sees=sees))


async def test_a_model_that_calls_functions_is_found_fit_with_one_request() -> None:
    fit = await tried(calling("report_number", number=NUMBER), sees=True)
    assert (fit.tools, fit.why, fit.sees) == ("native", "it called the tool as it was asked", True)
    assert fit.usage is not None and 0 < fit.usage.prompt_tokens < 300


@pytest.mark.parametrize("refusal", [(), (NO_TOOLS,)], ids=["says it in text", "refuses tools"])
async def test_a_model_that_only_writes_is_fit_with_tools_as_text(refusal: tuple[Fault, ...]) -> None:
    assert (await tried(IN_TEXT, faults=refusal)).tools == "text"


@pytest.mark.parametrize(
    ("turn", "why"),
    [
        (Turn("417."), "it answered without calling the tool: 417."),
        (Turn(""), "it answered without calling the tool: (nothing)"),
        (calling("report_number", number=7), 'it called report_number with {"number": 7} instead'),
    ],
)
async def test_a_model_that_does_neither_is_not_fit_and_what_it_did_is_said(turn: Turn, why: str) -> None:
    fit = await tried(turn)
    assert (fit.tools, fit.why) == ("none", why)


async def test_a_model_that_is_down_or_refuses_the_key_is_asked_once() -> None:
    async with Endpoint([Turn("-")], key="other") as endpoint:
        fit = await probe(model(endpoint, "openai/recorded"))
    assert (fit.tools, fit.usage, endpoint.requests) == ("none", None, [])
    assert "refuses the key (401)" in fit.why
    assert "(500)" in (await tried(Turn("-"), faults=(server_error(),))).why
