"""Records whether the bot's pull requests were merged or closed, and whether they contain commits by other
people.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.github.repositories import PolledRepository
from patchwright.bot.github.rest import PER_PAGE, RestClient, repo_path
from patchwright.bot.github.schemas import ClosedPullRequestResponse
from patchwright.bot.redis.counters import Counters
from patchwright.bot.webhooks.delivery import HeadBranch, ThreadClosed
from patchwright.bot.webhooks.triggers import parse_time

# Maximum number of pull requests that are examined to find the one whose merge closed an issue.
RECENT_PULL_REQUESTS = 20
# When a pull request is merged, GitHub closes its issues within this time.
MERGE_TOLERANCE = timedelta(minutes=1)


class OwnPullRequests:
    """Detects and records the outcomes of the bot's pull requests. Recognizes these pull requests by their
    branch prefix. Every method may raise ForgeError or QueueDown.
    """

    def __init__(self, rest: RestClient, forge: GitHubForge, counters: Counters, branch_prefix: str) -> None:
        self._rest = rest
        self._forge = forge
        self._counters = counters
        self._branch_prefix = branch_prefix

    async def has_closed_issue(self, issue: ThreadClosed) -> bool:
        """Returns True if this issue was closed because one of the bot's pull requests was merged.

        This is assumed if the pull request mentions the issue, and was merged when the issue was closed.
        """
        query = {
            "state": "closed",
            "sort": "updated",
            "direction": "desc",
            "per_page": str(RECENT_PULL_REQUESTS),
        }
        path = (*repo_path(issue.repo), "pulls")
        recent = await self._rest.get(list[ClosedPullRequestResponse], issue.repo, *path, **query)
        closed_at = parse_time(issue.occurred_at) or datetime.now(UTC)
        mention = re.compile(rf"#{issue.number}\b")
        return any(
            self._is_own_branch(pull.head.ref)
            and _is_merged_at(pull.merged_at, closed_at)
            and mention.search(pull.body or "")
            for pull in recent
            if pull.is_same_repository
        )

    async def record_outcome(self, pull: ThreadClosed) -> None:
        """Records the outcome if the branch prefix and the author show that the bot opened the pull
        request.
        """
        branch = pull.head_branch
        if branch is None or not branch.is_same_repository or not self._is_own_branch(branch.name):
            return
        bot_user = await self._forge.get_bot_user(pull.repo)
        if bot_user is None or bot_user.id != branch.author_id:
            return
        is_untouched = pull.reason == "merged" and all(
            commit.author_id == bot_user.id
            for commit in await self._forge.list_commits(pull.repo, pull.number)
        )
        await self._counters.record_pull_outcome(
            pull.repo,
            pull.number,
            "untouched" if is_untouched else "merged" if pull.reason == "merged" else "closed",
        )

    def _is_own_branch(self, branch: str) -> bool:
        return branch.startswith(self._branch_prefix)


class ClosedPullRequests(NamedTuple):
    """Pull requests that were merged or closed since the last poll."""

    deliveries: tuple[ThreadClosed, ...]
    last_closed_at: datetime
    """The latest time at which one of these pull requests was closed."""
    etag: str


async def fetch_closed_pull_requests(
    rest: RestClient, repository: PolledRepository, since: datetime, etag: str
) -> ClosedPullRequests | None:
    """Returns the pull requests that were closed after `since`, or None if the list has not changed since
    `etag`.

    Raises ForgeError.
    """
    query = {"state": "closed", "sort": "updated", "direction": "desc", "per_page": str(PER_PAGE)}
    page = await rest.get_page(
        list[ClosedPullRequestResponse], repository.token, *repository.path, "pulls", etag=etag, **query
    )
    if page is None:
        return None
    closed = [(pull.closed_at, pull) for pull in page.data if pull.closed_at and pull.closed_at > since]
    deliveries = tuple(
        ThreadClosed(
            repo=repository.repo,
            number=pull.number,
            reason="merged" if pull.merged_at else "closed",
            occurred_at=closed_at.isoformat(),
            head_branch=HeadBranch(
                name=pull.head.ref,
                is_same_repository=pull.is_same_repository,
                author_id=pull.user.id if pull.user else None,
            ),
        )
        for closed_at, pull in closed
    )
    return ClosedPullRequests(deliveries, max([since, *(closed_at for closed_at, _ in closed)]), page.etag)


def _is_merged_at(merged_at: datetime | None, closed_at: datetime) -> bool:
    return merged_at is not None and abs(merged_at - closed_at) <= MERGE_TOLERANCE
