"""The jobs of an evaluation on workers. A job is one instance with one model; a worker makes its attempts."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Literal

from patchwright.bot.composition.composition_root import read_environment
from patchwright.bot.composition.model_factory import build_models
from patchwright.bot.errors import QueueDown
from patchwright.bot.faults import classify_error
from patchwright.bot.job_runner import LOG_TAKEN_RETRY_SECONDS, MAX_TRIES
from patchwright.bot.jobs import Answered, Failed, JobResult, Retry
from patchwright.bot.observe.archive import open_archive
from patchwright.bot.redis.connection import RedisStore
from patchwright.bot.redis.shared_run_log import SharedLogStore, raise_no_archive
from patchwright.bot.worker.worker_process import require_redis_url
from patchwright.evaluation.budget import Budget
from patchwright.evaluation.controls import ControlResult
from patchwright.evaluation.instances import Instance
from patchwright.evaluation.practice_models import PRACTICE_KINDS, PracticeModel, use_practice_model
from patchwright.evaluation.results import AttemptResult, ResultDirectory
from patchwright.evaluation.runner import Evaluation, Observer
from patchwright.evaluation.variants import Variant, apply_variant
from patchwright.resolver.domain import Job, JobId
from patchwright.resolver.errors import LogLocked, ModelAccessDenied, SettingsError
from patchwright.resolver.llm.model_check import check_models
from patchwright.resolver.run.dependencies import RunDependencies, no_new_messages
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.frozen_model import FrozenModel

KEPT_SECONDS = 30 * 24 * 3600  # how long Redis keeps a task or a result that is not collected
REDIS_RETRY_SECONDS = 5.0
# No address, key, path, or program: a client that can write to Redis must not choose those of a worker.
VARIABLE_SETTINGS = frozenset(
    "max_steps max_usd timeout max_tokens test_timeout max_repairs max_attempts max_context_tokens "
    "max_subagent_steps demonstration reasoning_effort "
    "tool_calling condenser_model browsing_model review_model".split()
)
"""The settings that a job may change. All others are the worker's own."""


class WorkerTask(FrozenModel):
    """What a job has to do. The worker adds its own settings, with its own keys."""

    instance: Instance
    variant: Variant
    attempts: tuple[int, ...]
    """Numbers of the attempts. If there are none, the worker only checks the instance."""
    control: ControlResult | None = None
    """None if the instance has yet to be checked."""
    sandbox: Literal["docker", "local", "auto"]
    max_usd: Decimal
    max_steps: int
    timeout: int
    file_hints: bool = False
    writes_tests: bool = False


class WorkerResult(FrozenModel):
    """What a worker found out."""

    control: ControlResult
    is_checked: bool
    """False if the control tells only why the instance could not be set up."""
    attempts: tuple[AttemptResult, ...] = ()


class JobMessages(RedisStore):
    """The tasks and results of an evaluation's jobs in Redis. Every method may raise QueueDown."""

    async def write_task(self, job: JobId, task: WorkerTask) -> None:
        await self._redis.set(_task_key(job), task.model_dump_json(), ex=KEPT_SECONDS)

    async def read_task(self, job: JobId) -> WorkerTask | None:
        stored = await self._redis.get(_task_key(job))
        return WorkerTask.model_validate_json(stored) if stored else None

    async def write_result(self, job: JobId, result: WorkerResult) -> None:
        await self._redis.set(_result_key(job), result.model_dump_json(), ex=KEPT_SECONDS)

    async def read_result(self, job: JobId) -> WorkerResult | None:
        stored = await self._redis.get(_result_key(job))
        return WorkerResult.model_validate_json(stored) if stored else None

    async def remove(self, job: JobId) -> None:
        """Removes the task and the result, because the result is in the directory of the evaluation."""
        await self._redis.delete(_task_key(job), _result_key(job))


class EvaluationJobs:
    """Runs the jobs of evaluations in a worker."""

    def __init__(self, deps: RunDependencies) -> None:
        """Raises SettingsError if the URL of Redis is invalid."""
        self._deps = deps
        self._url = require_redis_url(deps.settings)

    async def run(self, job: Job, tries: int) -> JobResult | Retry:
        """Makes the attempts of a job, and stores the result. A later try continues what a killed worker began."""
        messages = JobMessages(self._url)
        try:
            if tries > MAX_TRIES:
                return Failed(error=f"The worker died in each of {MAX_TRIES} tries.")
            task = await messages.read_task(job.id)
            if task is None:
                return Failed(error="Redis has lost the task.")
            await messages.write_result(job.id, await self._evaluate(task))
            return Answered()
        except LogLocked:  # A worker that was considered dead still makes the attempt.
            return Retry(delay_seconds=LOG_TAKEN_RETRY_SECONDS, counts_as_try=False)
        except QueueDown:
            return Retry(delay_seconds=REDIS_RETRY_SECONDS, counts_as_try=False)
        except (ModelAccessDenied, SettingsError) as exc:
            return Failed(error=str(exc), fault=classify_error(exc))
        finally:
            await messages.close()

    async def _evaluate(self, task: WorkerTask) -> WorkerResult:
        settings = self._build_settings(task)
        if task.variant.model not in PRACTICE_KINDS:
            return await self._make_attempts(task, settings)
        async with PracticeModel(task.variant.model, (task.instance,)) as practice:
            settings = use_practice_model(settings, task.variant.model, practice.base_url)
            return await self._make_attempts(task, settings)

    def _build_settings(self, task: WorkerTask) -> Settings:
        """Raises SettingsError if this worker cannot do the task."""
        check_shareable(task.variant)
        if task.sandbox not in ("auto", self._deps.sandboxes.kind):
            raise SettingsError(
                f"The worker's sandbox is `{self._deps.sandboxes.kind}`, not `{task.sandbox}`."
            )
        url = task.instance.url
        if "://" not in url and not Path(url).is_dir():
            raise SettingsError(f"The worker cannot read {url}. All machines need it under the same path.")
        limits = {"max_usd": task.max_usd, "max_steps": task.max_steps, "timeout": task.timeout}
        return apply_variant(self._deps.settings.model_copy(update=limits), task.variant)

    async def _make_attempts(self, task: WorkerTask, settings: Settings) -> WorkerResult:
        check_models(settings, read_environment())
        directory = ResultDirectory(settings.data / "evaluations" / task.instance.evaluation)
        directory.create()
        archive = open_archive(settings)
        read_archived = archive.read if archive else raise_no_archive
        logs = SharedLogStore(FileLogStore(directory.runs), self._url, read_archived)
        models = build_models(settings, secrets=self._deps.secrets)
        deps = replace(
            self._deps, settings=settings, model=models.act, purpose_models=models, logs=logs, can_ask=False,
            checks_endpoint=True, get_new_messages=no_new_messages,
        )  # fmt: skip
        controls, attempts = list[ControlResult](), list[AttemptResult]()
        if task.control:
            directory.write_control(task.control)
        try:
            await Evaluation(
                instances=(task.instance,),
                model=task.variant.name,
                attempts=task.attempts,
                workers=1,
                directory=directory,
                deps=deps,
                budget=Budget(None, Decimal(0)),
                observer=Observer(_ignore, controls.append, attempts.append, _ignore, _ignore),
                gives_file_hints=task.file_hints,
                writes_tests=task.writes_tests,
            ).run()
        finally:
            await logs.close()
        is_checked = directory.read_control(task.instance.id) == controls[-1]
        return WorkerResult(control=controls[-1], is_checked=is_checked, attempts=tuple(attempts))


def check_shareable(variant: Variant) -> None:
    """Raises SettingsError if a job may not change one of the settings."""
    for name, _ in variant.settings:
        if name not in VARIABLE_SETTINGS:
            raise SettingsError(f"`{name}` cannot vary on workers. Set it in the settings of the workers")


def _ignore(_: object) -> None:
    return


def _task_key(job: JobId) -> str:
    return f"patchwright:evaluation_task:{job}"


def _result_key(job: JobId) -> str:
    return f"patchwright:evaluation_result:{job}"
