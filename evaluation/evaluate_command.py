"""The commands `evaluate` and `tune` load the instances, run the models, and write the report."""

import argparse
import asyncio
import secrets as random_tokens
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path

from patchwright.bot.cli.options import SETTINGS_OPTIONS
from patchwright.bot.cli.settings_loading import load_settings
from patchwright.bot.commands.confirmation import offer_local_sandbox
from patchwright.bot.composition import composition_root
from patchwright.bot.credentials import collect_secrets
from patchwright.bot.terminal.exit_codes import SUCCESS, UNSUCCESSFUL
from patchwright.bot.terminal.local_files import absolute_path
from patchwright.bot.terminal.output import print_json, print_stderr
from patchwright.bot.terminal.run_ids import sanitize_name
from patchwright.evaluation.budget import Budget
from patchwright.evaluation.data_sets import DataSetOptions, ForgeHistoryLoader, load_instances
from patchwright.evaluation.forge_history import load_history
from patchwright.evaluation.instances import Instance
from patchwright.evaluation.practice_models import PRACTICE_KINDS, PracticeModel, use_practice_model
from patchwright.evaluation.progress import ProgressDisplay
from patchwright.evaluation.release_pairs import Registries
from patchwright.evaluation.report import EvaluationReport, build_report
from patchwright.evaluation.report_files import summarize_as_json, summarize_in_text, write_reports
from patchwright.evaluation.results import AttemptResult, EvaluationPlan, ResultDirectory, read_report_inputs
from patchwright.evaluation.runner import Evaluation, Observer
from patchwright.evaluation.variants import Variant, apply_variant, build_variants
from patchwright.evaluation.worker_jobs import check_shareable
from patchwright.evaluation.worker_queue import WorkerEvaluation, open_worker_queue
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import UsageError
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime import VERSION


async def run_evaluate(options: argparse.Namespace) -> int:
    """Evaluates models and writes the report. Returns the exit code."""
    directory = ResultDirectory(absolute_path(options.out or f"evaluation-{sanitize_name(options.source)}"))
    with directory.lock():
        report = await evaluate(options, directory)
    if options.json:
        print_json(summarize_as_json(report, directory.path))
    else:
        print(summarize_in_text(report, directory.path))
    is_complete = all(not model.missing for model in report.models) and not _count_errors(report)
    if not report.usable:
        print_stderr("No instance could be used. The directory `controls` has the output of the tests.")
    elif not is_complete:
        print_stderr("Some attempts have no result. Run the same command again to make them.")
    is_enough = all(model.resolved.percent >= options.min_resolved for model in report.models)
    return SUCCESS if report.usable and is_complete and is_enough else UNSUCCESSFUL


async def evaluate(options: argparse.Namespace, directory: ResultDirectory) -> EvaluationReport:
    """Makes all attempts that have no result yet, and writes the report."""
    _check_numbers(options)
    variants = build_variants(options.model or [_configured_model(options)], options.vary or ())
    if options.on_workers:
        _check_worker_options(options, variants)
    models = tuple(variant.name for variant in variants)
    plan = _build_plan(options, models, directory.read_plan())
    instances = await _load_instances(options, directory, plan)
    instances = tuple(each.model_copy(update={"evaluation": plan.evaluation_id}) for each in instances)
    directory.write_plan(plan)
    print_stderr(f"{len(instances)} instances, results in {directory.path}")
    _, _, earlier_attempts = read_report_inputs(directory.path)
    budget = Budget(
        _parse_budget(options.budget), sum((each.usage.usd for each in earlier_attempts), Decimal(0))
    )
    total = len(instances) * options.attempts * len(models)
    environ = composition_root.read_environment()
    display = ProgressDisplay(sys.stderr, environ, total, quiet=options.quiet)
    observer = Observer(
        display.start, display.show_control, display.show_attempt, display.show_skip, display.end
    )
    try:
        for variant in variants:
            if plan.evaluation_id:
                await _evaluate_on_workers(options, variant, instances, directory, budget, observer)
                continue
            async with _open_model(variant, instances, options, directory) as deps:
                await Evaluation(
                    instances=instances,
                    model=variant.name,
                    attempts=range(1, options.attempts + 1),
                    workers=options.workers or 1,
                    directory=directory,
                    deps=deps,
                    budget=budget,
                    observer=observer,
                    gives_file_hints=options.file_hints,
                    writes_tests=options.write_tests,
                ).run()
    except asyncio.CancelledError:
        print_stderr("The report has the results so far. To continue, run the same command again.")
        raise
    finally:
        display.close()
        report = _write_report(options, directory, models, {instance.id for instance in instances})
    return report


async def _evaluate_on_workers(
    options: argparse.Namespace,
    variant: Variant,
    instances: tuple[Instance, ...],
    directory: ResultDirectory,
    budget: Budget,
    observer: Observer,
) -> None:
    plan, url = directory.read_plan(), load_settings(_with_model(options, None)).redis_url
    assert plan is not None
    async with open_worker_queue(url, directory.runs, print_stderr) as queue:
        await WorkerEvaluation(
            instances=instances,
            variant=variant,
            attempts=options.attempts,
            at_a_time=options.workers or max(1, len(instances)),
            plan=plan,
            directory=directory,
            queue=queue,
            budget=budget,
            observer=observer,
        ).run()


def _write_report(
    options: argparse.Namespace, directory: ResultDirectory, models: tuple[str, ...], selected: set[str]
) -> EvaluationReport:
    plan, controls, attempts = read_report_inputs(directory.path)
    if options.since:  # The directory may have results of older instances.
        controls = tuple(each for each in controls if each.instance in selected)
        attempts = tuple(each for each in attempts if each.instance in selected)
    earlier_name, earlier = "", tuple[AttemptResult, ...]()
    if options.compare_with:
        earlier_name = Path(options.compare_with).name
        _, _, earlier = read_report_inputs(Path(options.compare_with))
    report = build_report(plan, controls, attempts, earlier, earlier_name)
    secrets = collect_secrets(load_settings(_with_model(options, None)), composition_root.read_environment())
    write_reports(report, directory, secrets, for_models=models)
    return report


def _check_numbers(options: argparse.Namespace) -> None:
    for name in ("workers", "attempts"):
        if (number := getattr(options, name)) is not None and number < 1:
            raise UsageError(f"--{name} must be at least 1")
    if options.limit is not None and options.limit < 1:
        raise UsageError("--limit must be at least 1")
    _parse_date(options.since)


def _check_worker_options(options: argparse.Namespace, variants: Sequence[Variant]) -> None:
    for name in ("model_base_url", "agent", "image"):
        if getattr(options, name) is not None:
            option = SETTINGS_OPTIONS[name]
            raise UsageError(f"--{option} does not reach workers. Set it in the settings of the workers")
    for variant in variants:
        check_shareable(variant)


def _parse_date(text: str | None) -> datetime | None:
    """Returns the beginning of the day in UTC."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC) if text else None
    except ValueError:
        raise UsageError(f"--since: {text} is not a day such as 2026-01-31") from None


def _parse_budget(text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        budget = Decimal(text)
    except InvalidOperation:
        raise UsageError(f"--budget: {text} is not an amount in dollars") from None
    if not budget.is_finite() or budget <= 0:
        raise UsageError("--budget must be more than 0 dollars")
    return budget


def _with_model(options: argparse.Namespace, model: str | None) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(options), "model": model})


def _configured_model(options: argparse.Namespace) -> str:
    if model := load_settings(_with_model(options, None)).model:
        return model
    raise UsageError(
        "No model is set. Pass --model NAME, or --model gold to test the evaluation without a model and a key"
    )


def _build_plan(
    options: argparse.Namespace, models: tuple[str, ...], stored: EvaluationPlan | None
) -> EvaluationPlan:
    """Returns the plan of this call. A later call may add models, attempts, and instances, but not change the rules."""
    settings = load_settings(_with_model(options, None))
    plan = EvaluationPlan(
        source=options.source,
        selection=repr((options.limit, options.filter, options.since)),
        models=tuple(dict.fromkeys((*(stored.models if stored else ()), *models))),
        attempts=max(options.attempts, stored.attempts if stored else 1),
        sandbox=settings.sandbox,
        max_usd=settings.max_usd,
        max_steps=settings.max_steps,
        timeout=settings.timeout,
        file_hints=options.file_hints,
        writes_tests=options.write_tests,
        evaluation_id=stored.evaluation_id if stored else random_tokens.token_hex(4) * options.on_workers,
        version=VERSION,
        started_at=stored.started_at if stored else datetime.now(UTC),
    )
    if stored and bool(stored.evaluation_id) != options.on_workers:
        made = "on workers" if stored.evaluation_id else "without --on-workers"
        raise UsageError(
            f"The results in this directory were made {made}. Continue in the same way, or use another --out"
        )
    if stored:
        for name in ("source", "sandbox", "max_usd", "max_steps", "timeout", "file_hints", "writes_tests"):
            if getattr(stored, name) != getattr(plan, name):
                raise UsageError(
                    f"The results in this directory have another {name} ({getattr(stored, name)}). "
                    "Use another --out, so that all results follow the same rules"
                )
    return plan


async def _load_instances(
    options: argparse.Namespace, directory: ResultDirectory, plan: EvaluationPlan
) -> tuple[Instance, ...]:
    stored, earlier_plan = directory.read_instances(), directory.read_plan()
    if stored and earlier_plan and earlier_plan.selection == plan.selection:
        return stored
    instances = await load_instances(
        options.source,
        DataSetOptions(
            directory=directory.repositories,
            registries=Registries.from_environment(composition_root.read_environment()),
            load_forge_history=_open_forge_history(options, directory),
            repositories=absolute_path(options.repositories) if options.repositories else None,
            limit=options.limit,
            filters=tuple(options.filter or ()),
            since=_parse_date(options.since),
        ),
    )
    directory.write_instances(instances)
    return instances


def _open_forge_history(options: argparse.Namespace, directory: ResultDirectory) -> ForgeHistoryLoader:
    async def load(repo: Repo, limit: int | None) -> Sequence[Instance]:
        settings = load_settings(_with_model(options, None))
        workspaces = WorkspaceFactory(settings.data / "cache", settings.ca_bundle)
        async with composition_root.open_forge(settings) as forge:
            return await load_history(repo, forge, workspaces, directory.repositories, limit)

    return load


@asynccontextmanager
async def _open_model(
    variant: Variant, instances: tuple[Instance, ...], options: argparse.Namespace, directory: ResultDirectory
) -> AsyncIterator[RunDependencies]:
    """Yields the dependencies of the runs with this model. Their logs are in the directory of the results."""
    model = variant.model
    if model in PRACTICE_KINDS:
        async with PracticeModel(model, instances) as practice:
            settings = use_practice_model(_load_variant(variant, options), model, practice.base_url)
            async with _open_dependencies(settings, options, directory) as deps:
                yield deps
        return
    async with _open_dependencies(_load_variant(variant, options), options, directory) as deps:
        yield deps


def _load_variant(variant: Variant, options: argparse.Namespace) -> Settings:
    return apply_variant(load_settings(_with_model(options, variant.model)), variant)


@asynccontextmanager
async def _open_dependencies(
    settings: Settings, options: argparse.Namespace, directory: ResultDirectory
) -> AsyncIterator[RunDependencies]:
    if not options.json:
        settings = await offer_local_sandbox(settings, composition_root.read_environment())
    async with composition_root.build_run_dependencies(settings, notify=print_stderr) as deps:
        # The attempts take hours, so each checks the endpoint again.
        yield replace(deps, logs=FileLogStore(directory.runs), can_ask=False, checks_endpoint=True)


def _count_errors(report: EvaluationReport) -> int:
    return sum(attempt.failure == "model" for attempt in report.attempts)
