"""One comment for each tag, although two processes want to say the first word of it at the same moment."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from bot.embedded import embedded_redis
from bot.github.forge import GitHubForge
from bot.github.rest import Pace, TokenAccess
from bot.pacing import OwnLine, Urgency
from bot.redis.client import redis_client
from bot.redis.pacing import SharedLine
from demo.world import World
from resolver.domain import Repo

pytestmark = pytest.mark.redis

ROUNDS = 6
SPEAKER = """
import asyncio, sys
from pydantic import SecretStr
from bot.github.forge import GitHubForge
from bot.redis.pacing import SharedLine
from bot.github.rest import Pace, TokenAccess
from resolver.domain import Repo

async def main(redis, api, graphql, server, token, rounds):
    line = SharedLine(redis)
    urls = {"api_url": api, "graphql_url": graphql, "server_url": server}
    async with GitHubForge(TokenAccess(SecretStr(token)), **urls, pace=Pace(between_writes=0), line=line) as forge:
        await forge.identity(Repo(owner="acme", name="sample"))
        for number in range(int(rounds)):
            print("ready", flush=True)
            sys.stdin.readline()
            await forge.say(Repo(owner="acme", name="sample"), 1, f"tag-{number}", "Here I am.")
    print("done", flush=True)
    await line.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_processes_that_say_the_same_at_once_make_one_comment(short_tmp: Path) -> None:
    async with World() as world, embedded_redis(short_tmp) as redis:
        repo = world.repository("acme/sample", {"a.py": "x = 1\n"}, permissions={"patchwright": "write"})
        issue = world.issue(repo, title="a is wrong", body="It is.", by="reporter")
        where = (redis, world.api_url, world.graphql_url, world.server_url)
        arguments = (*where, world.token("patchwright"), str(ROUNDS))
        speakers = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", SPEAKER, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for _ in range(2)
        ]
        async with asyncio.timeout(60):
            for _ in range(ROUNDS):
                for each in speakers:
                    assert each.stdout and await each.stdout.readline() == b"ready\n"
                for each in speakers:
                    assert each.stdin
                    each.stdin.write(b"\n")
            assert [await each.wait() for each in speakers] == [0, 0]
    assert len(issue.comments) == ROUNDS


async def test_who_died_in_the_middle_is_in_nobodys_way_for_long(short_tmp: Path) -> None:
    async with embedded_redis(short_tmp) as url:
        line, redis = SharedLine(url), redis_client(url)
        await redis.set("patchwright:alone:there", "somebody who is gone", px=60_000)
        async with asyncio.timeout(20), line.alone("elsewhere"):
            pass
        began = time.monotonic()
        await redis.set("patchwright:alone:there", "somebody who is gone", px=500)
        async with line.alone("there"):
            assert time.monotonic() - began >= 0.45
            await redis.set("patchwright:alone:there", "somebody else, since we took too long")
        assert await redis.get("patchwright:alone:there")
        await redis.aclose()
        await line.close()


async def test_without_redis_everybody_speaks(tmp_path: Path) -> None:
    line = SharedLine(f"unix://{tmp_path}/nothing")
    async with asyncio.timeout(20), line.alone("there"):
        pass
    await line.close()


class Heard(OwnLine):
    """Keeps how urgent each write is."""

    def __init__(self) -> None:
        super().__init__()
        self.urgencies: list[Urgency] = []

    async def claim(self, whose: str, ticket: str, urgency: Urgency, gap: float) -> float:
        self.urgencies.append(urgency)
        return await super().claim(whose, ticket, urgency, gap)


async def test_the_first_word_in_a_thread_goes_before_the_work_whoever_says_it() -> None:
    line = Heard()
    async with World() as world:
        repo = world.repository("acme/sample", {"a.py": "x = 1\n"}, permissions={"patchwright": "write"})
        issue = world.issue(repo, title="a is wrong", body="It is.", by="reporter")
        access = TokenAccess(SecretStr(world.token("patchwright")))
        pace = Pace(between_writes=0.01)
        async with GitHubForge(
            access, api_url=world.api_url, graphql_url=world.graphql_url, pace=pace, line=line
        ) as forge:
            for words in ("I did not start on this.", "Now I did."):
                await forge.say(Repo(owner="acme", name="sample"), issue.number, "tag", words)
    assert list(dict.fromkeys(line.urgencies)) == [Urgency.ACKNOWLEDGEMENT, Urgency.WORK]
