"""The model probe over HTTP."""

import json

import pytest

from patchwright.demo.recorded_model import (
    ModelFault,
    RecordedCall,
    RecordedModel,
    RecordedTurn,
    server_error,
)
from patchwright.resolver.llm.probe import PROBE_NUMBER, ProbeResult, probe_model
from tests.resolver.llm.test_reasoning import model


def turn_with_call(name: str, **arguments: object) -> RecordedTurn:
    return RecordedTurn("", calls=(RecordedCall(name=name, arguments=arguments),))


FIT = turn_with_call("report_number", number=PROBE_NUMBER)
IN_TEXT = RecordedTurn(f'<call name="report_number">\n<number>\n{PROBE_NUMBER}\n</number>\n</call>')
NO_TOOLS = ModelFault(
    status=400, body=json.dumps({"error": {"message": "this model does not support tools", "code": "x"}})
)


async def probe(
    *turns: RecordedTurn, faults: tuple[ModelFault, ...] = (), sees: bool | None = None
) -> ProbeResult:
    async with RecordedModel(turns, answers_probes=False) as endpoint:
        endpoint.add_faults(*faults)
        return await probe_model(model(endpoint, "openai/recorded", supports_vision=sees))


async def test_a_model_with_function_calling_passes_with_one_request() -> None:
    fit = await probe(turn_with_call("report_number", number=PROBE_NUMBER), sees=True)
    assert (fit.tool_calling, fit.reason, fit.supports_vision) == (
        "native",
        "the model called the tool as instructed",
        True,
    )
    assert fit.usage is not None and 8_000 < fit.usage.prompt_tokens < 9_000


async def test_a_model_whose_context_window_is_known_gets_a_short_probe() -> None:
    async with RecordedModel([FIT], answers_probes=False) as endpoint:
        fit = await probe_model(model(endpoint, "openai/gpt-4o"))
    assert fit.usage is not None and 0 < fit.usage.prompt_tokens < 300


@pytest.mark.parametrize("refusal", [(), (NO_TOOLS,)], ids=["says it in text", "refuses tools"])
async def test_a_model_without_function_calling_passes_with_text_tools(
    refusal: tuple[ModelFault, ...],
) -> None:
    assert (await probe(IN_TEXT, faults=refusal)).tool_calling == "text"


@pytest.mark.parametrize(
    ("turn", "why"),
    [
        (RecordedTurn("417."), "the model answered without calling the tool: 417."),
        (RecordedTurn(""), "the model answered without calling the tool: (nothing)"),
        (
            turn_with_call("report_number", number=7),
            'the model called report_number with {"number": 7} instead',
        ),
    ],
)
async def test_a_model_that_does_neither_fails_with_the_reason(turn: RecordedTurn, why: str) -> None:
    fit = await probe(turn)
    advice = " (neither native nor text tool calls work: choose another model)"
    assert (fit.tool_calling, fit.reason) == ("none", why + advice)


async def test_a_model_that_fails_in_both_ways_is_reported_with_both_reasons() -> None:
    fit = await probe(RecordedTurn("417."), faults=(NO_TOOLS,))
    native, _, rest = fit.reason.partition("; tool calls as text: ")
    assert native.startswith("native tool calls: ") and "tool" in native.removeprefix("native tool calls: ")
    assert rest == (
        "the model answered without calling the tool: 417. "
        "(neither native nor text tool calls work: choose another model)"
    )


async def test_an_unavailable_model_is_probed_once() -> None:
    async with RecordedModel([RecordedTurn("-")], key="other", answers_probes=False) as endpoint:
        fit = await probe_model(model(endpoint, "openai/recorded"))
    assert (fit.tool_calling, fit.usage, endpoint.requests) == ("none", None, [])
    assert "rejects the API key (401)" in fit.reason
    assert "(500)" in (await probe(RecordedTurn("-"), faults=(server_error(),))).reason
