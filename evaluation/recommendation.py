"""Recommends one of several models or settings, in words."""

from collections.abc import Sequence
from decimal import Decimal

from patchwright.evaluation.practice_models import PRACTICE_KINDS
from patchwright.evaluation.report import EvaluationReport, ModelSummary, compare
from patchwright.evaluation.results import AttemptResult
from patchwright.resolver.rendering.filters import format_usage

MIN_SHARE = 0.8  # A cheaper choice must resolve at least this share of what the best one resolves.


def recommend(report: EvaluationReport) -> str:
    """Returns for example `A resolves 11 of 20 for $3.10; B resolves 10 of 20 for $0.70. Choose B: ...`. Returns an
    empty string if there is nothing to choose from, as between `gold` and `empty`, which are no models.
    """
    models = [summary for summary in report.models if summary.model not in PRACTICE_KINDS]
    summaries = [summary for summary in models if summary.resolved.total]
    if len(summaries) < 2:
        return ""
    facts = "; ".join(map(_describe, summaries)) + "."
    best = max(summaries, key=lambda summary: (summary.resolved.percent, -summary.usage.usd))
    if not best.resolved.count:
        return f"{facts} None of them resolves an issue, so there is nothing to recommend."
    if any(summary.usage.unpriced for summary in summaries):
        return f"{facts} Choose {best.model}: it resolves the most. Not all prices are known, so cost does not count."
    rivals = [summary for summary in summaries if _is_as_good(summary, best, report.attempts)]
    choice = min(rivals, key=lambda summary: (_mean_usd(summary), -summary.resolved.percent))
    if choice is best:
        return f"{facts} Choose {best.model}: no cheaper one is as good."
    return (
        f"{facts} Choose {choice.model}: an issue costs {_share_of_cost(choice, best)} % of what it costs with "
        f"{best.model}, and {choice.resolved.total} instances do not show that it resolves fewer."
    )


def _describe(summary: ModelSummary) -> str:
    cost = format_usage(summary.usage) or "$0.00"
    return f"{summary.model} resolves {summary.resolved.count} of {summary.resolved.total} for {cost}"


def _is_as_good(summary: ModelSummary, best: ModelSummary, attempts: Sequence[AttemptResult]) -> bool:
    """Returns True if the choice resolves nearly as much as the best one, and no test shows a difference."""
    own, others = ([each for each in attempts if each.model == name] for name in (summary.model, best.model))
    is_different = compare(summary.model, own, best.model, others).is_significant
    return summary.resolved.percent >= MIN_SHARE * best.resolved.percent and not is_different


def _mean_usd(summary: ModelSummary) -> Decimal:
    return summary.usage.usd / max(1, summary.attempts)


def _share_of_cost(choice: ModelSummary, best: ModelSummary) -> int:
    return round(100 * _mean_usd(choice) / _mean_usd(best)) if _mean_usd(best) else 100
