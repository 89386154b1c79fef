"""Runs an evaluation: the controls and the attempts of all instances, several at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from patchwright.evaluation.attempt import AttemptTask, make_attempt, read_usage
from patchwright.evaluation.budget import Budget
from patchwright.evaluation.checkouts import check_out
from patchwright.evaluation.controls import ControlResult, check_instance
from patchwright.evaluation.hidden_tests import HiddenTests
from patchwright.evaluation.instances import Instance
from patchwright.evaluation.official_images import use_official_image
from patchwright.evaluation.results import AttemptResult, ResultDirectory
from patchwright.resolver.domain import Usage
from patchwright.resolver.errors import LogLocked, ModelAccessDenied, ResolverError, SettingsError
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.runtime.errors import SandboxError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Observer:
    """What is called while the evaluation runs."""

    on_start: Callable[[Instance], None]
    on_control: Callable[[ControlResult], None]
    on_attempt: Callable[[AttemptResult], None]
    on_skip: Callable[[AttemptTask], None]
    """Called for an attempt that does not fit into the budget."""
    on_end: Callable[[Instance], None]


@dataclass(frozen=True)
class Evaluation:
    """The instances of an evaluation with one model."""

    instances: tuple[Instance, ...]
    model: str
    attempts: Sequence[int]
    """Numbers of the attempts, from 1."""
    workers: int
    directory: ResultDirectory
    deps: RunDependencies
    budget: Budget
    observer: Observer
    gives_file_hints: bool = False
    writes_tests: bool = False

    async def run(self) -> None:
        """Makes all attempts that have no result yet. Raises ModelAccessDenied and SettingsError, because then no
        other attempt can succeed. Raises LogLocked if another process makes one of the attempts.
        """
        await evaluate_each(self.instances, self.workers, self._evaluate, self.observer)

    async def _evaluate(self, instance: Instance) -> None:
        tasks = [
            AttemptTask(instance, self.model, number, self.gives_file_hints, self.writes_tests)
            for number in self.attempts
        ]
        control = self.directory.read_control(instance.id)
        open_tasks = []
        for task in tasks:
            if result := self.directory.read_attempt(task.run):
                self.observer.on_attempt(result)
            else:
                open_tasks.append(task)
        if control is not None and control.problem:
            control = None  # The cause may have been the machine, so the instance is checked again.
        if control is not None and not open_tasks:
            self.observer.on_control(control)
            return
        self.observer.on_start(instance)
        try:
            official = await use_official_image(instance, self.deps)
            deps = official or self.deps
            async with (
                check_out(
                    instance,
                    self.directory.checkouts,
                    deps.workspaces,
                    has_official_image=official is not None,
                ) as checkout,
                deps.workspaces.local(checkout) as workspace,
            ):
                tests = await HiddenTests.prepare(instance, checkout, workspace, deps)
                if control is None:
                    control = await check_instance(tests)
                    if official:
                        control = control.model_copy(update={"image": instance.image})
                    self.directory.write_control(control)
                self.observer.on_control(control)
                if not control.problem:
                    await self._make_attempts(open_tasks, tests, control, checkout, deps)
        except (ModelAccessDenied, SettingsError, LogLocked):
            raise
        except (ResolverError, SandboxError) as exc:
            logger.warning("instance not evaluated", extra={"instance": instance.id, "error": str(exc)[:500]})
            self.observer.on_control(
                ControlResult(instance=instance.id, problem=f"It cannot be set up. {exc}")
            )

    async def _make_attempts(
        self,
        tasks: list[AttemptTask],
        tests: HiddenTests,
        control: ControlResult,
        checkout: Path,
        deps: RunDependencies,
    ) -> None:
        limit = Decimal(self.deps.settings.max_usd)
        for task in tasks:
            if not await self.budget.reserve(limit):
                self.observer.on_skip(task)
                continue
            before = read_usage(task.run, self.deps).usd
            try:
                result = await make_attempt(task, tests, control, checkout, deps)
            except (ModelAccessDenied, SettingsError, LogLocked):
                raise
            except (ResolverError, SandboxError) as exc:
                result = fail_attempt(task, str(exc), read_usage(task.run, self.deps))
            finally:
                await self.budget.settle(limit, read_usage(task.run, self.deps).usd - before)
            if result.failure != "model":  # The next call of the command continues a run that had an error.
                self.directory.write_attempt(result)
            self.observer.on_attempt(result)


async def evaluate_each(
    instances: Sequence[Instance],
    at_a_time: int,
    evaluate: Callable[[Instance], Awaitable[None]],
    observer: Observer,
) -> None:
    """Evaluates the instances, this many at a time. After an error, the others are canceled."""
    gate = asyncio.Semaphore(at_a_time)

    async def work(instance: Instance) -> None:
        async with gate:
            await evaluate(instance)
            observer.on_end(instance)

    tasks = [asyncio.create_task(work(instance)) for instance in instances]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def fail_attempt(task: AttemptTask, error: str, usage: Usage) -> AttemptResult:
    """Returns the result of an attempt that an error ended. The next call of the command continues it."""
    return AttemptResult(
        instance=task.instance.id,
        repo=task.instance.repo,
        created_at=task.instance.created_at,
        model=task.model,
        attempt=task.number,
        run=task.run,
        failure="model",
        usage=usage,
        error=error,
    )
