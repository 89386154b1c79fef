"""`patchwright tune`: combinations of models and settings, and the recommendation."""

import json
from decimal import Decimal

import pytest

from patchwright.bot.cli.main import build_parser
from patchwright.evaluation.recommendation import recommend
from patchwright.evaluation.report import build_report
from patchwright.evaluation.results import AttemptResult
from patchwright.evaluation.variants import build_variants
from patchwright.resolver.errors import UsageError
from tests.evaluation.evaluation_scenario import ADD, EvaluationScenario
from tests.evaluation.sample_results import PLAN, RIGHT, WRONG, Outcome, make_attempt, make_controls


def make_results(model: str, resolved: int, usd: str) -> list[AttemptResult]:
    """Returns 20 attempts with this cost each."""
    right: Outcome = ("fixed", RIGHT, None)
    wrong: Outcome = ("unproven", WRONG, "misread_issue")
    attempts = [make_attempt(model, number, right if number < resolved else wrong) for number in range(20)]
    return [
        each.model_copy(update={"usage": each.usage.model_copy(update={"usd": Decimal(usd)})})
        for each in attempts
    ]


@pytest.mark.parametrize(
    ("small", "usd", "expected"),
    [
        (
            10,
            "0.035",
            "large resolves 11 of 20 for $3.10; small resolves 10 of 20 for $0.7000. Choose small: an issue costs 23 % "
            "of what it costs with large, and 20 instances do not show that it resolves fewer.",
        ),
        (
            2,
            "0.035",
            "large resolves 11 of 20 for $3.10; small resolves 2 of 20 for $0.7000. "
            "Choose large: no cheaper one is as good.",
        ),
        (
            10,
            "1",
            "large resolves 11 of 20 for $3.10; small resolves 10 of 20 for $20.00. "
            "Choose large: no cheaper one is as good.",
        ),
    ],
)
def test_a_cheaper_model_is_recommended_if_it_is_as_good(small: int, usd: str, expected: str) -> None:
    attempts = [*make_results("large", 11, "0.155"), *make_results("small", small, usd)]
    assert recommend(build_report(PLAN, make_controls(), attempts)) == expected


def test_nothing_is_recommended_if_nothing_is_resolved() -> None:
    attempts = [*make_results("large", 0, "1"), *make_results("small", 0, "1")]
    assert "nothing to recommend" in recommend(build_report(PLAN, make_controls(), attempts))


def test_nothing_is_recommended_between_gold_and_empty() -> None:
    attempts = [*make_results("gold", 20, "0"), *make_results("empty", 0, "0")]
    plan = PLAN.model_copy(update={"models": ("gold", "empty")})
    assert recommend(build_report(plan, make_controls(), attempts)) == ""


def test_every_combination_is_tried() -> None:
    variants = build_variants(["a", "b"], ["max_steps=5,9", "max_repairs=0"])
    assert [variant.name for variant in variants] == [
        "a max_steps=5 max_repairs=0", "a max_steps=9 max_repairs=0",
        "b max_steps=5 max_repairs=0", "b max_steps=9 max_repairs=0",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["no_such_setting=1", "max_steps", "max_steps=", "model=a,b"])
def test_a_setting_that_cannot_be_varied_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="--vary"):
        build_variants(["a"], [text])


@pytest.mark.slow
async def test_settings_are_compared(
    evaluation: EvaluationScenario, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation.write_rows(evaluation.make_row(ADD))
    arguments = ["tune", "issues.jsonl", "--out", "results", "--repositories", "clones", "--sandbox", "local"]
    options = build_parser().parse_args([*arguments, "--model", "empty", "--vary", "max_steps=1,2", "--json"])
    assert await options.handler(options) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [model["model"] for model in printed["models"]] == ["empty max_steps=1", "empty max_steps=2"]
    assert printed["models"][0]["mean_steps"] == 1
    assert "nothing to recommend" in printed["recommendation"]
