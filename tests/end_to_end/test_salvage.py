"""However a run stops, its work tree is saved on a branch and can be continued."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from patchwright.bot.composition import composition_root
from patchwright.bot.github.auth import RequestPolicy
from patchwright.bot.job_runner import JobRunner, TryLimits
from patchwright.bot.jobs import Failed, JobResult, Stopped
from patchwright.bot.status_comment import comment_reporter, report_failure
from patchwright.demo.recorded_model import ModelFault, RecordedTurn
from patchwright.resolver.domain import Job, Outcome, Published, Reported
from patchwright.resolver.errors import QuotaExceeded
from patchwright.resolver.events import Message
from patchwright.resolver.forge import MaskingForge
from patchwright.resolver.pipeline.resolve import resolve_job
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.runtime.actions import CreateFile, RunShell
from patchwright.runtime.errors import EngineUnavailable
from patchwright.runtime.sandbox import Sandbox, Sandboxes
from tests.bot.inline_queue import InlineQueue
from tests.end_to_end.conftest import CODE, DONE, FIX, FIX_TURNS, NEW_TEST, Scenario
from tests.end_to_end.scripted_models import use_ordered_model
from tests.end_to_end.test_agent_questions import comment
from tests.resolver.git_repository import Repository

NO_CREDIT = ModelFault(
    status=402,
    body='{"error": {"message": "Your account has no credit left.", "code": "insufficient_quota"}}',
)
BRANCH = "patchwright/issue-1-after-1-steps"


@dataclass
class Service:
    """The server's queue and worker in this process."""

    queue: InlineQueue
    worker: JobRunner

    async def done(self, job: Job) -> JobResult:
        """Runs the job and returns its result."""
        await self.queue.put(job)
        async with asyncio.timeout(90):
            while (
                (record := await self.queue.get_record(job.id)) is None
                or record.state != "completed"
                or record.result is None
            ):
                await asyncio.sleep(0.02)
        return record.result


@asynccontextmanager
async def service(
    scenario: Scenario, sandboxes: Callable[[Sandboxes], Sandboxes] = lambda own: own
) -> AsyncIterator[Service]:
    """Runs the jobs of a scenario as `patchwright serve` does."""
    settings = composition_root.read_settings({}, scenario.environment, None, None)
    async with (
        composition_root.build_run_dependencies(settings, notify=print) as made,
        composition_root.open_forge(
            settings, RequestPolicy(write_interval=0, initial_backoff=0.01)
        ) as github,
    ):
        dependencies: RunDependencies = replace(made, sandboxes=sandboxes(made.sandboxes))
        forge = MaskingForge(github, dependencies.secrets.mask)

        async def work(job: Job) -> Outcome:
            return await resolve_job(job, dependencies, forge, comment_reporter(forge, settings))

        worker = JobRunner(
            work,
            lambda job, error: report_failure(forge, job, error, dependencies),
            limits=TryLimits(max_tries=1),
        )
        queue = InlineQueue()
        task = asyncio.create_task(queue.process_jobs(worker.run))
        try:
            yield Service(queue, worker)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def resolve_until_failure(
    scenario: Scenario, *turns: RecordedTurn, before: Callable[[], None] = lambda: None
) -> str:
    """Fails the provider after these turns and returns the resulting comment. Calls `before` first."""
    left = [NO_CREDIT]

    def refuse(turn: int, body: dict[str, Any]) -> None:
        if turn == len(turns) and left:
            before()
            endpoint.add_faults(left.pop())

    endpoint = await use_ordered_model(scenario, *turns, RecordedTurn("Done.", DONE), on_request=refuse)
    async with service(scenario) as at_work:
        assert isinstance(await at_work.done(scenario.job()), Failed)
    (comment,) = scenario.comments
    return comment


@pytest.fixture
def polled_scenario(make_scenario: Callable[..., Scenario]) -> Scenario:
    scenario = make_scenario()
    scenario.fake_github.add_webhook("http://127.0.0.1:9/nobody", "none")
    return scenario


@pytest.mark.slow
async def test_a_failed_run_saves_its_work_tree_on_a_branch_and_explains_how_to_resume(
    polled_scenario: Scenario,
) -> None:
    scenario = polled_scenario
    comment = await resolve_until_failure(scenario, RecordedTurn("Fix.", FIX))
    assert scenario.repo.read(BRANCH, "calc.py") == CODE.replace("a - b", "a + b")
    first, kept, way, *_ = comment.split("\n\n")
    assert first.startswith("I had to stop before I finished.") and "no credit left" in first
    assert kept == f"The work so far (1 file) is on the branch `{BRANCH}`. It was not tested."
    assert way == (
        "**To continue** from where I stopped, comment `@agent resume`. An operator can also run `patchwright "
        f"resolve --continue {scenario.job().id}` on the server's machine."
    )
    _, _, bill = comment.partition("<summary>Limits and cost</summary>\n\n")
    assert bill.startswith("1 step of `openai/scripted` · cost unknown")
    assert scenario.repo.pulls == ()


@pytest.mark.slow
async def test_a_failed_run_of_a_requester_without_write_access_reports_its_cost(
    polled_scenario: Scenario,
) -> None:
    def revoke() -> None:
        polled_scenario.fake_github.set_role(polled_scenario.repo, "maintainer", "read")

    comment = await resolve_until_failure(polled_scenario, RecordedTurn("Fix.", FIX), before=revoke)
    text, bill = comment.strip().split("\n\n")
    assert text.startswith("I published nothing: @maintainer no longer has write access")
    assert bill.startswith("cost unknown")
    assert polled_scenario.repo.branches == ("main",)


@pytest.mark.slow
async def test_resume_continues_a_failed_run_and_completes_it(polled_scenario: Scenario) -> None:
    scenario = polled_scenario
    await resolve_until_failure(scenario, RecordedTurn("Fix.", FIX))
    request_count = len(scenario.endpoint.requests)
    on = await comment(scenario, "@agent resume, and test it")
    endpoint = await use_ordered_model(
        scenario, RecordedTurn("Test it.", NEW_TEST), RecordedTurn("Done.", DONE), RecordedTurn("Done.", DONE)
    )
    async with service(scenario) as at_work:
        outcome = await at_work.done(on)
        assert isinstance(outcome, Published) and outcome.verdict.kind == "fixed"
        assert scenario.comments[0] == (
            f"This run was stopped, and then continued. Here is [its result]({outcome.url}).\n"
        )
        assert await at_work.worker.run(on, 1) == outcome, "the same trigger again"
    assert request_count == 2 and len(endpoint.requests) == 3
    run = scenario.trajectory(scenario.job().id)
    (message,) = [event for event in run if isinstance(event, Message) and event.trigger_id == on.id]
    assert message.source == "resume" and "> and test it" in message.text
    assert scenario.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")


@pytest.mark.slow
async def test_repeating_the_salvage_changes_nothing(polled_scenario: Scenario) -> None:
    await resolve_until_failure(polled_scenario, RecordedTurn("Fix.", FIX))
    commit, comments = polled_scenario.repo.bare.branch_sha(BRANCH), polled_scenario.comments
    settings = composition_root.read_settings({}, polled_scenario.environment, None, None)
    async with (
        composition_root.build_run_dependencies(settings, notify=print) as dependencies,
        composition_root.open_forge(settings) as github,
    ):
        why = "The account behind PATCHWRIGHT_MODEL_API_KEY has no credit: Your account has no credit left."
        error = QuotaExceeded(why)
        await report_failure(
            MaskingForge(github, dependencies.secrets.mask), polled_scenario.job(), error, dependencies
        )
    assert (polled_scenario.repo.bare.branch_sha(BRANCH), polled_scenario.comments) == (commit, comments)


@pytest.mark.slow
async def test_a_stopped_run_saves_its_work_and_explains_how_to_resume(polled_scenario: Scenario) -> None:
    scenario = polled_scenario

    async def stop(turn: int, body: dict[str, Any]) -> None:
        if turn == 1:
            assert await at_work.queue.cancel(scenario.job().id)
            await asyncio.sleep(30)  # the model does not reply; nobody waits for it

    await use_ordered_model(
        scenario, RecordedTurn("Fix.", FIX), RecordedTurn("Never.", DONE), on_request=stop
    )
    async with service(scenario) as at_work:
        await at_work.queue.put(scenario.job())
        async with asyncio.timeout(120):
            while not any("The operator stopped this run." in each for each in scenario.comments):
                await asyncio.sleep(0.05)
        record = await at_work.queue.get_record(scenario.job().id)
        assert record is not None and record.result == Stopped()
    (comment,) = scenario.comments
    assert comment.startswith("I had to stop before I finished. The operator stopped this run.")
    assert scenario.repo.read(BRANCH, "calc.py") == CODE.replace("a - b", "a + b")


class UnreliableEngine:
    """An engine that can be made unavailable."""

    is_unavailable = False

    def __init__(self, own: Sandboxes) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    @asynccontextmanager
    async def open(self, name: str, **how: Any) -> AsyncIterator[Sandbox]:
        if self.is_unavailable:
            raise EngineUnavailable("The Docker engine does not answer.")
        async with self._own.open(name, **how) as sandbox:
            yield sandbox


@pytest.mark.slow
async def test_an_engine_lost_before_verification_leaves_the_finished_work(polled_scenario: Scenario) -> None:
    scenario = polled_scenario
    engines: list[UnreliableEngine] = []

    def unreliable(own: Sandboxes) -> Sandboxes:
        engines.append(UnreliableEngine(own))
        return engines[-1]

    def leave(turn: int, body: dict[str, Any]) -> None:
        engines[0].is_unavailable = turn >= len(FIX_TURNS) - 1

    await use_ordered_model(scenario, *FIX_TURNS, on_request=leave)
    async with service(scenario, unreliable) as at_work:
        assert isinstance(await at_work.done(scenario.job()), Failed)
    (replies,) = scenario.comments
    assert "The Docker engine does not answer." in replies
    assert "2 files) is on the branch `patchwright/issue-1-after-4-steps`. It was not tested." in replies
    request_count = len(scenario.endpoint.requests)
    on = await comment(scenario, "@agent resume")
    async with service(scenario) as at_work:
        outcome = await at_work.done(on)
    assert isinstance(outcome, Published) and outcome.verdict.kind == "fixed"
    assert len(scenario.endpoint.requests) == request_count, "the agent had nothing more to do"


@pytest.mark.slow
async def test_forbidden_files_are_not_on_the_branch_and_the_comment_says_so(
    polled_scenario: Scenario,
) -> None:
    workflow = CreateFile(path=".github/workflows/ci.yml", content="on: push\n")
    comment = await resolve_until_failure(polled_scenario, RecordedTurn("Fix.", FIX, workflow))
    assert (
        "Not on the branch:\n- Only maintainers may change .github/workflows/ci.yml, because this file runs in CI.\n"
        in comment
    )
    assert polled_scenario.repo.bare.diff("main", BRANCH, "--name-only").split() == ["calc.py"]


@pytest.mark.slow
async def test_a_work_tree_that_contains_a_secret_is_not_pushed_and_the_comment_says_so(
    polled_scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORY_API_KEY", "sk-story-4711-and-more")
    reversed_key = CreateFile(path="notes.txt", content="sk-story-4711-and-more"[::-1])
    comment = await resolve_until_failure(polled_scenario, RecordedTurn("Fix.", FIX, reversed_key))
    assert "The work was not pushed to a branch: notes.txt contains a secret of this installation." in comment
    assert polled_scenario.repo.branches == ("main",)


@pytest.mark.slow
async def test_if_no_branch_can_be_pushed_the_comment_contains_the_patch(polled_scenario: Scenario) -> None:
    polled_scenario.repo.protect("*", "Only people push here.")
    comment = await resolve_until_failure(polled_scenario, RecordedTurn("Fix.", FIX))
    assert (
        "The work could not be pushed to a branch:" in comment and "is in the run's log and here:" in comment
    )
    assert "+    return a + b\n" in comment and "comment `@agent resume`" in comment
    assert polled_scenario.repo.branches == ("main",)


@pytest.mark.slow
async def test_a_failed_branch_does_not_prevent_the_comment(polled_scenario: Scenario) -> None:
    scenario = polled_scenario
    left = [NO_CREDIT]

    def refuse(turn: int, body: dict[str, Any]) -> None:
        if turn == 1 and left:
            endpoint.add_faults(left.pop())
            scenario.fake_github.fail_next_request("GET", "/repos/acme/calc", status=403)

    endpoint = await use_ordered_model(
        scenario, RecordedTurn("Fix.", FIX), RecordedTurn("Done.", DONE), on_request=refuse
    )
    async with service(scenario) as at_work:
        assert isinstance(await at_work.done(scenario.job()), Failed)
    (comment,) = scenario.comments
    assert "The work could not be pushed to a branch:" in comment and "is in the run's log." in comment
    assert "comment `@agent resume`" in comment


@pytest.mark.slow
async def test_after_a_limit_without_a_patch_resume_starts_with_new_limits(polled_scenario: Scenario) -> None:
    scenario = polled_scenario
    scenario.environment["PATCHWRIGHT_MAX_STEPS"] = "2"
    look = RunShell(command="cat calc.py")
    await use_ordered_model(
        scenario, RecordedTurn("Look.", look), RecordedTurn("Look.", RunShell(command="ls"))
    )
    async with service(scenario) as at_work:
        assert isinstance(await at_work.done(scenario.job()), Reported)
    (replies,) = scenario.comments
    assert "The step limit of 2 is reached." in replies and "`@agent resume`" in replies
    await use_ordered_model(scenario, RecordedTurn("Fix.", FIX), RecordedTurn("Test it.", NEW_TEST))
    async with service(scenario) as at_work:
        outcome = await at_work.done(await comment(scenario, "@agent resume"))
    assert isinstance(outcome, Published) and outcome.verdict.kind == "fixed"
    assert scenario.trajectory(scenario.job().id).usage().steps == 4


@pytest.mark.slow
async def test_a_canceled_workflow_saves_its_work_before_its_machine_ends(polled_scenario: Scenario) -> None:
    scenario = polled_scenario
    thinking = asyncio.Event()

    async def think(turn: int, body: dict[str, Any]) -> None:
        if turn == 1:
            thinking.set()
            await asyncio.sleep(60)

    await use_ordered_model(
        scenario, RecordedTurn("Fix.", FIX), RecordedTurn("Never.", DONE), on_request=think
    )
    delivery = await scenario.fake_github.add_label(scenario.issue, "fix-me", by="maintainer")
    process = await scenario.cli("action", environment=scenario.event(delivery))
    async with asyncio.timeout(120):
        await thinking.wait()
    process.send_signal(signal.SIGINT)  # as the runner does
    async with asyncio.timeout(30):
        await process.communicate()
    assert scenario.repo.read(BRANCH, "calc.py") == CODE.replace("a - b", "a + b")
    (comment,) = scenario.comments
    assert "The workflow was canceled." in comment
    assert "I cannot resume this run, because a later workflow run cannot read its log." in comment
    assert "stopped" in (scenario.data / "output").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["a signal", pytest.param("an error", marks=pytest.mark.slow)])
async def test_on_the_command_line_the_partial_patch_is_written_to_the_requested_file(
    scenario: Scenario, tmp_path: Path, stop: str
) -> None:
    made = Repository(tmp_path / "calc")
    made.commit({"calc.py": CODE})
    issue, fix = tmp_path / "issue.md", tmp_path / "fix.diff"
    issue.write_text("add() subtracts\n")
    thinking = asyncio.Event()

    async def think(turn: int, body: dict[str, Any]) -> None:
        if turn == 1 and stop == "an error":
            endpoint.add_faults(NO_CREDIT)
        elif turn == 1:
            thinking.set()
            await asyncio.sleep(60)

    endpoint = await use_ordered_model(
        scenario, RecordedTurn("Fix.", FIX), RecordedTurn("Never.", DONE), on_request=think
    )
    start = ("resolve", "--repo", str(made.path), "--issue", str(issue), "--out", str(fix))
    process = await scenario.cli(*start, "--json")
    async with asyncio.timeout(120):
        if stop == "a signal":
            await thinking.wait()
            process.send_signal(signal.SIGINT)
        out, error = await process.communicate()
    (run,) = scenario.runs
    assert "+    return a + b" in fix.read_text()
    assert f"The changes so far are in {fix}; they were not tested." in error.decode()
    assert f"patchwright resolve --continue {run} --out {fix}\n" in error.decode()
    if stop == "a signal":
        interrupted = {"outcome": "interrupted", "exit_code": 130, "run": run, "patch_file": str(fix)}
        assert json.loads(out) == interrupted
