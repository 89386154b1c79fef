"""Results of an invented evaluation, with every kind of verdict and failure."""

from datetime import UTC, datetime
from decimal import Decimal

from patchwright.evaluation.attempt import list_stages
from patchwright.evaluation.controls import ControlResult
from patchwright.evaluation.hidden_tests import Score
from patchwright.evaluation.results import AttemptResult, EvaluationPlan
from patchwright.resolver.activity.failure import FailureKind
from patchwright.resolver.domain import Usage, Verdict, VerdictKind

PLAN = EvaluationPlan(
    source="swe-bench-lite.jsonl",
    models=("large", "small"),
    sandbox="docker",
    max_usd=Decimal("2.00"),
    max_steps=100,
    timeout=3600,
    version="0.1.0",
    started_at=datetime(2026, 11, 27, tzinfo=UTC),
)

RIGHT = Score(fail_to_pass=("tests/test_a.py::test_fix",))
WRONG = Score(still_failing=("tests/test_a.py::test_fix",))
BROKEN = Score(fail_to_pass=("tests/test_a.py::test_fix",), regressions=("tests/test_a.py::test_old",))

Outcome = tuple[VerdictKind | None, Score, FailureKind | None]
OUTCOMES: dict[str, tuple[Outcome, ...]] = {
    "large": (
        *(("fixed", RIGHT, None),) * 9,
        *(("conditional", RIGHT, None),) * 2,
        ("unproven", RIGHT, None),
        ("fixed", WRONG, "misread_issue"),
        ("fixed", BROKEN, "broke_tests"),
        *(("unproven", WRONG, "wrong_place"),) * 3,
        ("regressed", WRONG, "broke_tests"),
        ("empty", WRONG, "gave_up"),
        (None, WRONG, "model"),
    ),
    "small": (
        *(("fixed", RIGHT, None),) * 6,
        ("fixed", WRONG, "misread_issue"),
        ("unproven", RIGHT, None),
        *(("unproven", WRONG, "misread_issue"),) * 6,
        *(("unproven", WRONG, "wrong_place"),) * 3,
        ("regressed", WRONG, "broke_tests"),
        *(("empty", WRONG, "gave_up"),) * 2,
    ),
}
REPOSITORIES = ("django/django", "django/django", "pallets/flask", "psf/requests")
BROKEN_CONTROL = ControlResult(
    instance="matplotlib__matplotlib-9",
    problem="The hidden tests cannot run with the reference fix. No compiler.",
)


def make_attempts(model: str) -> tuple[AttemptResult, ...]:
    """Returns one attempt for each outcome of the model."""
    return tuple(make_attempt(model, number, outcome) for number, outcome in enumerate(OUTCOMES[model]))


def make_attempt(model: str, number: int, outcome: Outcome, attempt: int = 1) -> AttemptResult:
    verdict, score, failure = outcome
    repo = REPOSITORIES[number % len(REPOSITORIES)]
    instance = f"{repo.replace('/', '__')}-{1000 + number}"
    is_localized = failure not in ("wrong_place", "gave_up", "model")
    price = Decimal("0.081") if model == "large" else Decimal("0.007")
    return AttemptResult(
        instance=instance,
        repo=repo,
        model=model,
        attempt=attempt,
        run=f"{instance}-{model}-{attempt}",
        verdict=verdict,
        score=score,
        failure=failure,
        stages=list_stages(Verdict(kind=verdict or "empty"), score, is_localized=is_localized),
        usage=Usage(
            usd=price * (number + 3), prompt_tokens=90_000 + number, completion_tokens=4_000,
            steps=12 + number, seconds=200.0 + 9 * number,
        ),
        error="The provider has rejected the key." if failure == "model" else "",
        patch="diff --git a/a.py b/a.py\n" if verdict not in (None, "empty") else "",
        gold_files=("src/a.py",),
        viewed_files=("src/a.py",) if is_localized else ("src/b.py",),
        ranked_files=("src/a.py", "src/c.py") if number % 3 else ("src/c.py",),
    )  # fmt: skip


def make_controls(count: int = 20) -> tuple[ControlResult, ...]:
    """Returns the controls of the usable instances, and of a broken one."""
    instances = [make_attempt("large", number, ("fixed", RIGHT, None)).instance for number in range(count)]
    return (*(ControlResult(instance=name, gold_resolved=True) for name in instances), BROKEN_CONTROL)
