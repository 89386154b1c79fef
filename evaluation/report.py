"""Computes the report of an evaluation from its results."""

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from statistics import fmean, median
from typing import get_args

from patchwright.evaluation.controls import ControlResult
from patchwright.evaluation.intervals import mcnemar_p_value, pass_at_k, wilson_interval
from patchwright.evaluation.localization import recall
from patchwright.evaluation.results import STAGES, AttemptResult, EvaluationPlan
from patchwright.resolver.domain import Usage, VerdictKind
from patchwright.runtime.frozen_model import FrozenModel

VERDICTS_BEST_FIRST: tuple[VerdictKind, ...] = tuple(reversed(get_args(VerdictKind)))


class Share(FrozenModel):
    """How many of a number of things have a property, with the 95 % confidence interval of the share."""

    name: str
    count: int
    total: int

    @property
    def percent(self) -> float:
        return 100 * self.count / self.total if self.total else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The interval in percent."""
        low, high = wilson_interval(self.count, self.total)
        return 100 * low, 100 * high


class VerdictRow(FrozenModel):
    """How the hidden tests judge the patches with one kind of our own verdict."""

    verdict: VerdictKind | None
    """None if an error left no verdict."""
    resolved: int
    unresolved: int

    @property
    def total(self) -> int:
        return self.resolved + self.unresolved


class ModelSummary(FrozenModel):
    """The results of one model. Except for the usage, pass@k and best of k, only first attempts count (pass@1)."""

    model: str
    resolved: Share
    missing: int
    """Instances without a result, because the budget was spent or the evaluation is not over."""
    pass_at_k: float | None
    """None if there is one attempt for each instance."""
    best_of_k: Share | None
    """The attempt with the best verdict of ours counts. None if there is one attempt for each instance."""
    repositories: tuple[Share, ...]
    failures: tuple[Share, ...]
    stages: tuple[Share, ...]
    verdicts: tuple[VerdictRow, ...]
    usage: Usage
    """The sum of all attempts."""
    attempts: int
    median_seconds: float
    median_steps: float
    harness_seconds: float
    """Mean time beside the agent's work and the tests."""
    recall_viewed: float | None
    """Mean recall@5 of the files of the reference fix among the first files that the agent viewed."""
    recall_search: float | None
    """The same for a search with the words of the issue, without a model."""

    @property
    def usd_per_resolved(self) -> Decimal | None:
        return self.usage.usd / self.resolved.count if self.resolved.count and self.usage.usd else None

    @property
    def precision(self) -> Share:
        """How often the verdict `fixed` is right."""
        row = next((row for row in self.verdicts if row.verdict == "fixed"), None)
        return Share(name="fixed", count=row.resolved if row else 0, total=row.total if row else 0)


class PairedComparison(FrozenModel):
    """Two models, or two evaluations, on the instances that both have."""

    first: str
    second: str
    both: int
    neither: int
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    p_value: float
    """Of McNemar's exact test."""

    @property
    def is_significant(self) -> bool:
        return self.p_value < 0.05


class EvaluationReport(FrozenModel):
    """What an evaluation found."""

    plan: EvaluationPlan
    usable: int
    gold_resolved: int
    empty_resolved: int
    broken: tuple[ControlResult, ...]
    """Instances that the controls found to be broken. They are left out."""
    models: tuple[ModelSummary, ...]
    comparisons: tuple[PairedComparison, ...]
    attempts: tuple[AttemptResult, ...]


def build_report(
    plan: EvaluationPlan,
    controls: Sequence[ControlResult],
    attempts: Sequence[AttemptResult],
    earlier: Sequence[AttemptResult] = (),
    earlier_name: str = "",
) -> EvaluationReport:
    """Computes the report. `earlier` are the results of another evaluation for a comparison."""
    usable = {control.instance: control for control in controls if not control.problem}
    counted = tuple(attempt for attempt in attempts if attempt.instance in usable)
    by_model = {model: [each for each in counted if each.model == model] for model in plan.models}
    comparisons = [
        compare(plan.models[0], by_model[plan.models[0]], model, by_model[model]) for model in plan.models[1:]
    ]
    if earlier:
        for model in sorted({each.model for each in earlier}):
            others = [each for each in earlier if each.model == model]
            comparisons += [
                compare(f"{model} ({earlier_name})", others, name, own) for name, own in by_model.items()
            ]
    return EvaluationReport(
        plan=plan,
        usable=len(usable),
        gold_resolved=sum(control.gold_resolved for control in usable.values()),
        empty_resolved=sum(control.empty_resolved for control in usable.values()),
        broken=tuple(control for control in controls if control.problem),
        models=tuple(summarize(model, results, len(usable)) for model, results in by_model.items()),
        comparisons=tuple(comparisons),
        attempts=counted,
    )


def summarize(model: str, attempts: Sequence[AttemptResult], usable: int) -> ModelSummary:
    """Computes the summary of one model."""
    first = [attempt for attempt in attempts if attempt.attempt == 1]
    by_instance: dict[str, list[AttemptResult]] = {}
    for attempt in attempts:
        by_instance.setdefault(attempt.instance, []).append(attempt)
    k = max((len(tries) for tries in by_instance.values()), default=1)
    best = [select_best(tries) for tries in by_instance.values()]
    rates = [
        pass_at_k(len(tries), sum(t.resolved for t in tries), min(k, len(tries)))
        for tries in by_instance.values()
    ]
    return ModelSummary(
        model=model,
        resolved=Share(name=model, count=sum(each.resolved for each in first), total=len(first)),
        missing=usable - len(first),
        pass_at_k=fmean(rates) if k > 1 else None,
        best_of_k=Share(name=f"best of {k}", count=sum(each.resolved for each in best), total=len(best))
        if k > 1
        else None,
        repositories=_count_by_repository(first),
        failures=tuple(
            Share(name=kind, count=count, total=len(first))
            for kind, count in Counter(each.failure for each in first if each.failure).most_common()
        ),
        stages=tuple(
            Share(name=stage, count=sum(stage in each.stages for each in first), total=len(first))
            for stage in STAGES
        ),
        verdicts=_count_verdicts(first),
        usage=_add_usage(attempts),
        attempts=len(attempts),
        median_seconds=median([each.usage.seconds for each in attempts] or [0.0]),
        median_steps=median([each.usage.steps for each in attempts] or [0]),
        harness_seconds=fmean([each.harness_seconds for each in attempts] or [0.0]),
        recall_viewed=_mean(recall(each.viewed_files, each.gold_files) for each in first),
        recall_search=_mean(recall(each.ranked_files, each.gold_files) for each in first),
    )


def select_best(attempts: Sequence[AttemptResult]) -> AttemptResult:
    """Returns the attempt that we would publish: the one with the best verdict of ours, and then the first one."""

    def rank(attempt: AttemptResult) -> tuple[int, int]:
        verdicts = VERDICTS_BEST_FIRST
        return (verdicts.index(attempt.verdict) if attempt.verdict else len(verdicts), attempt.attempt)

    return min(attempts, key=rank)


def compare(
    first: str, first_attempts: Sequence[AttemptResult], second: str, second_attempts: Sequence[AttemptResult]
) -> PairedComparison:
    """Compares the first attempts at the instances that both have."""
    one, other = (
        {each.instance: each.resolved for each in attempts if each.attempt == 1}
        for attempts in (first_attempts, second_attempts)
    )
    shared = sorted(one.keys() & other.keys())
    only_first = tuple(name for name in shared if one[name] and not other[name])
    only_second = tuple(name for name in shared if other[name] and not one[name])
    return PairedComparison(
        first=first,
        second=second,
        both=sum(one[name] and other[name] for name in shared),
        neither=sum(not one[name] and not other[name] for name in shared),
        only_first=only_first,
        only_second=only_second,
        p_value=mcnemar_p_value(len(only_first), len(only_second)),
    )


def _count_by_repository(attempts: Sequence[AttemptResult]) -> tuple[Share, ...]:
    totals = Counter(each.repo for each in attempts)
    resolved = Counter(each.repo for each in attempts if each.resolved)
    return tuple(
        Share(name=repo, count=resolved[repo], total=total)
        for repo, total in sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))
    )


def _count_verdicts(attempts: Sequence[AttemptResult]) -> tuple[VerdictRow, ...]:
    counts = Counter((each.verdict, each.resolved) for each in attempts)
    return tuple(
        VerdictRow(verdict=verdict, resolved=counts[verdict, True], unresolved=counts[verdict, False])
        for verdict in (*VERDICTS_BEST_FIRST, None)
        if counts[verdict, True] + counts[verdict, False]
    )


def _add_usage(attempts: Sequence[AttemptResult]) -> Usage:
    total = Usage()
    for attempt in attempts:
        total = total.add(attempt.usage, steps=attempt.usage.steps, unpriced=attempt.usage.unpriced)
    return total.model_copy(update={"seconds": sum(attempt.usage.seconds for attempt in attempts)})


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
