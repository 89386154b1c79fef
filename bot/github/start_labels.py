"""Creates the configured label in the repositories of the App's installations. Adding this label to an issue
starts a run.
"""

import logging
from collections.abc import Iterable
from fnmatch import fnmatchcase

from patchwright.bot.errors import UnprocessableRequest
from patchwright.bot.github.rest import RestClient, repo_path
from patchwright.bot.redis.leader_lease import LeaderLease
from patchwright.bot.webhooks.triggers import LABEL_COLOR, LABEL_DESCRIPTION, label_command
from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import Forbidden, NotFound
from patchwright.resolver.settings.settings import Settings

log = logging.getLogger(__name__)

MAX_LABELS_AT_ONCE = 10  # GitHub asks for a pause between writes; the next poll creates further labels.


def is_allowed(repo: Repo, settings: Settings) -> bool:
    """Returns True if the operator allows runs in this repository."""
    patterns = settings.allowed_repositories
    return not patterns or any(fnmatchcase(str(repo).lower(), pattern.lower()) for pattern in patterns)


class StartLabels:
    """Creates the label only once in each repository. If a maintainer deletes the label, it stays deleted."""

    def __init__(self, rest: RestClient, settings: Settings, store: LeaderLease) -> None:
        """`store` remembers across restarts in which repositories the label was created."""
        self._rest = rest
        self._settings = settings
        self._store = store
        self._handled: set[Repo] = set()
        """Repositories that this process does not try again: they have the label, or GitHub refused it."""

    async def create(self, repositories: Iterable[Repo], *, is_new_grant: bool = False) -> None:
        """Creates the label in repositories where it was never created, at most MAX_LABELS_AT_ONCE per call.

        `is_new_grant` is True if the App's access to the repositories has just changed. In that case, also tries
        the repositories in which GitHub refused the label before. Does nothing if the bot uses a token instead
        of an App. Raises ForgeError and QueueDown.
        """
        if not self._rest.is_app:
            return
        count = 0
        for repo in repositories:
            if (repo in self._handled and not is_new_grant) or not is_allowed(repo, self._settings):
                continue
            key = f"label:{self._settings.label}:{repo}".lower()
            if not await self._store.load(key):
                if count == MAX_LABELS_AT_ONCE:
                    return
                count += 1
                if is_new_grant:
                    self._rest.discard_outdated_token(repo)
                if await self._create(repo):
                    await self._store.save(key, "created")
            self._handled.add(repo)

    async def _create(self, repo: Repo) -> bool:
        """Creates the label. Returns True if the repository now has it."""
        body = {"name": self._settings.label, "color": LABEL_COLOR, "description": LABEL_DESCRIPTION}
        try:
            await self._rest.post(dict[str, object], repo, *repo_path(repo), "labels", body=body)
        except UnprocessableRequest:  # the repository already has it
            return True
        except (Forbidden, NotFound) as exc:
            command = label_command(self._settings.label, str(repo))
            log.warning(
                "label not created", extra={"repo": str(repo), "reason": str(exc), "command": command}
            )
            return False
        log.info("label created", extra={"repo": str(repo), "label": self._settings.label})
        return True
