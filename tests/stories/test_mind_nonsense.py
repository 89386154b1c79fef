"""Whatever a model sends, the run goes on with a message that it can act on."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from demo.model import Turn, WrittenCall, context_overflow
from resolver.actions import Malformed, Think
from resolver.events import Condensed
from runtime.actions import RunShell, ViewFile
from runtime.observations import Failed, Ran, Viewed
from tests.stories.conftest import CODE, DONE, FIX, NEW_TEST, RUN_TESTS, Scene
from tests.stories.minds import SEES_IT_FAIL, answers, events, proposed, says, told

pytestmark = pytest.mark.slow

BAD = {
    '{"path": "calc.py"': "not valid JSON",
    "": "`path`",
    '["calc.py"]': "a JSON array, not an object",
    '"calc.py"': "a JSON string, not an object",
    '{"path": 7}': "`path`: Input should be a valid string",
    '{"path": "calc.py", "start": "first"}': "`start`: Input should be a valid integer",
    '{"path": "calc.py", "encoding": "utf-8"}': "`encoding`: Extra inputs",
    '{"path": "' + "x" * 1_100_000 + '"}': "characters long",
    '{"path": "\\ud800"}': "not valid JSON",
}
FLOOD = RunShell(command="seq 1 2000000")
MEND = (
    Turn("See it.", SEES_IT_FAIL),
    Turn("Mend.", FIX, NEW_TEST),
    Turn("Run.", RUN_TESTS),
    Turn("Done.", DONE),
)


def call(name: str, arguments: str) -> WrittenCall:
    return WrittenCall(name=name, arguments=arguments)


@pytest.mark.timeout(120)
async def test_a_run_outlives_every_kind_of_nonsense_and_is_told_what_would_be_right(scene: Scene) -> None:
    wrong = tuple(call("view_file", arguments) for arguments in BAD)
    await says(
        scene,
        Turn("All at once.", calls=(*wrong, call("open_file", "{}"), call("", "{}"))),
        Turn("Ten reads.", *[ViewFile(path="calc.py", start=n + 1, end=n + 1) for n in range(6)],
             *[RunShell(command=f"echo {n}") for n in range(4)]),
        Turn(""),
        Turn("Too many.", *[Think(thought=f"{n}") for n in range(40)]),
        Turn("Cut.", calls=(call("create_file", '{"path": "new.py", "content": "x = '),), finish_reason="length"),
        *MEND,
    )  # fmt: skip
    body = await proposed(scene)
    assert body.startswith("**Fixed:**")
    seen = list(answers(scene))
    problems = [result.message for _, result in seen[: len(BAD)] if isinstance(result, Failed)]
    for problem, expected in zip(problems, BAD.values(), strict=True):
        assert expected in problem and "`view_file` takes one JSON object" in problem
    unknown, nameless = seen[len(BAD)][1], seen[len(BAD) + 1][1]
    assert isinstance(unknown, Failed) and "there is no tool `open_file`" in unknown.message
    assert isinstance(nameless, Failed) and "The tools are run_shell" in nameless.message
    reads = [result for _, result in seen[len(BAD) + 2 :][:10]]
    assert [type(result) for result in reads] == [Viewed] * 6 + [Ran] * 4
    assert [result.output.strip() for result in reads if isinstance(result, Ran)] == ["0", "1", "2", "3"]
    assert told(scene, "program")[0].startswith("Your reply had no tool call, so nothing was done")
    crowd = [
        result
        for action, result in seen
        if isinstance(action, Malformed) and "may make at most 32" in action.problem
    ]
    assert len(crowd) == 1
    cut = [
        action.problem for action, _ in seen if isinstance(action, Malformed) and action.name == "create_file"
    ]
    assert len(cut) == 1 and "cut off at the model's output limit" in cut[0]
    assert len(json.dumps(scene.endpoint.requests[-1])) < 200_000, "a megabyte of nonsense is not sent back"


@pytest.mark.timeout(120)
async def test_what_is_larger_than_the_model_takes_is_cut_or_given_up(a_scene: Callable[..., Scene]) -> None:
    scene = a_scene(files={"calc.py": CODE})

    def overflow(turn: int, body: dict[str, Any]) -> None:
        if turn == 2 and not events(scene, "condensed"):
            endpoint.fail(context_overflow())

    much = Turn("Much.", *[FLOOD] * 4)
    done = (Turn("Mend.", FIX), Turn("Done.", DONE))
    endpoint = await says(scene, Turn("z" * 10_000_000), much, *done, on_request=overflow)
    await proposed(scene)
    floods = [
        result.output for action, result in answers(scene) if action == FLOOD and isinstance(result, Ran)
    ]
    assert len(floods) == 4 and all(len(output) < 40_000 for output in floods)
    (condensed,) = events(scene, "condensed")
    assert isinstance(condensed, Condensed) and condensed.cause == "overflow"
    assert condensed.after < condensed.before
    sent = [len(json.dumps(request)) for request in endpoint.requests]
    assert max(sent) < 400_000
    assert sent[3] < sent[2]
