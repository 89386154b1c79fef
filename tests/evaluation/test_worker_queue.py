"""`patchwright evaluate --on-workers`, with a real Redis and worker processes that share no directory for results."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from patchwright.bot.jobs import Answered
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.demo.github import FakeGitHub
from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.evaluation.budget import Budget
from patchwright.evaluation.controls import ControlResult
from patchwright.evaluation.instances import Instance
from patchwright.evaluation.results import AttemptResult, EvaluationPlan, ResultDirectory
from patchwright.evaluation.runner import Observer
from patchwright.evaluation.variants import Variant
from patchwright.evaluation.worker_jobs import WorkerResult, check_shareable
from patchwright.evaluation.worker_queue import WorkerEvaluation, open_worker_queue
from patchwright.resolver.domain import Job, JobId, Repo, RunId
from patchwright.resolver.errors import SettingsError, UsageError
from patchwright.resolver.events import RunStarted
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import ReplaceText, RunShell
from tests.end_to_end.conftest import server_environment
from tests.evaluation.evaluation_scenario import ADD, EvaluationScenario

FIX = ReplaceText(path="calc.py", old=ADD.old, new=ADD.new)
TURNS = (
    RecordedTurn("Look.", RunShell(command="cat calc.py")),
    RecordedTurn("Fix it.", FIX),
    *(RecordedTurn("Done.", Finish(cause="A typo.", change="It adds.", testing="None.")),) * 6,
)


@dataclass
class Workers:
    """Worker processes on one Redis, each with its own disk, and their model."""

    evaluation: EvaluationScenario
    environment: dict[str, str]
    directory: Path
    stack: AsyncExitStack
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def start(self, count: int) -> None:
        for number in range(count):
            data = {
                "PATCHWRIGHT_DATA": str(self.directory / str(number)),
                "PATCHWRIGHT_MAX_CONCURRENT_JOBS": "1",
            }
            worker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "patchwright", "work"),
                env=self.environment | data,
                stdout=subprocess.PIPE,
            )
            self.processes.append(worker)
            self.stack.push_async_callback(self._stop, worker)
        for worker in self.processes:
            assert worker.stdout is not None
            assert (await worker.stdout.readline()).startswith(b"patchwright worker ready")

    async def _stop(self, worker: asyncio.subprocess.Process) -> None:
        if worker.returncode is None:
            worker.terminate()
        await worker.communicate()

    def kill_worker_of(self, instance: str) -> None:
        """Kills the worker that makes the attempt at this instance."""
        number = next(
            number
            for number in range(len(self.processes))
            if any((self.directory / str(number)).glob(f"evaluations/*/runs/*{instance}*"))
        )
        self.processes[number].kill()

    def check_each_step_is_paid_once(self, requests: int, interrupted: int) -> None:
        """Compares the requests that the model received with the logs, which came back through Redis."""
        _, attempts = self.evaluation.read_results()
        logs = FileLogStore(self.evaluation.results.runs)
        for run, result in attempts.items():
            assert result.resolved
            trajectory = logs.read(RunId(run))
            assert len(trajectory.replies()) == result.usage.steps
            assert sum(isinstance(event, RunStarted) for event in trajectory) == 1
        assert requests == sum(result.usage.steps for result in attempts.values()) + interrupted


@pytest.fixture
async def workers(evaluation: EvaluationScenario, short_tmp: Path) -> AsyncIterator[Workers]:
    async with AsyncExitStack() as stack:
        github = await stack.enter_async_context(FakeGitHub())
        url = await stack.enter_async_context(run_embedded_redis(short_tmp))
        environment = server_environment(github, github.create_app(), short_tmp) | {"REDIS_URL": url}
        evaluation.monkeypatch.setenv("REDIS_URL", url)
        yield Workers(evaluation, environment, short_tmp / "workers", stack)


@pytest.mark.redis
@pytest.mark.slow
async def test_the_attempt_of_a_killed_worker_continues_on_another(workers: Workers) -> None:
    evaluation = workers.evaluation
    ids = ("acme__calc-1", "acme__calc-2")
    evaluation.write_rows(
        *(
            evaluation.make_row(ADD, instance_id=each, problem_statement=f"add() fails in {each}")
            for each in ids
        )
    )

    def kill(turn: int, request: dict[str, Any]) -> None:
        if turn == 1 and ids[0] in str(request) and not killed:
            killed.append(turn)
            workers.kill_worker_of(ids[0])

    killed = list[int]()
    async with RecordedModel(TURNS, on_request=kill) as model:
        workers.environment["PATCHWRIGHT_MODEL_BASE_URL"] = model.base_url
        await workers.start(2)
        assert await evaluation.evaluate("--model", "openai/scripted", "--on-workers") == 0
        # Only the request that was interrupted is sent again.
        workers.check_each_step_is_paid_once(len(model.requests), interrupted=1)
    assert killed
    assert [worker.returncode for worker in workers.processes].count(-signal.SIGKILL) == 1
    assert len(evaluation.read_results()[1]) == 2
    assert (evaluation.results.path / "report.html").exists()


@pytest.mark.redis
@pytest.mark.slow
async def test_a_killed_evaluation_collects_what_its_workers_have_done(workers: Workers) -> None:
    evaluation = workers.evaluation
    evaluation.write_rows(evaluation.make_row(ADD))
    command = (sys.executable, "-m", "patchwright", "evaluate", "issues.jsonl", "--out", "results")
    options = ("--repositories", "clones", "--sandbox", "local", "--model", "openai/scripted", "--on-workers")

    def kill(turn: int, _: object) -> None:
        if turn == 1:
            process.kill()

    async with RecordedModel(TURNS, on_request=kill) as model:
        workers.environment["PATCHWRIGHT_MODEL_BASE_URL"] = model.base_url
        await workers.start(1)
        process = await asyncio.create_subprocess_exec(*command, *options, cwd=evaluation.directory)
        assert await process.wait() == -signal.SIGKILL
        assert evaluation.read_results()[1] == {}
        assert await evaluation.evaluate("--model", "openai/scripted", "--on-workers") == 0
        workers.check_each_step_is_paid_once(len(model.requests), interrupted=0)
        assert await evaluation.evaluate("--model", "openai/scripted", "--on-workers") == 0
        workers.check_each_step_is_paid_once(len(model.requests), interrupted=0)


async def test_an_evaluation_on_workers_needs_their_redis(evaluation: EvaluationScenario) -> None:
    evaluation.write_rows(evaluation.make_row(ADD))
    with pytest.raises(
        SettingsError, match=r"^REDIS_URL is not set\. With --on-workers, set it to the Redis of"
    ):
        await evaluation.evaluate("--model", "empty", "--on-workers")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ("--base-url", "http://127.0.0.1:1"),
            "--base-url does not reach workers. Set it in the settings of the",
        ),
        (("--image", "python:3"), "--image does not reach workers. Set it in the settings of the workers"),
    ],
)
async def test_a_worker_keeps_its_own_addresses(
    evaluation: EvaluationScenario, options: tuple[str, ...], error: str
) -> None:
    evaluation.write_rows(evaluation.make_row(ADD))
    with pytest.raises(UsageError, match=error):
        await evaluation.evaluate("--model", "empty", "--on-workers", *options)


@pytest.mark.slow
async def test_attempts_of_this_machine_and_of_workers_are_not_mixed(evaluation: EvaluationScenario) -> None:
    evaluation.write_rows(evaluation.make_row(ADD, FAIL_TO_PASS='["tests/test_missing.py::test"]'))
    await evaluation.evaluate("--model", "empty")
    with pytest.raises(UsageError, match=r"^The results in this directory were made without --on-workers\."):
        await evaluation.evaluate("--model", "empty", "--on-workers")


@pytest.mark.redis
async def test_a_result_cannot_name_a_file_outside_of_the_results(short_tmp: Path) -> None:
    instance = Instance(
        id="acme__calc-1", repo="acme/calc", url="", base_commit="", problem="", gold_patch="", test_patch="",
        evaluation="ab12",
    )  # fmt: skip
    plan = EvaluationPlan(
        source="",
        models=("m",),
        max_usd=Decimal(1),
        evaluation_id="ab12",
        version="1",
        started_at=datetime.now(UTC),
    )
    directory = ResultDirectory(short_tmp / "results")
    directory.create()
    control = ControlResult(instance=instance.id)
    attempt = AttemptResult(instance=instance.id, repo="acme/calc", model="m", attempt=1, run="../../escaped")
    skipped = list[str]()
    ignore = list[object]().append
    observer = Observer(ignore, ignore, ignore, lambda task: skipped.append(task.run), ignore)
    async with (
        run_embedded_redis(short_tmp) as url,
        open_worker_queue(url, directory.runs, print) as queue,
    ):
        evaluation = WorkerEvaluation(
            (instance,),
            Variant(model="m"),
            1,
            1,
            plan,
            directory,
            queue,
            Budget(Decimal("0.5"), Decimal(0)),
            observer,
        )
        job = Job(
            id=JobId("ab12-acme__calc-1-m-0.1"),
            repo=Repo(owner="evaluation", name="ab12"),
            number=0,
            requester=None,
        )
        await queue.jobs.complete(job, Answered())
        await queue.messages.write_result(
            job.id, WorkerResult(control=control, is_checked=True, attempts=(attempt,))
        )
        await evaluation.run()  # The budget is too small for another job.
    assert directory.read_control(instance.id) == control
    assert skipped == ["ab12-acme__calc-1-m-1"]
    assert not list(short_tmp.rglob("escaped*"))


@pytest.mark.parametrize("setting", ["model_base_url", "sandbox", "tools", "secrets_file"])
def test_a_job_cannot_change_the_addresses_and_programs_of_a_worker(setting: str) -> None:
    with pytest.raises(SettingsError, match=f"^`{setting}` cannot vary on workers"):
        check_shareable(Variant(model="m", settings=((setting, "x"),)))
