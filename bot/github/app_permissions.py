"""Checks which permissions the App lacks in a repository, and posts a notice that lists them."""

import logging

from patchwright.bot.errors import PermissionNotGranted
from patchwright.bot.github.repositories import raise_if_unreachable
from patchwright.bot.github.rest import REQUIRED_PERMISSIONS, RestClient, is_granted, repo_path
from patchwright.bot.github.schemas import InstallationResponse
from patchwright.bot.job_runner import JobResolver
from patchwright.bot.redis.leader_lease import LeaderLease
from patchwright.bot.webhooks.delivery import InstallationChanged
from patchwright.bot.write_limiter import Priority, write_priority
from patchwright.resolver.domain import Job, Outcome, Rejected, Repo
from patchwright.resolver.errors import BranchMoved, Forbidden, NotFound
from patchwright.resolver.forge import Forge
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.runtime.frozen_model import FrozenModel

log = logging.getLogger(__name__)


class MissingPermissions(FrozenModel):
    """Permissions that the App needs but does not have."""

    installation: int
    permissions: tuple[str, ...]
    """The names and levels of the missing permissions as on GitHub's pages, such as `contents: write`."""
    settings_url: str
    """URL of the page on which the owner grants the permissions."""


class PermissionNotice(FrozenModel):
    """A comment that lists missing permissions."""

    job_id: str
    """The id of the job whose issue or pull request contains the comment."""
    permissions: tuple[str, ...]
    url: str
    """The URL of the comment; "" if the comment could not be posted."""


class AppPermissions:
    """Checks the App's permissions before a run starts, because a push that GitHub rejects at the end would
    waste the whole run.
    """

    def __init__(self, rest: RestClient, notices: LeaderLease) -> None:
        self.rest = rest
        self._notices = notices

    async def has_access(self, repo: Repo) -> bool:
        """Returns whether the App is installed in the repository and not suspended. Always returns True if the
        bot uses a token instead of an App. Raises ForgeError.
        """
        if not self.rest.is_app:
            return True
        try:
            return (await self._get_installation(repo)).suspended_at is None
        except NotFound:
            return False

    async def is_own_installation(self, repo: Repo, installation_id: int) -> bool:
        """Returns True if this installation gives the App access to the repository.

        Also returns True if the App has no installation in the repository, or if the bot uses a token instead
        of an App. Raises ForgeError.
        """
        if not self.rest.is_app or await self.rest.get_installation_id(repo) == installation_id:
            return True
        try:  # queried at each mismatch, because the App may have been reinstalled since it got its token
            return (await self._get_installation(repo)).id == installation_id
        except NotFound:
            return True  # another check handles an App that was removed

    async def log_missing_permissions(self, change: InstallationChanged) -> None:
        """Logs the permissions that the App still lacks after its installation has changed. Logs nothing if the
        App lost access.
        """
        if not change.is_access_removed and (missing := missing_permissions(change.permissions)):
            _log_missing(
                MissingPermissions(
                    installation=change.installation_id, permissions=missing, settings_url=change.settings_url
                ),
                "",
            )

    async def find_missing(self, repo: Repo) -> MissingPermissions | None:
        """Returns the permissions that the App lacks in the repository. Raises ForgeError.

        Returns None if no permission is missing, or if the bot uses a token instead of an App.
        """
        if not self.rest.is_app:
            return None
        try:
            installation = await self._get_installation(repo)
        except NotFound:
            return None  # the App is not installed; the later request for a token reports this
        if missing := missing_permissions(installation.permissions):
            return MissingPermissions(
                installation=installation.id, permissions=missing, settings_url=installation.html_url
            )
        self.rest.discard_outdated_token(repo)
        return None

    async def _get_installation(self, repo: Repo) -> InstallationResponse:
        return await self.rest.get_as_app(InstallationResponse, *repo_path(repo), "installation")

    async def find_notice(self, missing: MissingPermissions, repo: Repo) -> PermissionNotice | None:
        """Returns an earlier notice that lists exactly these permissions. Returns None if there is no such
        notice, or it has expired.

        Raises QueueDown.
        """
        stored = await self._notices.load(_notice_key(missing, repo))
        notice = PermissionNotice.model_validate_json(stored) if stored else None
        return notice if notice and notice.permissions == missing.permissions else None

    async def post_notice(self, missing: MissingPermissions, job: Job, forge: Forge) -> str:
        """Posts a list of the missing permissions in the job's issue or pull request. Returns the posted text.

        If an earlier notice in the repository lists the same permissions, the new notice links to it. Raises
        ForgeError and QueueDown.
        """
        notice = await self.find_notice(missing, job.repo)
        previous_url = notice.url if notice and notice.job_id != job.id else ""
        explanation = render_reply(
            "missing_permissions.md.j2",
            permissions=missing.permissions,
            settings_url=missing.settings_url,
            notice_url=previous_url,
        ).strip()
        try:
            with write_priority(Priority.ACKNOWLEDGMENT):
                url = await forge.upsert_comment(
                    job.repo, job.number, job.id, reply_texts.render_rejection(explanation)
                )
        except (Forbidden, NotFound):  # the App lacks the permission to comment, too
            url = ""
        if notice is None:
            _log_missing(missing, str(job.repo))
            new_notice = PermissionNotice(job_id=job.id, permissions=missing.permissions, url=url)
            await self._notices.save(_notice_key(missing, job.repo), new_notice.model_dump_json())
        return explanation


def require_permissions(resolve: JobResolver, grants: AppPermissions, forge: Forge) -> JobResolver:
    """Wraps `resolve` so that a job is rejected if the App lacks permissions in the job's repository. The
    rejection lists the permissions to grant.

    If GitHub does not show the repository at the moment, raises ForgeUnavailable, so that the job is retried.
    """

    async def resolve_if_permitted(job: Job) -> Outcome:
        if (missing := await grants.find_missing(job.repo)) is not None:
            return Rejected(explanation=await grants.post_notice(missing, job, forge))
        try:
            return await resolve(job)
        except BranchMoved:
            raise
        except (Forbidden, NotFound) as exc:
            # A permission may have been revoked during the run.
            if isinstance(exc, Forbidden) and (missing := await grants.find_missing(job.repo)) is not None:
                _log_missing(missing, str(job.repo))
                raise PermissionNotGranted(
                    render_reply(
                        "missing_permissions.md.j2",
                        permissions=missing.permissions,
                        settings_url=missing.settings_url,
                        notice_url="",
                    ).strip()
                ) from exc
            await raise_if_unreachable(grants.rest, job.repo, exc)
            raise

    return resolve_if_permitted


def missing_permissions(permissions: dict[str, str]) -> tuple[str, ...]:
    """Returns the required permissions that `permissions` do not grant. Each is written as on GitHub's pages,
    such as `contents: write`.
    """
    needed = REQUIRED_PERMISSIONS.items()
    return tuple(f"{name}: {level}" for name, level in needed if not is_granted(permissions, name, level))


def _log_missing(missing: MissingPermissions, repo: str) -> None:
    extra = {"repo": repo, "missing": ", ".join(missing.permissions), "settings_url": missing.settings_url}
    log.warning("permissions missing", extra=extra | {"installation": missing.installation})


def _notice_key(missing: MissingPermissions, repo: Repo) -> str:
    return f"missing-permissions:{missing.installation}:{repo}".lower()
