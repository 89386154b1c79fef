"""The bot does not reply to other bots or to its own texts, however often they mention it."""

import json
from typing import Literal, Self

import pytest

from patchwright.demo.asgi import AsgiMessage, Receive, Send, read_body, respond
from patchwright.demo.loopback_server import LoopbackServer
from tests.end_to_end.server_scenario import (
    SECRET,
    ServerScenario,
    open_server_scenario,
    own_comments,
    wait_until,
)

pytestmark = [pytest.mark.redis, pytest.mark.slow]


class MentioningBot:
    """A bot that replies to every comment of others with a mention."""

    def __init__(self, server: ServerScenario, most: int = 100) -> None:
        self._town, self._most = server, most
        self.login = "chatterbox[bot]"
        self.replies = 0
        self._loopback = LoopbackServer(self._hear)
        self.url = f"{self._loopback.url}/webhook"

    async def __aenter__(self) -> Self:
        await self._loopback.start()
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self._loopback.stop()

    async def _hear(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        payload = json.loads(await read_body(receive))
        await respond(send, 202, {}, b"")
        if payload["sender"]["login"] != self.login and self.replies < self._most:
            await self.say(payload["issue"]["number"])

    async def say(self, number: int) -> None:
        self.replies += 1
        (repo,) = (one for one in self._town.repositories if number in one.threads)
        words = f"@agent thank you for that, number {self.replies}. Fix it."
        await self._town.fake_github.add_comment(repo.threads[number], words, by=self.login)


@pytest.mark.parametrize("kind", ["Bot", "User"])
async def test_two_bots_do_not_reply_to_each_other(kind: Literal["Bot", "User"]) -> None:
    async with open_server_scenario() as server:
        issue = server.issue("bots")
        async with MentioningBot(server, most=100 if kind == "Bot" else 4) as other, server.serve():
            server.fake_github.user(other.login).kind = kind
            server.fake_github.add_webhook(other.url, SECRET)
            await server.fake_github.add_comment(issue, "@agent help", by="maintainer")
            await wait_until(lambda: other.replies >= 2)  # it replied to the maintainer and to Patchwright
            if (
                kind == "User"
            ):  # the control: the same text by an account that does not identify as a bot gets replies
                # one to the maintainer, and as many as a stranger gets in a thread and day
                await wait_until(lambda: len(own_comments(issue)) == 1 + 3)
                return
            while other.replies < 100:
                await other.say(issue.number)
            await server.wait_until_idle()
        assert len(own_comments(issue)) == 1 and server.model.requests == []
        assert [comment.author.login for comment in issue.comments if comment.reactions] == []


async def test_quoted_bot_comments_mention_nobody() -> None:
    async with open_server_scenario() as server:
        del server.environment["PATCHWRIGHT_APP_ID"]
        server.environment["GITHUB_TOKEN"] = server.fake_github.create_token(
            "maintainer"
        )  # the bot writes as the person who owns the token
        issue = server.issue("own")
        async with server.serve():
            await server.fake_github.add_comment(issue, "@agent help", by="maintainer")
            await server.wait_until_idle()
            (help_,) = own_comments(issue)
            assert "`@agent stop`" in help_
            await server.fake_github.add_comment(
                issue, issue.comments[-1].body.replace("`", ""), by="maintainer"
            )
            await server.wait_until_idle()
        assert len(issue.comments) == 3 and server.model.requests == []
