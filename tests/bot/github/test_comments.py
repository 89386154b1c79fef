"""One comment per tag, even if two processes create it at the same time."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from patchwright.bot.github.auth import RequestPolicy, TokenAuth
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.shared_write_limiter import SharedWriteLimiter
from patchwright.bot.write_limiter import LocalWriteLimiter, Priority
from patchwright.demo.github import FakeGitHub
from patchwright.resolver.domain import Repo

pytestmark = pytest.mark.redis

ROUNDS = 6
COMMENTER = """
import asyncio, sys
from pydantic import SecretStr
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.redis.shared_write_limiter import SharedWriteLimiter
from patchwright.bot.github.auth import GitHubServer, RequestPolicy, TokenAuth
from patchwright.resolver.domain import Repo

async def main(redis, server, token, rounds):
    limiter = SharedWriteLimiter(redis)
    urls = GitHubServer(github_server_url=server)
    auth, policy = TokenAuth(SecretStr(token)), RequestPolicy(write_interval=0)
    async with GitHubForge(auth, urls, policy=policy, write_limiter=limiter) as forge:
        await forge.get_bot_user(Repo(owner="acme", name="sample"))
        for number in range(int(rounds)):
            print("ready", flush=True)
            sys.stdin.readline()
            await forge.upsert_comment(Repo(owner="acme", name="sample"), 1, f"tag-{number}", "Here I am.")
    print("done", flush=True)
    await limiter.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
async def test_two_processes_create_one_comment_per_tag(short_tmp: Path) -> None:
    async with FakeGitHub() as fake_github, run_embedded_redis(short_tmp) as redis:
        repo = fake_github.create_repository(
            "acme/sample", {"a.py": "x = 1\n"}, permissions={"patchwright": "write"}
        )
        issue = fake_github.create_issue(repo, title="a is wrong", body="It is.", by="reporter")
        addresses = (redis, fake_github.server_url)
        arguments = (*addresses, fake_github.create_token("patchwright"), str(ROUNDS))
        processes = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", COMMENTER, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for _ in range(2)
        ]
        async with asyncio.timeout(60):
            for _ in range(ROUNDS):
                for each in processes:
                    assert each.stdout and await each.stdout.readline() == b"ready\n"
                for each in processes:
                    assert each.stdin
                    each.stdin.write(b"\n")
            assert [await each.wait() for each in processes] == [0, 0]
    assert len(issue.comments) == ROUNDS


async def test_the_lock_of_a_dead_process_expires(short_tmp: Path) -> None:
    async with run_embedded_redis(short_tmp) as url:
        limiter, redis = SharedWriteLimiter(url), redis_client(url)
        await redis.set("patchwright:lock:there", "somebody who is gone", px=60_000)
        async with asyncio.timeout(20), limiter.lock("elsewhere"):
            pass
        started_at = time.monotonic()
        await redis.set("patchwright:lock:there", "somebody who is gone", px=500)
        async with limiter.lock("there"):
            assert time.monotonic() - started_at >= 0.45
            await redis.set("patchwright:lock:there", "somebody else, since we took too long")
        assert await redis.get("patchwright:lock:there")
        await redis.aclose()
        await limiter.close()


async def test_locks_are_skipped_without_redis(tmp_path: Path) -> None:
    limiter = SharedWriteLimiter(f"unix://{tmp_path}/nothing")
    async with asyncio.timeout(20), limiter.lock("there"):
        pass
    await limiter.close()


class RecordingLimiter(LocalWriteLimiter):
    """Records the priority of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.priorities: list[Priority] = []

    async def try_acquire(self, credential: str, ticket: str, priority: Priority, interval: float) -> float:
        self.priorities.append(priority)
        return await super().try_acquire(credential, ticket, priority, interval)


async def test_the_first_comment_in_a_thread_has_priority() -> None:
    limiter = RecordingLimiter()
    async with FakeGitHub() as fake_github:
        repo = fake_github.create_repository(
            "acme/sample", {"a.py": "x = 1\n"}, permissions={"patchwright": "write"}
        )
        issue = fake_github.create_issue(repo, title="a is wrong", body="It is.", by="reporter")
        access = TokenAuth(SecretStr(fake_github.create_token("patchwright")))
        pace = RequestPolicy(write_interval=0.01)
        async with GitHubForge(
            access,
            fake_github.urls,
            policy=pace,
            write_limiter=limiter,
        ) as forge:
            for text in ("I did not start a run.", "Now I did."):
                await forge.upsert_comment(Repo(owner="acme", name="sample"), issue.number, "tag", text)
    assert list(dict.fromkeys(limiter.priorities)) == [Priority.ACKNOWLEDGMENT, Priority.WORK]
