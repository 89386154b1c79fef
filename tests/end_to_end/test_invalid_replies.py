"""After any invalid reply of the model, the run continues with a helpful message."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from patchwright.demo.recorded_model import RecordedCall, RecordedTurn, context_overflow
from patchwright.resolver.run_events import Condensation
from patchwright.resolver.tool_actions.control_actions import Think
from patchwright.resolver.tool_actions.unchecked_actions import MalformedCall
from patchwright.runtime.actions import RunShell, ViewFile
from patchwright.runtime.observations import ActionFailure, ShellResult, TextResult
from tests.end_to_end.conftest import CODE, DONE, FIX, NEW_TEST, RUN_TESTS, Scenario
from tests.end_to_end.scripted_models import (
    SHOW_FAILURE,
    call_results,
    events_of_kind,
    messages_from,
    resolve_to_pull_request,
    use_ordered_model,
)

pytestmark = pytest.mark.slow

BAD = {
    '{"path": "calc.py"': "not valid JSON",
    "": "`path`",
    '["calc.py"]': "a JSON array, not an object",
    '"calc.py"': "a JSON string, not an object",
    '{"path": 7}': "`path`: must be a valid string",
    '{"path": "calc.py", "start": "first"}': "`start`: must be a valid integer",
    '{"path": "calc.py", "encoding": "utf-8"}': "`encoding` is not a field.",
    '{"path": "' + "x" * 1_100_000 + '"}': "characters long",
    '{"path": "\\ud800"}': "not valid JSON",
}
FLOOD = RunShell(command="seq 1 2000000")
FIX_TURNS = (
    RecordedTurn("See it.", SHOW_FAILURE),
    RecordedTurn("Fix.", FIX, NEW_TEST),
    RecordedTurn("Run.", RUN_TESTS),
    RecordedTurn("Done.", DONE),
)


def call(name: str, arguments: str) -> RecordedCall:
    return RecordedCall(name=name, arguments=arguments)


@pytest.mark.timeout(120)
async def test_a_run_survives_invalid_replies_and_explains_each_one(
    scenario: Scenario,
) -> None:
    wrong = tuple(call("view_file", arguments) for arguments in BAD)
    await use_ordered_model(
        scenario,
        RecordedTurn("All at once.", calls=(*wrong, call("open_file", "{}"), call("", "{}"))),
        RecordedTurn("Ten reads.", *[ViewFile(path="calc.py", start=n + 1, end=n + 1) for n in range(6)],
             *[RunShell(command=f"echo {n}") for n in range(4)]),
        RecordedTurn(""),
        RecordedTurn("Too many.", *[Think(thought=f"{n}") for n in range(40)]),
        RecordedTurn("Cut.", calls=(call("create_file", '{"path": "new.py", "content": "x = '),),
                     finish_reason="length"),
        *FIX_TURNS,
    )  # fmt: skip
    body = await resolve_to_pull_request(scenario)
    assert body.startswith("**Fixed:**")
    results = list(call_results(scenario))
    problems = [result.message for _, result in results[: len(BAD)] if isinstance(result, ActionFailure)]
    for problem, expected in zip(problems, BAD.values(), strict=True):
        assert expected in problem and "`view_file` takes one JSON object" in problem
    unknown, nameless = results[len(BAD)][1], results[len(BAD) + 1][1]
    assert isinstance(unknown, ActionFailure) and "there is no tool `open_file`" in unknown.message
    assert isinstance(nameless, ActionFailure) and "The tools are run_shell" in nameless.message
    reads = [result for _, result in results[len(BAD) + 2 :][:10]]
    assert [type(result) for result in reads] == [TextResult] * 6 + [ShellResult] * 4
    assert [result.output.strip() for result in reads if isinstance(result, ShellResult)] == [
        "0",
        "1",
        "2",
        "3",
    ]
    assert messages_from(scenario, "program")[0].startswith(
        "Your reply contained no tool call, so nothing was done"
    )
    crowd = [
        result
        for action, result in results
        if isinstance(action, MalformedCall) and "may make at most 32" in action.problem
    ]
    assert len(crowd) == 1
    cut = [
        action.problem
        for action, _ in results
        if isinstance(action, MalformedCall) and action.name == "create_file"
    ]
    assert len(cut) == 1 and "cut off at the model's output limit" in cut[0]
    assert len(json.dumps(scenario.endpoint.requests[-1])) < 200_000, (
        "a megabyte of nonsense is not sent back"
    )


@pytest.mark.timeout(120)
async def test_an_oversized_prompt_is_shortened_or_ends_the_run(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files={"calc.py": CODE})

    def overflow(turn: int, body: dict[str, Any]) -> None:
        if turn == 2 and not events_of_kind(scenario, "condensation"):
            endpoint.add_faults(context_overflow())

    much = RecordedTurn("Much.", *[FLOOD] * 4)
    done = (RecordedTurn("Fix.", FIX), RecordedTurn("Done.", DONE))
    endpoint = await use_ordered_model(
        scenario, RecordedTurn("z" * 10_000_000), much, *done, on_request=overflow
    )
    await resolve_to_pull_request(scenario)
    floods = [
        result.output
        for action, result in call_results(scenario)
        if action == FLOOD and isinstance(result, ShellResult)
    ]
    assert len(floods) == 4 and all(len(output) < 40_000 for output in floods)
    (condensed,) = events_of_kind(scenario, "condensation")
    assert isinstance(condensed, Condensation) and condensed.cause == "overflow"
    assert condensed.tokens_after < condensed.tokens_before
    sent = [len(json.dumps(request)) for request in endpoint.requests]
    assert max(sent) < 400_000
    assert sent[3] < sent[2]
