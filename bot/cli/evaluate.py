"""`patchwright evaluate` measures how many issues are resolved, and `patchwright tune` recommends a model."""

import argparse
from typing import TYPE_CHECKING

from patchwright.bot.cli.options import add_settings_options
from patchwright.bot.terminal.exit_codes import UNSUCCESSFUL
from patchwright.bot.terminal.help_screens import Subparsers, add_command

if TYPE_CHECKING:
    from patchwright.bot.jobs import JobHandler, JobResult, Retry
    from patchwright.resolver.domain import Job
    from patchwright.resolver.run.dependencies import RunDependencies


def add_evaluate(commands: Subparsers) -> None:
    """Adds `evaluate` to the command line."""
    command = add_command(
        commands,
        "evaluate",
        "measure how many issues a model resolves",
        "Resolve the issues of a data set, run their hidden tests, and write a report. A killed evaluation\n"
        "continues where it stopped if you run the same command again.\n\n"
        "  patchwright evaluate smoke: --model gold\n"
        "  patchwright evaluate history:PATH --model anthropic/claude-sonnet-5 --budget 20\n"
        "  patchwright evaluate issues.jsonl --workers 4 --model A --model B",
        {UNSUCCESSFUL: "attempts have no result, or a model resolves less than --min-resolved"},
    )
    _add_options(command)
    command.set_defaults(handler=run, vary=None)


def add_tune(commands: Subparsers) -> None:
    """Adds `tune` to the command line."""
    command = add_command(
        commands,
        "tune",
        "find the best model and settings for your own issues",
        "Evaluate every combination of models and settings on the same instances, and recommend one of them.\n\n"
        "  patchwright tune history:PATH --model A --model B --vary max_steps=50,100 --budget 40",
        {UNSUCCESSFUL: "attempts have no result, or a model resolves less than --min-resolved"},
    )
    command.add_argument(
        "--vary", action="append", metavar="SETTING=VALUE,...", help="try these values; can be repeated"
    )
    _add_options(command)
    command.set_defaults(handler=run)


def _add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "source",
        metavar="SOURCE",
        help="smoke:, packages:[NAME,...], history:PATH, history:OWNER/REPO, or a file (docs/evaluation.md)",
    )
    command.add_argument("--out", metavar="DIR", help="directory of the results (default: evaluation-SOURCE)")
    command.add_argument("--limit", type=int, metavar="N", help="use only the first N instances")
    command.add_argument(
        "--filter", action="append", metavar="PATTERN", help="only instances like this, such as 'acme__*'"
    )
    command.add_argument(
        "--since",
        metavar="DATE",
        help="only instances since this day (YYYY-MM-DD), which a model cannot know",
    )
    command.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="instances at a time (default 1; with --on-workers: all)",
    )
    command.add_argument(
        "--on-workers",
        action="store_true",
        help="let the workers of the Redis at REDIS_URL make the attempts (`patchwright work`)",
    )
    command.add_argument(
        "--attempts", type=int, default=1, metavar="K", help="attempts per instance (default 1)"
    )
    command.add_argument("--budget", metavar="USD", help="start no attempt that may exceed this total cost")
    command.add_argument("--repositories", metavar="DIR", help="clones of the data set's repositories")
    command.add_argument("--file-hints", action="store_true", help="name the 5 files that fit the issue best")
    command.add_argument(
        "--write-tests",
        action="store_true",
        help="the task is to write a test that shows the bug",
    )
    command.add_argument("--compare-with", metavar="DIR", help="compare with the results in this directory")
    command.add_argument(
        "--min-resolved",
        type=float,
        default=0.0,
        metavar="PERCENT",
        help="exit with 3 below this resolve rate",
    )
    command.add_argument("--quiet", "-q", action="store_true", help="print no progress")
    add_settings_options(command, "print only the results, as one JSON object", has_several_models=True)


def build_evaluator(deps: "RunDependencies") -> "JobHandler":
    """Returns what runs the jobs of evaluations in a worker."""

    async def evaluate(job: "Job", tries: int) -> "JobResult | Retry":
        from patchwright.evaluation.worker_jobs import EvaluationJobs

        return await EvaluationJobs(deps).run(job, tries)

    return evaluate


async def run(options: argparse.Namespace) -> int:
    """Evaluates one or more models."""
    from patchwright.evaluation.evaluate_command import run_evaluate

    return await run_evaluate(options)
