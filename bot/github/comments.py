"""Creates and updates the bot's comments on GitHub. A hidden tag in each comment identifies the comment."""

import asyncio
import re
from collections import OrderedDict
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from patchwright.bot.comment_tags import TAG_PREFIX, parse_tag, render_tag, tag_prefix
from patchwright.bot.errors import Preempted
from patchwright.bot.github.rest import RestClient, repo_path
from patchwright.bot.github.reviews import CreateOnce, GetIdentity
from patchwright.bot.github.schemas import CommentResponse
from patchwright.bot.github.threads import Threads, is_by
from patchwright.bot.write_limiter import Priority, current_priority, write_priority
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import NotFound
from patchwright.resolver.forge import MAX_BODY

MAX_CACHED_COMMENTS = 500  # maximum number of cached comments; others are searched on GitHub again


class _CachedComment(NamedTuple):
    comment: CommentResponse
    priority: Priority


class Comments:
    """Creates and updates comments."""

    def __init__(
        self,
        rest: RestClient,
        threads: Threads,
        get_identity: GetIdentity,
        create_once: CreateOnce[CommentResponse],
    ) -> None:
        self._rest = rest
        self._threads = threads
        self._get_identity = get_identity
        self._create_once = create_once
        self._cache: OrderedDict[tuple[Repo, int, str], _CachedComment] = OrderedDict()
        # Two concurrent calls with the same tag would create two comments. These locks prevent this within
        # one process, and `RestClient.lock` prevents it between processes. Calls with different tags do not
        # wait for each other.
        self._locks: WeakValueDictionary[tuple[Repo, int, str], asyncio.Lock] = WeakValueDictionary()

    async def upsert(
        self, repo: Repo, number: int, tag: str, body: str, *, in_progress: bool = False
    ) -> CommentResponse:
        """Creates or updates our comment with this tag, and returns it.

        Raises ForgeError. Raises Preempted if the final text was posted before this progress update.
        """
        first = render_tag(tag, in_progress=in_progress)
        text = first + truncate_body(body, MAX_BODY - len(first))
        key = repo, number, tag
        async with self._locks.setdefault(key, asyncio.Lock()):
            cached, priority = self._cache.pop(key, None), current_priority()
            if cached and priority is Priority.PROGRESS and cached.priority is Priority.WORK:
                self._cache[key] = cached
                # the final text is already posted; a progress update must not replace it
                raise Preempted(0.0)
            comment = cached.comment if cached else await self._find_or_create(*key, text)
            if comment.body != text:
                path = (*repo_path(repo), "issues", "comments", str(comment.id))
                try:
                    comment = await self._rest.patch(CommentResponse, repo, *path, body={"body": text})
                except NotFound:  # the comment was deleted; if GitHub still lists it, the error is raised
                    comment = await self._find_or_create(*key, text)
                    if comment.body != text:
                        raise
            self._cache[key] = _CachedComment(comment, priority)
            while len(self._cache) > MAX_CACHED_COMMENTS:
                self._cache.popitem(last=False)
            return comment

    async def _find_or_create(self, repo: Repo, number: int, tag: str, text: str) -> CommentResponse:
        find = partial(self._find, repo, number, tag)
        async with self._rest.lock(f"{repo}#{number}:{tag}".lower()):
            return await find() or await self._create_once(partial(self._create, repo, number, text), find)

    async def _create(self, repo: Repo, number: int, text: str) -> CommentResponse:
        # People wait for the first comment. It therefore gets the priority of an acknowledgment if the
        # caller set none, for example when the resolver rejects a job.
        priority = current_priority()
        path = (*repo_path(repo), "issues", str(number), "comments")
        with write_priority(Priority.ACKNOWLEDGMENT if priority is Priority.WORK else priority):
            return await self._rest.post(CommentResponse, repo, *path, body={"body": text})

    async def is_in_progress(self, repo: Repo, number: int, tag: str) -> bool:
        """Returns whether our comment with this tag says that its job is in progress. Raises ForgeError."""
        comment = await self._find(repo, number, tag)
        return comment is not None and parse_tag(comment.body or "").is_in_progress

    async def list_in_progress(self, repo: Repo, number: int) -> tuple[str, ...]:
        """Returns the tags of our comments that say that their jobs are in progress. Raises ForgeError."""
        identity = await self._get_identity(repo)
        ours = (one for one in await self._threads.list_comments(repo, number) if is_by(one, identity))
        tags = (parse_tag(one.body or "") for one in ours if (one.body or "").startswith(TAG_PREFIX))
        return tuple(tag.tag for tag in tags if tag.is_in_progress)

    async def _find(self, repo: Repo, number: int, tag: str) -> CommentResponse | None:
        identity = await self._get_identity(repo)
        ours = (one for one in await self._threads.list_comments(repo, number) if is_by(one, identity))
        return next((one for one in ours if (one.body or "").startswith(tag_prefix(tag))), None)


def truncate_body(body: str, limit: int, github_limit: int = MAX_BODY) -> str:
    """Shortens a body to `limit` characters, closes open Markdown blocks, and adds a note.

    The note says that the limit is `github_limit`.
    """
    if len(body) <= limit:
        return body
    note = f"\n\n*Truncated: this text has {len(body):,} characters; GitHub allows {github_limit:,}.*\n"
    shortened = body[: limit - len(note) - 200]
    fence = ""
    for line in shortened.splitlines():
        if found := re.match(r" {0,3}(`{3,}|~{3,})", line):
            if not fence:
                fence = found[1]
            elif found[1].startswith(fence) and not line.strip(" `~"):
                fence = ""
    closing = f"\n{fence[:100]}" if fence else ""
    closing += "\n</details>" * min(shortened.count("<details") - shortened.count("</details>"), 8)
    return shortened + closing + note
