"""One `patchwright serve` process with many repositories, so that many conversations need only one server start."""

import asyncio
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from patchwright.demo.api_formats import ApiFormat
from patchwright.demo.github import (
    Comment,
    Delivery,
    FakeGitHub,
    FakePullRequest,
    GitHubApp,
    Installation,
    Issue,
    Repository,
)
from patchwright.demo.recorded_model import ModelFault, RecordedModel, RecordedTurn
from patchwright.runtime.actions import RunShell
from tests.end_to_end.conftest import CODE, FIX_TURNS, KEY, TESTS, server_environment
from tests.preloaded_command import preloaded_command

SECRET = "story-webhook-secret"
TAG_PREFIX = "<!-- patchwright:"
MAX_WAIT_SECONDS = 120.0  # for any wait
ROLES: Mapping[str, Any] = {
    "maintainer": "write",
    "colleague": "write",
    "triager": "triage",
    "member": "read",
}
"""The access that each user has in a repository. Other users have public access only."""


class PerIssueModel(RecordedModel):
    """A model with a script per issue, identified by the title in the prompt. It fixes all other issues."""

    def __init__(self) -> None:
        super().__init__(FIX_TURNS, key=KEY)
        self.scripts: dict[str, Sequence[RecordedTurn]] = {}

    async def _complete(self, request: dict[str, Any], api_format: ApiFormat) -> ModelFault:
        text = str(api_format.parse_messages(request))
        named = max((title for title in self.scripts if title in text), key=len, default="")
        self._turns = tuple(self.scripts.get(named, FIX_TURNS))
        return await super()._complete(request, api_format)

    def count_requests(self, title: str) -> int:
        """Returns the number of requests about this issue."""
        return sum(title in str(request["messages"]) for request in self.requests)


@dataclass
class ServerScenario:
    """A fake GitHub with one App, a server, a model, and one repository per conversation."""

    fake_github: FakeGitHub
    app: GitHubApp
    data: Path
    model: PerIssueModel
    environment: dict[str, str]
    base_url: str = ""
    """The base URL of the server."""
    installations: dict[str, Installation] = field(default_factory=dict)
    """The App's installations by the name passed to `repository`."""
    repositories: list[Repository] = field(default_factory=list)
    accepted_deliveries: list[Delivery] = field(default_factory=list)
    """The deliveries that `redeliver_all` sends again."""

    def repository(
        self, name: str, files: Mapping[str, str | bytes] | None = None, *, private: bool = False
    ) -> Repository:
        """Creates acme/NAME or OWNER/NAME with the App installed. By default add() subtracts, and one test passes."""
        files = {"calc.py": CODE, "tests/test_calc.py": TESTS} if files is None else files
        full = name if "/" in name else f"acme/{name}"
        made = self.fake_github.create_repository(full, files or None, permissions=ROLES, private=private)
        self.installations[name] = self.fake_github.install_app(self.app, made)
        self.repositories.append(made)
        return made

    def issue(self, name: str, by: str = "reporter", **how: Any) -> Issue:
        """Creates a repository with this name and its only issue."""
        repo = self.repository(name, **how)
        return self.fake_github.create_issue(repo, title=issue_title(name), body="It should add.", by=by)

    def block_run(self, name: str, turns: Sequence[RecordedTurn] = FIX_TURNS, *, after: int = 1) -> None:
        """Makes the run on that issue wait after this number of turns until `unblock_run`."""
        wait = RunShell(command=f"until [ -e {self.data}/{name} ]; do sleep 0.1; done", timeout=590)
        self.model.scripts[issue_title(name)] = (*turns[:after], RecordedTurn("Wait.", wait), *turns[after:])

    def unblock_run(self, name: str) -> None:
        (self.data / name).touch()

    async def wait_for_requests(self, name: str, requests: int = 2) -> None:
        """Waits until the model received this number of requests about that issue."""
        await wait_until(lambda: self.model.count_requests(issue_title(name)) >= requests)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Runs `patchwright serve` as a process that receives all webhooks. `redeliver_all` sends earlier ones."""
        with (self.data / "server.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *preloaded_command(), "serve", "--port", "0",
                env=self.environment | {"PATCHWRIGHT_MODEL_BASE_URL": self.model.base_url},
                cwd=self.data, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        assert process.stdout is not None
        try:
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                line = (await process.stdout.readline()).decode()
            assert line.startswith("patchwright is listening on "), self.log
            webhook = line.split()[-1]
            self.base_url = webhook.removesuffix("/webhook")
            self.hook = self.fake_github.add_webhook(webhook, SECRET)
            yield
        finally:
            self.accepted_deliveries = [
                one for one in self.fake_github.deliveries if one.status == 202 and not one.redelivery
            ]
            if process.returncode is None:
                process.terminate()
            await process.communicate()

    @property
    def log(self) -> str:
        """The server's log."""
        return (self.data / "server.log").read_text(errors="replace")

    async def wait_until_idle(self) -> None:
        """Waits until no deliveries and no jobs are left."""
        until_then = asyncio.get_running_loop().time() + MAX_WAIT_SECONDS
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            while True:
                metrics = (await client.get(f"{self.base_url}/metrics")).text
                left = re.findall(r"^patchwright_(?:inbox_deliveries|jobs\{.*\}) (?!0\.0$).*", metrics, re.M)
                if "patchwright_inbox_deliveries" in metrics and not left:
                    return
                assert asyncio.get_running_loop().time() < until_then, (metrics, self.log)
                await asyncio.sleep(0.1)

    async def redeliver_all(self) -> None:
        """Redelivers every accepted delivery and waits until they are processed."""
        deliveries = {
            one.guid: one
            for one in (*self.accepted_deliveries, *self.fake_github.deliveries)
            if one.status == 202
        }
        for one in deliveries.values():
            await self.fake_github.redeliver(replace(one, hook=self.hook))
        await self.wait_until_idle()


@asynccontextmanager
async def open_server_scenario(**settings: object) -> AsyncIterator[ServerScenario]:
    """Opens a scenario in its own directory. `settings` extend the usual settings of the server."""
    async with AsyncExitStack() as stack:
        data = Path(
            tempfile.mkdtemp(prefix="pw-", dir="/tmp")
        )  # short, because the path of a Unix socket in it is limited
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        fake_github = await stack.enter_async_context(FakeGitHub())
        app, model = fake_github.create_app(), await stack.enter_async_context(PerIssueModel())
        more = {f"PATCHWRIGHT_{name.upper()}": str(value) for name, value in settings.items()}
        yield ServerScenario(fake_github, app, data, model, server_environment(fake_github, app, data) | more)


async def wait_until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(MAX_WAIT_SECONDS):
        while not holds():
            await asyncio.sleep(0.05)


def issue_title(name: str) -> str:
    """Returns the title of the issue in the repository with this name."""
    return f"add() of {name} subtracts"


# --- what people see ----------------------------------------------------------------------------------------


def timeline(thread: Issue) -> list[str]:
    """Returns everything in a thread, in order. Comments are cut to their first paragraph, without variable parts."""
    return [text for _, text in sorted(_timeline_entries(thread))]


def own_comments(thread: Issue) -> list[str]:
    """Returns the complete comments of the bot in a thread."""
    return [_without_variable_parts(one.body) for one in thread.comments if one.body.startswith(TAG_PREFIX)]


def _timeline_entries(thread: Issue) -> Iterator[tuple[str, str]]:
    for did in thread.events:
        verb = "labels it" if did.event == "labeled" else "takes away"
        yield did.created, f"{did.actor.login} {verb} {did.label.name}"
    for comment in thread.comments:
        yield comment.created, f"{comment.author.login}: {_first_paragraph(comment)}"
    if isinstance(thread, FakePullRequest):
        for review in thread.reviews:
            if review.body:
                yield (
                    review.submitted,
                    f"{review.author.login} reviews: {_without_variable_parts(review.body)}",
                )
        for inline in thread.review_threads:
            for comment in inline.comments:
                yield (
                    comment.created,
                    f"{comment.author.login} at {inline.path}:{inline.line}: {_first_paragraph(comment)}",
                )


def _first_paragraph(comment: Comment) -> str:
    text = "".join(f" [{one.content}]" for one in comment.reactions)
    return _without_variable_parts(comment.body).partition("\n\n")[0] + text


def _without_variable_parts(body: str) -> str:
    text = body.partition("\n")[2] if body.startswith(TAG_PREFIX) else body
    for pattern, instead in (
        (r"\[([^\]]+)\]\([^)]*\)", r"\1"),  # targets of links
        (r"[\d,]+ tokens", "N tokens"),
        (r"\b\d+(\.\d+)? s\b", "N s"),
        (r"\b[0-9a-f]{12}\b", "ID"),
    ):
        text = re.sub(pattern, instead, text)
    return text.strip()
