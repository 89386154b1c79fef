"""An outage of GitHub is logged once when it starts and once when it ends."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from patchwright.bot.github.auth import AppAuth, TokenAuth
from patchwright.bot.jobs import GitHubWait, JobResult, Retry
from patchwright.bot.reconcile.reconciler import Reconciler, ReconcilerConfig
from patchwright.demo.github import Issue
from patchwright.resolver.domain import Job
from tests.bot.dashboard.browsing import UnreliableProxy
from tests.bot.jobs import DONE, job, running_worker
from tests.bot.reconcile.deployments import (
    NO_GRACE,
    SAMPLE,
    Deployment,
    app_auth,
    build_forge,
    open_deployment,
    token_auth,
)

pytestmark = pytest.mark.redis

EVENTS = ("polling github failed", "polling github recovered")


def add_labeled_issue(deployment: Deployment) -> Issue:
    thread = deployment.fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger")
    deployment.fake_github.add_label_silently(thread, "fix-me", by="maintainer")
    return thread


async def wait_until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not done():
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("has_webhook", [False, True])
async def test_an_outage_and_its_end_are_logged_once_each(
    short_tmp: Path, caplog: pytest.LogCaptureFixture, has_webhook: bool
) -> None:
    caplog.set_level(logging.INFO, "patchwright.bot.reconcile.reconciler")

    def records(message: str) -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.getMessage() == message]

    async with (
        open_deployment(short_tmp) as deployment,
        UnreliableProxy(deployment.fake_github.server_url) as proxy,
    ):
        async with build_forge(deployment.fake_github, app_auth(deployment.app), proxy.url) as forge:
            reconciler = replace(deployment, forge=forge).build_reconciler(NO_GRACE, has_webhook=has_webhook)
            running = asyncio.create_task(reconciler.run())
            add_labeled_issue(deployment)
            await wait_until(lambda: "request found" in caplog.messages)
            assert await deployment.lease.fetch_failure() is None
            await proxy.cut()
            await wait_until(lambda: bool(records(EVENTS[0])))
            add_labeled_issue(deployment)
            await asyncio.sleep(1)  # about ten polls
            failure = await deployment.lease.fetch_failure()
            await proxy.restore()
            await wait_until(lambda: len(records("request found")) == 2)
            await wait_until(lambda: bool(records(EVENTS[1])))
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert await deployment.lease.fetch_failure() is None
    assert failure is not None and "no response from GitHub" in failure.reason
    assert [len(records(event)) for event in EVENTS] == [1, 1]
    assert vars(records(EVENTS[0])[0])["retry_seconds"] == 0
    assert "skipped after an error" not in caplog.messages


async def test_jobs_that_wait_for_github_start_as_soon_as_github_responds(short_tmp: Path) -> None:
    has_started = asyncio.Event()

    async def handler(job: Job, tries: int) -> JobResult | Retry:
        known = await deployment.queue.get_record(job.id)
        if known is not None and known.github_wait is not None:
            has_started.set()
            return DONE
        now = datetime.now(UTC)
        wait = GitHubWait(since=now, next_try=now + timedelta(hours=1))
        return Retry(delay_seconds=3600, counts_as_try=False, github_wait=wait)

    async with (
        open_deployment(short_tmp) as deployment,
        UnreliableProxy(deployment.fake_github.server_url) as proxy,
        open_token_reconciler(deployment, proxy) as reconciler,
    ):
        issue = deployment.fake_github.create_issue(deployment.repo, title="T", body="B", by="stranger")
        waiting = job().model_copy(update={"number": issue.number})
        await proxy.cut()
        await deployment.queue.put(waiting)
        async with running_worker(deployment.queue, handler):
            async with asyncio.timeout(10):
                while not (known := await deployment.queue.get_record(waiting.id)) or not known.outage_tries:
                    await asyncio.sleep(0.02)
            await reconciler._run_once()
            await asyncio.sleep(0.5)
            assert not has_started.is_set()  # the control: GitHub is still down
            await proxy.restore()
            async with asyncio.timeout(20):
                while not has_started.is_set():
                    await reconciler._run_once()
                    await asyncio.sleep(0.1)


async def test_one_failing_repository_is_not_an_outage(
    short_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_deployment(short_tmp) as deployment:
        deployment.fake_github.fail_next_request("GET", "/acme/sample/issues", status=502, times=4)
        await deployment.build_reconciler()._run_once()
        assert await deployment.lease.fetch_failure() is None
    assert caplog.messages == ["skipped after an error"]


@asynccontextmanager
async def open_token_reconciler(deployment: Deployment, proxy: UnreliableProxy) -> AsyncIterator[Reconciler]:
    """Yields a reconciler that uses a user's token for the repository."""
    auth = token_auth(deployment.fake_github, "maintainer")
    async with open_reconciler(deployment, proxy, auth) as reconciler:
        yield reconciler


@asynccontextmanager
async def open_reconciler(
    deployment: Deployment, proxy: UnreliableProxy, auth: AppAuth | TokenAuth
) -> AsyncIterator[Reconciler]:
    """Yields a reconciler that polls once, and then only asks for redeliveries."""
    config = ReconcilerConfig(replace(NO_GRACE, poll_interval=1e6), (SAMPLE,))
    async with build_forge(deployment.fake_github, auth, proxy.url) as forge:
        yield Reconciler(
            *(forge, deployment.lease, deployment.handler, "one", config), deployment.fake_github.now
        )


async def test_failing_webhook_requests_reveal_an_outage_between_polls(short_tmp: Path) -> None:
    async with (
        open_deployment(short_tmp) as deployment,
        UnreliableProxy(deployment.fake_github.server_url) as proxy,
        open_reconciler(deployment, proxy, app_auth(deployment.app)) as reconciler,
    ):
        await deployment.fake_github.add_label(
            add_labeled_issue(deployment), "bug", by="maintainer"
        )  # its delivery fails
        await reconciler._run_once()
        assert await deployment.lease.fetch_failure() is None
        await proxy.cut()
        await reconciler._run_once()
        assert await deployment.lease.fetch_failure() is not None


async def test_an_outage_at_startup_is_recorded(short_tmp: Path) -> None:
    async with (
        open_deployment(short_tmp) as deployment,
        UnreliableProxy(deployment.fake_github.server_url) as proxy,
    ):
        await proxy.cut()
        async with open_token_reconciler(deployment, proxy) as reconciler:
            await reconciler._run_once()
        assert await deployment.lease.fetch_failure() is not None
