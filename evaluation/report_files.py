"""Writes the report as JSON, Markdown, and one HTML page, and the predictions in the format of SWE-bench."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from patchwright.bot.commands.inspect_commands import VIEW_FILE, write_view
from patchwright.bot.terminal.run_ids import sanitize_name
from patchwright.evaluation.recommendation import recommend
from patchwright.evaluation.report import EvaluationReport, PairedComparison, Share, select_best
from patchwright.evaluation.results import AttemptResult, ResultDirectory
from patchwright.evaluation.swe_bench import format_prediction
from patchwright.resolver.activity.failure import FAILURE_LABELS
from patchwright.resolver.cost import cost_fields
from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import LogError
from patchwright.resolver.rendering.filters import format_duration, format_usage
from patchwright.resolver.rendering.jinja_templates import get_environment
from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets

STAGE_LABELS: Mapping[str, str] = {
    "reproduced": "a test shows the bug",
    "localized": "a file of the reference fix changed",
    "patched": "code changed",
    "own_tests_pass": "own tests show the fix",
    "pull_request": "a pull request would open",
    "hidden_tests_pass": "hidden tests pass",
}


def write_reports(
    report: EvaluationReport, directory: ResultDirectory, secrets: Secrets, *, for_models: Sequence[str]
) -> None:
    """Writes all files. The run pages are written only for attempts of these models."""
    for attempt in report.attempts:
        if attempt.model in for_models:
            _write_run_page(attempt, directory, secrets)
    values = _template_values(report, directory)
    mask = secrets.mask
    directory.write(
        "report.json", mask(report.model_dump_json(indent=1, exclude={"attempts": {"__all__": {"patch"}}}))
    )
    directory.write("report.md", mask(render("evaluation/report.md.j2", **values)))
    directory.write("report.html", mask(render("evaluation/report.html.j2", **values)))
    for summary in report.models:
        name = f"predictions-{sanitize_name(summary.model)}.jsonl"
        directory.write(name, "".join(_format_predictions(report, summary.model)))


def _write_run_page(attempt: AttemptResult, directory: ResultDirectory, secrets: Secrets) -> None:
    """Writes the page of a run, unless it is there already."""
    file = directory.runs / attempt.run / VIEW_FILE
    if file.exists():
        return
    logs = FileLogStore(directory.runs)
    try:
        write_view(RunId(attempt.run), logs.read(RunId(attempt.run)), logs, file, secrets)
    except LogError:
        return  # The run ended before it began.


def _format_predictions(report: EvaluationReport, model: str) -> list[str]:
    """Returns a prediction for each instance: of several attempts, the one with the best verdict of ours."""
    by_instance: dict[str, list[AttemptResult]] = {}
    for attempt in report.attempts:
        if attempt.model == model:
            by_instance.setdefault(attempt.instance, []).append(attempt)
    return [
        format_prediction(instance, model, select_best(attempts).patch)
        for instance, attempts in sorted(by_instance.items())
    ]


def _template_values(report: EvaluationReport, directory: ResultDirectory) -> dict[str, Any]:
    return {
        "report": report,
        "recommendation": recommend(report),
        "plan": report.plan,
        "failure_labels": FAILURE_LABELS,
        "stage_labels": STAGE_LABELS,
        "style": get_environment().get_template("viewer/style.css.j2").render(),
        "pages": {
            attempt.run: f"runs/{attempt.run}/{VIEW_FILE}"
            for attempt in report.attempts
            if (directory.runs / attempt.run / VIEW_FILE).exists()
        },
        "describe_share": describe_share,
        "describe_comparison": describe_comparison,
        "sort_attempts": sort_attempts,
    }


def sort_attempts(attempts: Sequence[AttemptResult]) -> list[AttemptResult]:
    """Puts the unresolved attempts first, because these are the ones to look at."""
    return sorted(
        attempts, key=lambda each: (each.resolved, each.repo, each.instance, each.model, each.attempt)
    )


def describe_share(share: Share) -> str:
    """Returns for example `12 of 20 (60 %, 95 % interval 39 to 78 %)`."""
    low, high = share.interval
    return f"{share.count} of {share.total} ({share.percent:.0f} %, 95 % interval {low:.0f} to {high:.0f} %)"


def describe_comparison(comparison: PairedComparison) -> str:
    """Returns what a paired comparison shows, in one sentence."""
    first, second = len(comparison.only_first), len(comparison.only_second)
    shown = f"only {comparison.first} resolves {first}, only {comparison.second} resolves {second}"
    if comparison.is_significant:
        better = comparison.first if first > second else comparison.second
        return f"{better} is better: {shown} (p = {comparison.p_value:.3g})."
    return f"No difference is shown: {shown} (p = {comparison.p_value:.2g}). Use more instances to tell them apart."


def summarize_in_text(report: EvaluationReport, directory: Path) -> str:
    """Returns the summary for the terminal."""
    lines = []
    for summary in report.models:
        cost = format_usage(summary.usage)
        lines.append(f"{summary.model}: resolved {describe_share(summary.resolved)}")
        lines.append(
            f"  {cost or 'no cost'}, {summary.usage.tokens:,} tokens, "
            f"{format_duration(summary.median_seconds)} and {summary.median_steps:g} steps at the median"
        )
        if summary.precision.total:
            lines.append(
                f"  the verdict `fixed` was right in {summary.precision.count} of {summary.precision.total}"
            )
        if summary.best_of_k is not None and summary.pass_at_k is not None:
            lines.append(
                f"  pass@{report.plan.attempts} {100 * summary.pass_at_k:.0f} %, "
                f"best of {report.plan.attempts} by our verdict {summary.best_of_k.percent:.0f} %"
            )
        if summary.missing:
            lines.append(f"  {summary.missing} without a result")
    lines += [describe_comparison(each) for each in report.comparisons]
    lines += filter(None, [recommend(report)])
    lines.append(
        f"controls: the reference fix resolves {report.gold_resolved} of {report.usable}, "
        f"no change resolves {report.empty_resolved}; {len(report.broken)} left out as broken"
    )
    lines.append(f"report: {directory / 'report.html'}")
    return "\n".join(lines)


def summarize_as_json(report: EvaluationReport, directory: Path) -> dict[str, Any]:
    """Returns the JSON object that the command prints: the resolve rate, the mean cost and steps, and the failures."""
    return {
        "outcome": "completed",
        "instances": report.usable,
        "broken": len(report.broken),
        "attempts_per_instance": report.plan.attempts,
        "hints": report.plan.hints,
        "temperature": report.plan.temperature,
        "models": [
            {
                "model": summary.model,
                "resolved": summary.resolved.count,
                "total": summary.resolved.total,
                "resolve_rate": round(summary.resolved.percent / 100, 4),
                "interval": [round(bound / 100, 4) for bound in summary.resolved.interval],
                "pass_at_k": summary.pass_at_k,
                "failures": {share.name: share.count for share in summary.failures},
                "fixed_verdicts_right": summary.precision.count,
                "fixed_verdicts": summary.precision.total,
                "cost_usd": None,
                **cost_fields("cost_usd", summary.usage.cost),
                "mean_cost_usd": round(float(summary.usage.usd) / max(1, summary.attempts), 6),
                "mean_steps": round(summary.usage.steps / max(1, summary.attempts), 2),
                "tokens": summary.usage.tokens,
                "seconds": round(summary.usage.seconds, 1),
                "harness_seconds": round(summary.harness_seconds, 2),
                "missing": summary.missing,
            }
            for summary in report.models
        ],
        "recommendation": recommend(report) or None,
        "report": str(directory / "report.html"),
    }
