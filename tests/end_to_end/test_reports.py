"""Common complaints about such bots, and what is reported instead: stop reasons, costs, tests, and status."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.domain import InputRequired, Published, Reported
from patchwright.resolver.tool_actions.control_actions import Ask, Finish
from patchwright.runtime.actions import ReplaceText, RunShell
from tests.end_to_end.conftest import CODE, DONE, FIX, FIX_TURNS, Scenario
from tests.end_to_end.scripted_models import PRICES, use_ordered_model

pytestmark = pytest.mark.slow

BREAK = ReplaceText(path="calc.py", old="a * 2", new="a * 3")
BOAST = Finish(cause="add() subtracted.", change="It adds.", testing="All 214 tests pass, I ran them twice.")


@pytest.fixture
def untested_scenario(make_scenario: Callable[..., Scenario]) -> Scenario:
    """A repository without tests, for a short run."""
    return make_scenario(files={"calc.py": CODE})


@pytest.mark.parametrize(
    ("cap", "text"),
    [
        ({"max_steps": 1}, "The step limit of 1 is reached."),
        pytest.param({"max_usd": "0.001"}, "The budget of $0.001 is spent", marks=pytest.mark.slow),
        pytest.param({"timeout": 10}, "The time limit of 2 s is reached.", marks=pytest.mark.slow),
    ],
    ids=["steps", "dollars", "seconds"],
)
async def test_at_a_limit_the_work_is_published_and_the_limit_is_reported_first(
    untested_scenario: Scenario, cap: dict[str, Any], text: str
) -> None:
    # Complaint 1: work is thrown away at a turn or time limit.
    wait = (RunShell(command="sleep 3"),) if "timeout" in cap else ()
    await use_ordered_model(
        untested_scenario,
        RecordedTurn("Fix.", FIX, *wait),
        RecordedTurn("More.", RunShell(command="ls")),
        model_prices=PRICES,
        **cap,
    )
    outcome = await untested_scenario.resolve(**({"timeout": 2} if "timeout" in cap else {}))
    assert isinstance(outcome, Published) and outcome.draft
    assert untested_scenario.repo.read(outcome.branch, "calc.py") == CODE.replace("a - b", "a + b")
    (comment,) = untested_scenario.comments
    for message in (str(untested_scenario.pull.body), comment):
        assert message.startswith(f"**Stopped early:** {text}")


async def test_the_cost_of_a_run_is_reported_as_text_and_json(untested_scenario: Scenario) -> None:
    # Complaint 9: costs and tokens are hidden; output is not machine-readable.
    untested_scenario.fake_github.add_webhook("http://127.0.0.1:9/nobody", "none")
    await use_ordered_model(
        untested_scenario, RecordedTurn("Fix.", FIX), RecordedTurn("Done.", DONE), model_prices=PRICES
    )
    delivery = await untested_scenario.fake_github.add_label(
        untested_scenario.issue, "fix-me", by="maintainer"
    )
    code, out, error = await untested_scenario.command(
        "action", environment=untested_scenario.event(delivery)
    )
    assert code == 0, out + error
    spent = untested_scenario.trajectory().usage()
    tokens = spent.prompt_tokens + spent.completion_tokens
    assert spent.usd == Decimal(spent.prompt_tokens + 10 * spent.completion_tokens) / 10**6
    (comment,) = untested_scenario.comments
    assert (
        f"{spent.steps} steps of `openai/scripted` · ${spent.usd:.4f} · {tokens:,} tokens · working time "
        in str(untested_scenario.pull.body)
    )
    assert f"\n\n${spent.usd:.4f} · " in comment
    lines = (untested_scenario.data / "output").read_text().splitlines()
    assert str(spent.usd.normalize()) in lines and str(tokens) in lines


async def test_an_agent_that_says_the_tests_pass_is_not_believed(scenario: Scenario) -> None:
    # Complaint 12: it claims that the tests pass.
    await use_ordered_model(scenario, RecordedTurn("Fix.", FIX, BREAK), RecordedTurn("Done.", BOAST))
    outcome = await scenario.resolve()
    assert isinstance(outcome, Reported) and outcome.verdict.kind == "regressed"
    assert scenario.repo.pulls == ()
    (comment,) = scenario.comments
    verdict, boast = comment.index("**Regressed:** 1 test"), comment.index("All 214 tests pass")
    assert verdict < boast and "What the agent found" in comment[verdict:boast]
    assert "| passed | 1 | 0 |\n| failed | 0 | 1 |" in comment


async def test_tests_that_cannot_run_are_no_success_and_the_reason_is_reported(
    make_scenario: Callable[..., Scenario],
) -> None:
    # Complaint 12: it cannot run the tests.
    config = 'test_command = "no-such-runner --all"\n'
    scenario = make_scenario(files={"calc.py": CODE, ".github/patchwright.toml": config})
    reproduced = RecordedTurn(
        "See.", RunShell(command="python3 -c 'import calc; assert calc.add(2, 3) == 5'")
    )
    endpoint = await use_ordered_model(
        scenario, reproduced, RecordedTurn("Fix.", FIX), RecordedTurn("Done.", BOAST)
    )
    outcome = await scenario.resolve()
    assert isinstance(outcome, Published)
    assert (outcome.verdict.kind, outcome.draft) == ("untested", True)
    assert len(endpoint.requests) == 3  # it is not told to run tests that cannot run
    body = str(scenario.pull.body)
    assert body.startswith("**Untested:** nothing proves this change. The tests could not be run")
    assert "`no-such-runner` was not found in the sandbox" in body.partition("<details>")[0]
    assert "set `image` to an image that has it" in body.partition("<details>")[2]
    assert "not run after the last edit" not in body
    assert "Patchwright could not run the repository's tests." in body


LOOK = (RecordedTurn("Look.", RunShell(command="ls")), RecordedTurn("Done.", DONE))
ENDINGS: dict[str, tuple[tuple[RecordedTurn, ...], type[Published | Reported | InputRequired], str]] = {
    "published": (FIX_TURNS, Published, "I opened pull request #2. **Fixed:**"),
    "nothing done": (LOOK, Reported, "**No pull request:** "),
    "input_required": (
        (RecordedTurn("Unclear.", Ask(question="Floats too?")),),
        InputRequired,
        "I need an answer to continue:",
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_the_status_comment_is_accurate_from_start_to_end(scenario: Scenario, ending: str) -> None:
    # Complaint 19: misleading status messages.
    turns, kind, last = ENDINGS[ending]
    while_working: list[str] = []

    def look(turn: int, body: dict[str, Any]) -> None:
        while_working.extend(scenario.comments)
        assert scenario.repo.pulls == (), "nothing is announced, so nothing is there"

    await use_ordered_model(scenario, *turns, on_request=look)
    assert isinstance(await scenario.resolve(), kind)
    assert while_working and all(each.startswith("I am working on this.") for each in while_working)
    (comment,) = scenario.comments
    assert comment.startswith(last) and "I am working" not in comment
    made = [write.path.rpartition("/")[2] for write in scenario.fake_github.writes]
    if kind is Published:  # posted last, when it had been read
        assert made.index("pulls") < len(made) - 1 and scenario.fake_github.writes[-1].method == "PATCH"
        assert "pull request" not in "".join(while_working).replace("open a pull request", "")
    else:
        assert "pulls" not in made
