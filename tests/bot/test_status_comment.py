"""The status comment is edited from time to time but never after the final text; failures are explained."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import SecretStr

from patchwright.bot.errors import ForgeUnavailable, QueueDown
from patchwright.bot.github.auth import RequestPolicy, TokenAuth
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.job_runner import JobAbandoned, JobCanceled
from patchwright.bot.jobs import OPERATOR_REQUEST, cancel_handler
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.shared_run_log import SharedLogStore, writer_key
from patchwright.bot.status_comment import (
    comment_reporter,
    failure_text,
    fault_text,
    report_failure,
)
from patchwright.bot.write_limiter import LocalWriteLimiter
from patchwright.demo.github import FakeGitHub, Issue, Repository
from patchwright.resolver.domain import Job, Repo, User
from patchwright.resolver.errors import (
    Forbidden,
    LogLocked,
    ModelAccessDenied,
    ModelBusy,
    ModelConnectionFailed,
    ModelUnreachable,
    QuotaExceeded,
    SettingsError,
    WorkspaceError,
)
from patchwright.resolver.pipeline.resumption import replace_stopped_comment
from patchwright.resolver.run_log import FileLogStore, RunLog
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.actions import RunShell
from patchwright.runtime.errors import EngineUnavailable, ImageUnavailable, SandboxLost
from tests.resolver.sample_runs import RUN, shell_result, started, step

EVERY = 0.05
PATIENCE = 20.0


@dataclass
class CommentScenario:
    """The log of a run, its thread, and a reporter that connects them."""

    fake_github: FakeGitHub
    repo: Repository
    issue: Issue
    forge: GitHubForge
    log: RunLog
    line: LocalWriteLimiter
    connect: Callable[[], GitHubForge]
    """Opens the forge of another worker."""
    steps: int = field(default=0)

    @property
    def job(self) -> Job:
        user = User(id=self.fake_github.user("maintainer").id, login="maintainer")
        return Job(id=RUN, repo=Repo(owner="acme", name="calc"), number=self.issue.number, requester=user)

    @property
    def comment(self) -> str:
        (only,) = self.repo.comments(self.issue.number)
        return only.body.partition("\n")[2]

    @property
    def edits(self) -> int:
        return sum(write.method == "PATCH" for write in self.fake_github.writes)

    async def go_on(self) -> None:
        self.steps += 1
        for event in step(f"c{self.steps}", RunShell(command=f"make {self.steps}"), shell_result("done")):
            await self.log.append(event)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.01)

    def reporting(self) -> contextlib.AbstractAsyncContextManager[None]:
        return comment_reporter(self.forge, Settings(data=Path("/nowhere")), EVERY)(self.job, self.log)

    async def end(self, words: str) -> None:
        await self.forge.upsert_comment(self.job.repo, self.job.number, self.job.id, words)


@pytest.fixture
async def scenario(tmp_path: Path) -> AsyncIterator[CommentScenario]:
    async with FakeGitHub() as fake_github, FileLogStore(tmp_path).open(RUN) as log:
        roles = {"patchwright": "write", "maintainer": "write"}
        repo = fake_github.create_repository("acme/calc", {"calc.py": ""}, permissions=roles)  # type: ignore[arg-type]
        issue = fake_github.create_issue(repo, title="T", body="B", by="maintainer")
        urls = fake_github.urls
        pace, line = (
            RequestPolicy(write_interval=0.001, initial_backoff=0.01, timeout=30),
            LocalWriteLimiter(),
        )
        access = TokenAuth(SecretStr(fake_github.create_token("patchwright")))

        def connect() -> GitHubForge:
            return GitHubForge(access, urls, policy=pace, write_limiter=line)

        async with connect() as forge:
            await log.append(started())
            yield CommentScenario(fake_github, repo, issue, forge, log, line, connect)


async def test_the_status_comment_is_posted_at_once_and_edited_only_after_events(
    scenario: CommentScenario,
) -> None:
    async with scenario.reporting():
        assert scenario.comment.startswith("I am working on this. I will post the result in this comment.")
        await asyncio.sleep(EVERY * 4)
        assert scenario.edits == 0
        for number in (1, 2):
            await scenario.go_on()
            await scenario.until(lambda made=number: scenario.edits == made)  # type: ignore[misc]
            assert f"So far: {number} step" in scenario.comment
        await asyncio.sleep(EVERY * 4)
        assert scenario.edits == 2
        await scenario.end("The end.")
    assert scenario.comment == "The end."


@pytest.mark.parametrize("cancelled", [False, True], ids=["at the end", "when it is stopped"])
async def test_no_edit_in_progress_overwrites_the_final_text(
    scenario: CommentScenario, cancelled: bool
) -> None:
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go.wait(PATIENCE)

    async def run() -> None:
        async with scenario.reporting():
            scenario.fake_github.before_next_request(
                "PATCH", f"/comments/{scenario.repo.comments(1)[0].id}", hold
            )
            await scenario.go_on()
            await scenario.until(held.is_set)
            if cancelled:
                await asyncio.sleep(60)
            await scenario.end("The end.")

    task = asyncio.create_task(run())
    await scenario.until(held.is_set)
    if cancelled:
        cancel_handler(task, OPERATOR_REQUEST)
    asyncio.get_running_loop().call_later(0.3, go.set)  # GitHub responds slowly.
    await asyncio.wait((task,), timeout=PATIENCE)
    if cancelled:
        await scenario.end("The end.")
    assert scenario.comment == "The end." and scenario.edits == 2


@pytest.mark.parametrize(("is_shutdown", "edits"), [(True, 1), (False, 0)])
async def test_a_run_that_stops_with_its_server_is_shown_as_paused(
    scenario: CommentScenario, is_shutdown: bool, edits: int
) -> None:
    running = asyncio.Event()

    async def run() -> None:
        async with scenario.reporting():
            running.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await running.wait()
    if is_shutdown:
        task.cancel()
    else:
        cancel_handler(task, OPERATOR_REQUEST)
    await asyncio.wait((task,), timeout=PATIENCE)
    paused = "**Now:** paused, because the server is stopping. I continue when it has started again.\n"
    assert (task.cancelled(), scenario.edits, paused in scenario.comment) == (True, edits, is_shutdown)
    async with scenario.reporting():
        assert "paused" not in scenario.comment


async def test_no_event_after_the_final_text_is_reported(scenario: CommentScenario) -> None:
    async with scenario.reporting():
        await scenario.end("The end.")
        await scenario.go_on()
        await asyncio.sleep(EVERY * 6)
        assert (scenario.comment, scenario.edits) == ("The end.", 1)
    async with scenario.reporting():  # Another try, which starts over.
        assert scenario.comment.startswith("I am working on this.")
        assert "So far: 1 step ·" in scenario.comment


@pytest.mark.redis
async def test_a_worker_presumed_dead_reports_nothing(scenario: CommentScenario, short_tmp: Path) -> None:
    async with run_embedded_redis(short_tmp) as url:
        redis = redis_client(url)
        one, other = (
            SharedLogStore(FileLogStore(short_tmp / name), url, lease_seconds=30) for name in ("one", "other")
        )
        async with one.open(RUN) as scenario.log:
            await scenario.log.append(started())
            async with scenario.reporting():
                await redis.delete(writer_key(RUN))
                async with other.open(RUN), scenario.connect() as forge:
                    await forge.upsert_comment(scenario.job.repo, scenario.job.number, RUN, "The end.")
                    with pytest.raises(LogLocked):  # The event of this step stays in the worker's own file.
                        await scenario.go_on()
                    assert scenario.log.trajectory.replies()
                    await asyncio.sleep(EVERY * 6)
        assert (scenario.comment, scenario.edits) == ("The end.", 1)
        for store in (one, other):
            await store.close()
        await redis.aclose()


async def test_a_preempted_edit_is_made_later(scenario: CommentScenario) -> None:
    async with scenario.reporting():
        (whose,) = scenario.line._next_write
        await scenario.line.try_acquire(whose, "other", 1, 0.5)  # type: ignore[arg-type]
        await scenario.line.block(whose, 0.5)
        await scenario.go_on()
        await asyncio.sleep(EVERY * 3)
        assert scenario.edits == 0
        await scenario.until(lambda: scenario.edits == 1)
        assert "So far: 1 step ·" in scenario.comment


FAILURES = [
    (ModelBusy("too many requests"), "The model provider failed. Try again later."),
    (QuotaExceeded("no credit"), "The model provider rejects the request. A new attempt will fail"),
    (ModelUnreachable("no such host"), "The connection to the model provider failed. A new attempt will fail"),
    (ModelConnectionFailed("refused"), "The connection to the model provider failed. Try again later."),
    (ForgeUnavailable("502"), "GitHub failed. Try again later."),
    (Forbidden("no"), ("GitHub rejected the request. A new attempt will fail until someone fixes the "
                       "cause.")),
    (WorkspaceError("x"), "The repository could not be read or written. A new attempt will fail"),
    (SettingsError("x"), "This is a setting of the server: its operator has to correct it. Then repeat the request."),
    (EngineUnavailable("x"), "The container engine for my sandboxes failed. A new attempt will fail"),
    (ImageUnavailable("x"), "The image of my sandboxes cannot be used. A new attempt will fail"),
    (SandboxLost("x"), "My sandbox failed. Try again later."),
    (QueueDown("x"), "My data store failed. Try again later."),
    (JobAbandoned("x"), ("This is a bug in Patchwright. A new attempt will fail until someone fixes the "
                         "cause.")),
    (ZeroDivisionError("x"), ("This is a bug in Patchwright. A new attempt will fail until someone fixes "
                              "the cause.")),
]  # fmt: skip


@pytest.mark.parametrize(("error", "words"), FAILURES, ids=lambda value: type(value).__name__)
def test_a_failure_names_who_is_responsible_and_whether_to_retry(error: Exception, words: str) -> None:
    assert fault_text(error).startswith(words)
    assert fault_text(error).count("\n") == 0


async def test_a_failure_ends_the_status_comment_and_a_cancellation_is_no_failure(
    scenario: CommentScenario,
) -> None:
    await report_failure(scenario.forge, scenario.job, ModelAccessDenied("The key is refused."))
    assert scenario.comment == (
        "**Not done.** The key is refused. The model provider rejects the request. "
        "A new attempt will fail until someone fixes the cause.\n\n"
        f"I proposed no change. An operator can find the log under the run `{RUN}`.\n"
    )
    await report_failure(scenario.forge, scenario.job, JobCanceled("The operator stopped this run."))
    assert scenario.comment.startswith("**Not done.** The operator stopped this run.\n")


def test_a_question_at_the_end_of_an_error_gets_no_full_stop() -> None:
    assert failure_text(SettingsError("Did you mean a/b?")).startswith("Did you mean a/b? This is a")
    assert failure_text(SettingsError("It is wrong.")).startswith("It is wrong. This is a")


def test_wrong_settings_of_a_workflow_are_corrected_in_its_file() -> None:
    assert fault_text(SettingsError("It is wrong."), in_workflow=True) == (
        "This is a setting of the workflow: correct its file or its secrets. Then repeat the request."
    )


async def test_the_comment_of_a_stopped_job_links_the_result_of_the_command_line(
    scenario: CommentScenario,
) -> None:
    job, stopped = scenario.job, "I had to stop before I finished. Comment `@agent resume`."
    for tag in (job.id, "acme-calc-7-resumed"):
        await scenario.forge.upsert_comment(job.repo, job.number, tag, stopped)
    url = "https://github.test/acme/calc/pull/8"
    for resumed_by in (None, job.id, "acme-calc-7-without-a-comment"):
        await replace_stopped_comment(scenario.forge, job, resumed_by, url)
    await replace_stopped_comment(scenario.forge, job, "acme-calc-7-resumed", "")
    assert scenario.edits == 0
    await replace_stopped_comment(scenario.forge, job, "acme-calc-7-resumed", url)
    texts = [one.body.partition("\n")[2].strip() for one in scenario.repo.comments(scenario.issue.number)]
    assert texts == [
        stopped,
        f"This run was stopped, and then continued. Here is [its result]({url}).",
    ]
