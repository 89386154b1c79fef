"""A server with a fake GitHub for the tests of `patchwright doctor`, and helpers that run its checks."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patchwright.bot.doctor import github_checks
from patchwright.bot.doctor.runner import CheckResult, CheckState, DoctorCheck, run_checks
from patchwright.bot.errors import QueueDown
from patchwright.bot.setup.app_api import APP_PERMISSIONS, SUBSCRIBED_EVENTS
from patchwright.bot.webhooks.receiver import Receiver
from patchwright.demo.github import FakeGitHub, GitHubApp, Repository
from patchwright.demo.github.state import Label
from patchwright.demo.loopback_server import LoopbackServer
from patchwright.resolver.settings.settings import Settings

SECRET = "secret-of-a-webhook"


async def run_all(checks: Sequence[DoctorCheck]) -> list[CheckResult]:
    return [result async for result in run_checks(checks)]


async def find_result(checks: Sequence[DoctorCheck], name: str, state: CheckState) -> CheckResult:
    """Returns the result with this name and state."""
    results = await run_all(checks)
    chosen = [result for result in results if (result.name, result.state) == (name, state)]
    assert chosen, results
    return chosen[0]


def states(results: Sequence[CheckResult]) -> set[str]:
    return {result.state for result in results}


class UnavailableInbox:
    """An inbox whose Redis does not respond."""

    async def put(self, guid: str, event: str, body: bytes) -> None:
        raise QueueDown("Redis does not answer")


@dataclass
class ServerUnderTest:
    """A server with a fake GitHub, and the settings for doctor."""

    fake_github: FakeGitHub
    app: GitHubApp
    repo: Repository
    settings: dict[str, Any] = field(default_factory=dict)

    def checks(self, **other: Any) -> list[DoctorCheck]:
        settings = Settings(**{**self.settings, **other})
        return github_checks.build_checks(settings, self.app.private_key_pem)


@asynccontextmanager
async def server_under_test(
    data: Path, path: str = "/webhook", secret: str = SECRET
) -> AsyncIterator[ServerUnderTest]:
    """Starts a server; it is healthy unless GitHub sends to another path or signs with another secret."""
    receiver = Receiver(UnavailableInbox(), SECRET)

    async def healthz() -> tuple[int, str, bytes]:
        return 200, "application/json", b"{}"

    receiver.endpoints = {"/healthz": healthz}
    served = LoopbackServer(receiver)
    await served.start()
    try:
        async with FakeGitHub() as fake_github:
            repo = fake_github.create_repository("acme/calc", {"a": "b"}, permissions={"maintainer": "write"})
            repo.labels["fix-me"] = Label(1, "fix-me")
            app = fake_github.create_app(permissions=APP_PERMISSIONS)
            app.events = sorted(SUBSCRIBED_EVENTS)
            fake_github.install_app(app, repo)
            hook = fake_github.add_webhook(served.url + path, secret)
            await fake_github.send_delivery(
                hook, "ping", "", b'{"zen": "Keep it logically awesome."}', guid="first"
            )
            yield ServerUnderTest(
                fake_github, app, repo,
                {
                    "data": data, "app_id": str(app.id), "webhook_secret": SECRET, "public_url": served.url,
                    "github_server_url": fake_github.server_url,
                },
            )  # fmt: skip
    finally:
        await served.stop()
