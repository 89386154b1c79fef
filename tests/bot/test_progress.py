"""The one status comment: edited now and then, never after the last word; and what is said of a failure."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import SecretStr

from bot.embedded import embedded_redis
from bot.errors import QueueDown, Unanswered
from bot.github.forge import GitHubForge
from bot.github.rest import Pace, TokenAccess
from bot.pacing import OwnLine
from bot.progress import apologize, blamed, commenting
from bot.redis.client import redis_client
from bot.redis.log import SharedLogs, writer_of
from bot.worker import GaveUp, Stopped
from demo.world import Issue, Repository, World
from resolver.domain import Job, Repo, User
from resolver.errors import (
    Forbidden,
    LogTaken,
    ModelBusy,
    ModelRefused,
    QuotaSpent,
    SettingsError,
    WorkspaceError,
)
from resolver.log import FileLogs, Log
from resolver.settings.settings import Settings
from runtime.actions import RunShell
from runtime.errors import EngineUnavailable, SandboxLost
from tests.resolver.seen_runs import RUN, ran, started, step

EVERY = 0.05  # seconds
PATIENCE = 20.0


@dataclass
class Place:
    """A run's log, its thread, and the forge that tells of the one in the other."""

    world: World
    repo: Repository
    issue: Issue
    forge: GitHubForge
    log: Log
    line: OwnLine
    connect: Callable[[], GitHubForge]
    """What another worker has."""
    steps: int = field(default=0)

    @property
    def job(self) -> Job:
        user = User(id=self.world.user("maintainer").id, login="maintainer")
        return Job(id=RUN, repo=Repo(owner="acme", name="calc"), number=self.issue.number, requester=user)

    @property
    def comment(self) -> str:
        (only,) = self.repo.comments(self.issue.number)
        return only.body.partition("\n")[2]

    @property
    def edits(self) -> int:
        return sum(write.method == "PATCH" for write in self.world.writes)

    async def go_on(self) -> None:
        self.steps += 1
        for event in step(f"c{self.steps}", RunShell(command=f"make {self.steps}"), ran("done")):
            await self.log.append(event)

    async def until(self, seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not seen():
                await asyncio.sleep(0.01)

    def reporting(self) -> contextlib.AbstractAsyncContextManager[None]:
        return commenting(self.forge, Settings(data=Path("/nowhere")), EVERY)(self.job, self.log)

    async def end(self, words: str) -> None:
        await self.forge.say(self.job.repo, self.job.number, self.job.id, words)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with World() as world, FileLogs(tmp_path).open(RUN) as log:
        roles = {"patchwright": "write", "maintainer": "write"}
        repo = world.repository("acme/calc", {"calc.py": ""}, permissions=roles)  # type: ignore[arg-type]
        issue = world.issue(repo, title="T", body="B", by="maintainer")
        urls = {"api_url": world.api_url, "graphql_url": world.graphql_url, "server_url": world.server_url}
        pace, line = Pace(between_writes=0.001, first_pause=0.01, timeout=30), OwnLine()
        access = TokenAccess(SecretStr(world.token("patchwright")))

        def connect() -> GitHubForge:
            return GitHubForge(access, **urls, pace=pace, line=line)

        async with connect() as forge:
            await log.append(started())
            yield Place(world, repo, issue, forge, log, line, connect)


async def test_the_comment_is_there_at_once_and_edited_only_when_something_happened(place: Place) -> None:
    async with place.reporting():
        assert place.comment.startswith("I am working on this. This comment will say how it went.")
        await asyncio.sleep(EVERY * 4)
        assert place.edits == 0
        for number in (1, 2):
            await place.go_on()
            await place.until(lambda made=number: place.edits == made)  # type: ignore[misc]
            assert f"So far: {number} step" in place.comment
        await asyncio.sleep(EVERY * 4)
        assert place.edits == 2
        await place.end("The end.")
    assert place.comment == "The end."


@pytest.mark.parametrize("cancelled", [False, True], ids=["at the end", "when it is stopped"])
async def test_an_edit_under_way_never_comes_after_the_last_word(place: Place, cancelled: bool) -> None:
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go.wait(PATIENCE)

    async def run() -> None:
        async with place.reporting():
            place.world.before_next("PATCH", f"/comments/{place.repo.comments(1)[0].id}", hold)
            await place.go_on()
            await place.until(held.is_set)
            if cancelled:
                await asyncio.sleep(60)
            await place.end("The end.")

    task = asyncio.create_task(run())
    await place.until(held.is_set)
    if cancelled:
        task.cancel()
    asyncio.get_running_loop().call_later(0.3, go.set)  # GitHub takes its time
    await asyncio.wait((task,), timeout=PATIENCE)
    if cancelled:
        await place.end("The end.")
    assert place.comment == "The end." and place.edits == 2


async def test_after_the_last_word_nothing_that_happens_is_told(place: Place) -> None:
    async with place.reporting():
        await place.end("The end.")
        await place.go_on()
        await asyncio.sleep(EVERY * 6)
        assert (place.comment, place.edits) == ("The end.", 1)
    async with place.reporting():  # another try: it begins anew
        assert place.comment.startswith("I am working on this.")
        assert "So far: 1 step of" in place.comment


@pytest.mark.redis
async def test_a_worker_that_was_thought_dead_tells_nothing_any_more(place: Place, short_tmp: Path) -> None:
    async with embedded_redis(short_tmp) as url:
        redis = redis_client(url)
        one, other = (SharedLogs(FileLogs(short_tmp / name), url, lease=30) for name in ("one", "other"))
        async with one.open(RUN) as place.log:
            await place.log.append(started())
            async with place.reporting():
                await redis.delete(writer_of(RUN))
                async with other.open(RUN), place.connect() as forge:
                    await forge.say(place.job.repo, place.job.number, RUN, "The end.")
                    with pytest.raises(LogTaken):  # the step that it was at stays in its own file
                        await place.go_on()
                    assert place.log.trajectory.decisions()
                    await asyncio.sleep(EVERY * 6)
        assert (place.comment, place.edits) == ("The end.", 1)
        for store in (one, other):
            await store.close()
        await redis.aclose()


async def test_what_is_left_out_while_others_write_is_told_later(place: Place) -> None:
    async with place.reporting():
        (whose,) = place.line._free
        await place.line.claim(whose, "other", 1, 0.5)  # type: ignore[arg-type]
        await place.line.hold(whose, 0.5)
        await place.go_on()
        await asyncio.sleep(EVERY * 3)
        assert place.edits == 0
        await place.until(lambda: place.edits == 1)
        assert "So far: 1 step of" in place.comment


FAILURES = [
    (ModelBusy("too many requests"), "The model's provider failed, not the work. Another try makes sense in a while."),
    (QuotaSpent("no credit"), "The model's provider does not let me go on. Another try will end like this one until"),
    (Unanswered("502"), "GitHub failed, not the work. Another try makes sense in a while."),
    (Forbidden("no"), "GitHub does not let me do this. Another try will end like this one until somebody mends it."),
    (WorkspaceError("x"), "The repository could not be read or written as it was needed. Another try will end"),
    (SettingsError("x"), "My settings are wrong. Another try will end like this one until somebody mends it."),
    (EngineUnavailable("x"), "The engine that runs my sandboxes failed, not the work. Another try will end"),
    (SandboxLost("x"), "My sandbox broke, not the work. Another try makes sense in a while."),
    (QueueDown("x"), "My own store failed, not the work. Another try makes sense in a while."),
    (GaveUp("x"), "That is a fault of mine. Another try will end like this one until somebody mends it."),
    (ZeroDivisionError("x"), "That is a fault of mine. Another try will end like this one until somebody mends it."),
]  # fmt: skip


@pytest.mark.parametrize(("error", "words"), FAILURES, ids=lambda value: type(value).__name__)
def test_whose_failure_it_is_and_whether_to_try_again_is_said_in_a_breath(
    error: Exception, words: str
) -> None:
    assert blamed(error).startswith(words)
    assert blamed(error).count("\n") == 0


async def test_a_failure_ends_the_comment_and_a_stop_is_none(place: Place) -> None:
    await apologize(place.forge, place.job, ModelRefused("The key is refused."))
    assert place.comment == (
        "I had to stop before I could finish. The key is refused. The model's provider does not let me go on. "
        "Another try will end like this one until somebody mends it.\n\n"
        f"Nothing was proposed. An operator can find the log under the run `{RUN}`.\n"
    )
    await apologize(place.forge, place.job, Stopped("Somebody stopped me."))
    assert place.comment.startswith("I had to stop before I could finish. Somebody stopped me.\n")
