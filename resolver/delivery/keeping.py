"""Where the work goes: on a branch, on another one, or as a patch into the comment; it is never lost."""

import asyncio
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from resolver.delivery import delivery_prose
from resolver.domain import Repo, User
from resolver.errors import ForgeError, Unauthorized, WorkspaceError
from resolver.forge import Forge, Published
from resolver.git.plumbing import run_git
from resolver.settings.settings import Settings

logger = logging.getLogger(__name__)

MAX_PASTED = 40_000  # characters of a patch in a comment; MAX_BODY leaves the rest to what is said about it
PATCH = "patch.diff"


@dataclass(frozen=True)
class OnBranch:
    """The work is on a branch of the forge, and was read back."""

    name: str
    published: Published


@dataclass(frozen=True)
class InComment:
    """No branch took the work."""

    text: str
    """Markdown for the comment: the whole patch, or where it is."""
    why: str
    """What the forge said last, in a sentence."""


async def publish_or_attach(
    repo: Repo, git_dir: Path, commit: str, branches: Sequence[str], parent: str, forge: Forge, place: Path
) -> OnBranch | InComment:
    """Put `commit` on the first of these branches that takes it; where none does, make a patch of it.

    `place` is the run's directory, for a patch that no comment can hold. Raises ForgeError when trying again may
    help, and Unauthorized: then a comment could not be made either.
    """
    why = ""
    for branch in branches:
        try:
            return OnBranch(branch, await forge.publish(repo, git_dir, commit, branch, parent))
        except (ForgeError, WorkspaceError) as exc:
            if exc.retryable or isinstance(exc, Unauthorized):
                raise
            why = str(exc)
            logger.warning("branch refused", extra={"branch": branch, "error": why})
    return InComment(await _attached(git_dir, parent, commit, place), why)


def run_directory(settings: Settings, run: str) -> Path:
    """Where a run's files are."""
    return settings.data / "runs" / run


def signature(user: User, server_url: str) -> tuple[str, str]:
    """Name and e-mail address by which the forge knows an account as the author of a commit.

    Source: docs.github.com/account-and-profile/reference/email-addresses-reference
    """
    host = urlsplit(server_url).hostname or "github.com"
    return user.login, f"{user.id}+{user.login}@users.noreply.{host}"


async def _attached(git_dir: Path, parent: str, commit: str, place: Path) -> str:
    diff = await _pasteable(git_dir, parent, commit)
    if len(diff) <= MAX_PASTED:
        return delivery_prose.attached(diff)
    await asyncio.to_thread(_keep, diff, place)
    return delivery_prose.too_large(len(diff), place.name, PATCH)


async def _pasteable(git_dir: Path, parent: str, commit: str) -> str:
    """The change as a patch that `git apply` takes after it has been a text in a browser."""

    async def diff(**settings: str) -> bytes:
        return await run_git(
            *("diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color"),
            *(parent, commit),
            git_dir=git_dir,
            settings={name.replace("_", "."): value for name, value in settings.items()},
        )

    text = (await diff()).decode(errors="replace")
    if "\r" not in text and "\ufffd" not in text:
        return text
    # Carriage returns and other encodings do not survive: every file as git encodes a binary one.
    with tempfile.NamedTemporaryFile("w", prefix="attributes-", dir=git_dir) as attributes:
        attributes.write("* -diff\n")
        attributes.flush()
        return (await diff(core_attributesFile=attributes.name)).decode(errors="replace")


def _keep(diff: str, place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    (place / PATCH).write_text(diff)
