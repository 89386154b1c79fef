"""Our comments in threads on GitHub: one for each hidden tag, kept up to date."""

import asyncio
import re
from collections import OrderedDict
from typing import NamedTuple
from weakref import WeakValueDictionary

from bot.errors import Crowded
from bot.github.answers import CommentAnswer
from bot.github.rest import Rest, path_of
from bot.github.reviews import Made, Ourselves
from bot.github.tags import marker
from bot.github.threads import Threads, is_by
from bot.pacing import Urgency, urgency_now, writing
from resolver.domain import Repo
from resolver.errors import NotFound
from resolver.forge import MAX_BODY

REMEMBERED = 500  # comments; one that is forgotten is looked up


class _Said(NamedTuple):
    comment: CommentAnswer
    urgency: Urgency


class Comments:
    """Says things in the name of whoever `rest` speaks for."""

    def __init__(self, rest: Rest, threads: Threads, ourselves: Ourselves, made: Made[CommentAnswer]) -> None:
        self._rest = rest
        self._threads = threads
        self._ourselves = ourselves
        self._made = made
        self._said: OrderedDict[tuple[Repo, int, str], _Said] = OrderedDict()
        # Two at once with one tag would make two comments, here or in another process (`Rest.alone`); others need not
        # wait for each other.
        self._speaking: WeakValueDictionary[tuple[Repo, int, str], asyncio.Lock] = WeakValueDictionary()

    async def say(self, repo: Repo, number: int, tag: str, body: str) -> CommentAnswer:
        """Our comment with this tag as GitHub has it now. Raises ForgeError; Crowded: progress of what has ended."""
        first = marker(tag)
        text = first + clipped(body, MAX_BODY - len(first))
        place, key = (*path_of(repo), "issues"), (repo, number, tag)

        async def find() -> CommentAnswer | None:
            us = await self._ourselves(repo)
            ours = (one for one in await self._threads.comments(repo, number) if is_by(one, us))
            return next((one for one in ours if (one.body or "").startswith(first)), None)

        async def make() -> CommentAnswer:
            # Somebody waits for the first word, also for a refusal by the resolver, which knows of no urgency.
            now = urgency_now()
            with writing(Urgency.ACKNOWLEDGEMENT if now is Urgency.WORK else now):
                return await self._rest.post(
                    CommentAnswer, repo, *place, str(number), "comments", body={"body": text}
                )

        async def found_or_made() -> CommentAnswer:
            async with self._rest.alone(f"{repo}#{number}:{tag}".lower()):
                return await find() or await self._made(make, find)

        async with self._speaking.setdefault(key, asyncio.Lock()):
            said, urgency = self._said.pop(key, None), urgency_now()
            if said and urgency is Urgency.PROGRESS and said.urgency is Urgency.WORK:
                self._said[key] = said
                raise Crowded(0.0)  # the last word is the work's own
            known = said.comment if said else await found_or_made()
            if known.body != text:
                change = (*place, "comments", str(known.id))
                try:
                    known = await self._rest.patch(CommentAnswer, repo, *change, body={"body": text})
                except NotFound:  # somebody has deleted it
                    known = await found_or_made()
            self._said[key] = _Said(known, urgency)
            while len(self._said) > REMEMBERED:
                self._said.popitem(last=False)
            return known


def clipped(body: str, limit: int, most: int = MAX_BODY) -> str:
    """The body within the limit; what is cut off is said, below whatever was left open. `most`: GitHub's own limit."""
    if len(body) <= limit:
        return body
    note = f"\n\n*The rest is cut off: this text has {len(body):,} characters, and GitHub takes {most:,}.*\n"
    kept = body[: limit - len(note) - 200]
    fence = ""
    for line in kept.splitlines():
        if found := re.match(r" {0,3}(`{3,}|~{3,})", line):
            if not fence:
                fence = found[1]
            elif found[1].startswith(fence) and not line.strip(" `~"):
                fence = ""
    closing = f"\n{fence[:100]}" if fence else ""
    closing += "\n</details>" * min(kept.count("<details") - kept.count("</details>"), 8)
    return kept + closing + note
