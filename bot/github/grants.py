"""What our App was granted in a repository, and what it lacks: said once, with the page where its owner grants it."""

import logging
from typing import Protocol

from bot.errors import NotGranted
from bot.github.answers import InstallationAnswer
from bot.github.rest import PERMISSIONS, Rest, is_granted, path_of
from bot.pacing import Urgency, writing
from bot.webhooks.delivery import Reach
from bot.words import lacking
from bot.worker import Resolve
from resolver import prose
from resolver.domain import Job, Outcome, Refused, Repo
from resolver.errors import BranchMoved, Forbidden, NotFound
from resolver.forge import Forge
from runtime.frozen import Frozen

log = logging.getLogger(__name__)


class Lack(Frozen):
    """What an App needs and was not granted."""

    installation: int
    permissions: tuple[str, ...]
    """As GitHub's pages name them, with their levels: `contents: write`."""
    page: str
    """Where the owner grants them."""


class Said(Frozen):
    """Where an owner can read what is lacking."""

    by: str
    """The job in whose comment it stands."""
    permissions: tuple[str, ...]
    url: str
    """Empty: nothing could be said there."""


class Memory(Protocol):
    """Outlives us. Every method may raise QueueDown."""

    async def recall(self, name: str) -> bytes | None: ...

    async def remember(self, name: str, what: str) -> None: ...


class AppGrants:
    """Looks before the work begins: a push that is refused after it would have cost all of it."""

    def __init__(self, rest: Rest, memory: Memory) -> None:
        self._rest = rest
        self._memory = memory

    async def reaches(self, repo: Repo) -> bool:
        """Whether we may act there at all. Raises ForgeError."""
        if not self._rest.is_app:
            return True
        try:
            return (await self._installation(repo)).suspended_at is None
        except NotFound:
            return False

    async def changed(self, reach: Reach) -> None:
        """Tell the operator what is lacking now."""
        if not reach.lost and (lacks := lacks_in(reach.permissions)):
            _warn(Lack(installation=reach.installation, permissions=lacks, page=reach.page), "")

    async def lack(self, repo: Repo) -> Lack | None:
        """What is to be granted before we can work there; None: nothing, or we act with a token. Raises ForgeError."""
        if not self._rest.is_app:
            return None
        try:
            found = await self._installation(repo)
        except NotFound:
            return None  # there is nobody to tell; whoever asks for a token hears of it
        if lacks := lacks_in(found.permissions):
            return Lack(installation=found.id, permissions=lacks, page=found.html_url)
        self._rest.outgrow(repo)
        return None

    async def _installation(self, repo: Repo) -> InstallationAnswer:
        return await self._rest.get_as_app(InstallationAnswer, *path_of(repo), "installation")

    async def said(self, lack: Lack, repo: Repo) -> Said | None:
        """Where this very lack was told; None: nowhere, or in a time that nobody remembers. Raises QueueDown."""
        known = await self._memory.recall(_key(lack, repo))
        said = Said.model_validate_json(known) if known else None
        return said if said and said.permissions == lack.permissions else None

    async def say(self, lack: Lack, job: Job, forge: Forge) -> str:
        """Answer this job: in full once for a repository, then briefly; what is said.

        Raises ForgeError and QueueDown.
        """
        said = await self.said(lack, job.repo)
        before = said.url if said and said.by != job.id else ""
        explanation = lacking(lack.permissions, lack.page, before)
        try:
            with writing(Urgency.ACKNOWLEDGEMENT):
                url = await forge.say(job.repo, job.number, job.id, prose.refused(explanation))
        except (Forbidden, NotFound):  # to comment is what it may not
            url = ""
        if said is None:
            _warn(lack, str(job.repo))
            now = Said(by=job.id, permissions=lack.permissions, url=url)
            await self._memory.remember(_key(lack, job.repo), now.model_dump_json())
        return explanation


def granted(resolve: Resolve, grants: AppGrants, forge: Forge) -> Resolve:
    """`resolve` for jobs in repositories where we have what we need; others are refused, and told what to grant."""

    async def within(job: Job) -> Outcome:
        if (lack := await grants.lack(job.repo)) is not None:
            return Refused(explanation=await grants.say(lack, job, forge))
        try:
            return await resolve(job)
        except BranchMoved:
            raise
        except Forbidden as exc:  # was something taken away meanwhile?
            if (lack := await grants.lack(job.repo)) is None:
                raise
            _warn(lack, str(job.repo))
            raise NotGranted(lacking(lack.permissions, lack.page, "")) from exc

    return within


def lacks_in(permissions: dict[str, str]) -> tuple[str, ...]:
    """What we need beyond these, as GitHub's pages name it."""
    needed = PERMISSIONS.items()
    return tuple(f"{name}: {least}" for name, least in needed if not is_granted(permissions, name, least))


def _warn(lack: Lack, repo: str) -> None:
    extra = {"repo": repo, "lacks": ", ".join(lack.permissions), "page": lack.page}
    log.warning("permissions are lacking", extra=extra | {"installation": lack.installation})


def _key(lack: Lack, repo: Repo) -> str:
    return f"lack:{lack.installation}:{repo}".lower()
