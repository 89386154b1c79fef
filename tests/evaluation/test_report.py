"""What a report says about known results."""

import json
from pathlib import Path

import pytest

from patchwright.evaluation.localization import rank_texts, recall
from patchwright.evaluation.report import EvaluationReport, VerdictRow, build_report
from patchwright.evaluation.report_files import (
    STAGE_LABELS,
    describe_comparison,
    summarize_as_json,
    summarize_in_text,
    write_reports,
)
from patchwright.evaluation.results import ResultDirectory
from patchwright.resolver.secrets import Secrets
from tests.evaluation.sample_results import PLAN, RIGHT, WRONG, make_attempt, make_attempts, make_controls


@pytest.fixture
def report() -> EvaluationReport:
    return build_report(PLAN, make_controls(), [*make_attempts("large"), *make_attempts("small")])


def test_a_report_counts_the_resolved_instances(report: EvaluationReport) -> None:
    large, small = report.models
    assert (large.resolved.count, large.resolved.total, small.resolved.count) == (12, 20, 7)
    assert {share.name: share.count for share in large.failures} == {
        "wrong_place": 3, "misread_issue": 1, "broke_tests": 2, "gave_up": 1, "model": 1,
    }  # fmt: skip
    assert [(share.name, share.count, share.total) for share in large.repositories] == [
        ("django/django", 6, 10), ("pallets/flask", 3, 5), ("psf/requests", 3, 5),
    ]  # fmt: skip
    assert report.broken[0].instance == "matplotlib__matplotlib-9"


def test_a_report_says_how_many_attempts_reached_each_stage(report: EvaluationReport, tmp_path: Path) -> None:
    reached = {"reproduced": 0, "localized": 15, "patched": 18, "own_tests_pass": 13, "pull_request": 17}
    reached["hidden_tests_pass"] = 12
    assert {share.name: share.count for share in report.models[0].stages} == reached
    write_reports(report, ResultDirectory(tmp_path), Secrets(), for_models=())
    page = (tmp_path / "report.md").read_text()
    assert [f"| {STAGE_LABELS[name]} | {count} of 20 |" in page for name, count in reached.items()] == [
        True
    ] * 6


def test_the_printed_object_has_the_mean_cost_and_steps_and_the_failures(
    report: EvaluationReport, tmp_path: Path
) -> None:
    large = summarize_as_json(report, tmp_path)["models"][0]
    attempts = make_attempts("large")
    usd = sum(attempt.usage.usd for attempt in attempts) / 20
    assert (large["mean_cost_usd"], large["mean_steps"]) == (round(float(usd), 6), 21.5)
    assert large["failures"] == {
        "wrong_place": 3, "misread_issue": 1, "broke_tests": 2, "gave_up": 1, "model": 1,
    }  # fmt: skip


def test_a_report_compares_our_verdict_with_the_hidden_tests(report: EvaluationReport) -> None:
    assert report.models[0].verdicts == (
        VerdictRow(verdict="fixed", resolved=9, unresolved=2),
        VerdictRow(verdict="conditional", resolved=2, unresolved=0),
        VerdictRow(verdict="unproven", resolved=1, unresolved=3),
        VerdictRow(verdict="regressed", resolved=0, unresolved=1),
        VerdictRow(verdict="empty", resolved=0, unresolved=1),
        VerdictRow(verdict=None, resolved=0, unresolved=1),
    )
    precision = report.models[0].precision
    assert (precision.count, precision.total) == (9, 11)


def test_models_are_compared_on_the_same_instances(report: EvaluationReport) -> None:
    (comparison,) = report.comparisons
    assert (comparison.both, len(comparison.only_first), comparison.only_second) == (7, 5, ())
    assert describe_comparison(comparison) == (
        "No difference is shown: only large resolves 5, only small resolves 0 (p = 0.062). "
        "Use more instances to tell them apart."
    )


def test_of_several_attempts_the_best_verdict_counts() -> None:
    attempts = [
        make_attempt("large", 0, ("unproven", WRONG, "misread_issue"), attempt=1),
        make_attempt("large", 0, ("fixed", RIGHT, None), attempt=2),
    ]
    plan = PLAN.model_copy(update={"models": ("large",), "attempts": 2})
    (summary,) = build_report(plan, make_controls(), attempts).models
    assert summary.resolved.count == 0  # pass@1: only the first attempt counts
    assert (summary.pass_at_k, summary.best_of_k and summary.best_of_k.count) == (1.0, 1)


def test_an_instance_that_is_broken_does_not_count() -> None:
    controls = tuple(control.model_copy(update={"problem": "Broken."}) for control in make_controls())
    report = build_report(PLAN, controls, make_attempts("large"))
    assert (report.usable, report.models[0].resolved.total, report.attempts) == (0, 0, ())


def test_the_files_of_a_report_agree(report: EvaluationReport, tmp_path: Path) -> None:
    directory = ResultDirectory(tmp_path)
    write_reports(report, directory, Secrets(["django__django-1012"]), for_models=())
    values = json.loads((tmp_path / "report.json").read_text())
    assert values["models"][0]["resolved"] == {"name": "large", "count": 12, "total": 20}
    text = "12 of 20 (60 %, 95 % interval 39 to 78 %)"
    assert f"**large** resolved {text}" in (tmp_path / "report.md").read_text()
    page = (tmp_path / "report.html").read_text()
    assert f'aria-label="{text}"' in page
    assert "<script" not in page
    assert "django__django-1012" not in page  # a secret is masked
    assert f"large: resolved {text}" in summarize_in_text(report, tmp_path)
    lines = (tmp_path / "predictions-large.jsonl").read_text().splitlines()
    assert len(lines) == 20
    assert set(json.loads(lines[0])) == {"instance_id", "model_name_or_path", "model_patch"}


def test_at_most_five_files_are_named_and_the_best_match_is_first() -> None:
    texts = {f"f{number}.py": "total " * number + "other " * (9 - number) for number in range(10)}
    assert rank_texts(texts, "The total is wrong") == ("f9.py", "f8.py", "f7.py", "f6.py", "f5.py")


def test_recall_counts_the_gold_files_among_the_first_five() -> None:
    found = ("/workspace/src/a.py", "b.py", "c.py", "d.py", "e.py", "src/f.py")
    assert recall(found, ("src/a.py", "src/f.py")) == 0.5
    assert recall(found, ()) is None
