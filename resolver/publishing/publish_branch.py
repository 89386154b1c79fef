"""Publishes a commit on a branch. If this fails, uses an alternative branch or a patch in a comment, so that
no work is lost.
"""

import asyncio
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from patchwright.resolver.domain import Repo, User
from patchwright.resolver.errors import ForgeError, Unauthorized, WorkspaceError
from patchwright.resolver.forge import Forge, PublishedCommit
from patchwright.resolver.git.git_process import run_git
from patchwright.resolver.publishing import publishing_texts
from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.settings.settings import Settings

logger = logging.getLogger(__name__)

# Characters of a patch in a comment; the rest of MAX_BODY is for the text around the patch.
MAX_PASTED_PATCH = 40_000
PATCH_FILE = "patch.diff"


@dataclass(frozen=True)
class BranchLocation:
    """The branch that contains the commit, as read from the forge after the push."""

    name: str
    commit: PublishedCommit


@dataclass(frozen=True)
class CommentLocation:
    """The commit is in a comment, because it could not be pushed to any branch."""

    text: str
    """Markdown for the comment: the whole patch, or where to find it."""
    push_error: str
    """GitHub's last error, in a sentence."""


async def push_or_paste(
    repo: Repo,
    git_dir: Path,
    commit: str,
    branches: Sequence[str],
    parent: str,
    forge: Forge,
    run_directory: Path,
) -> BranchLocation | CommentLocation:
    """Tries to push `commit` to each of `branches` in order, until a push succeeds. If all pushes fail,
    returns the commit as a patch.

    If the patch is too large for a comment, it is written to `run_directory`. Raises ForgeError if a retry
    may help. Raises Unauthorized if GitHub rejects the token, because a comment would fail as well.
    """
    error = ""
    for branch in branches:
        try:
            return BranchLocation(branch, await forge.push_commit(repo, git_dir, commit, branch, parent))
        except (ForgeError, WorkspaceError) as exc:
            if exc.retryable or isinstance(exc, Unauthorized):
                raise
            error = str(exc)
            logger.warning("push rejected", extra={"branch": branch, "error": error})
    return CommentLocation(await _render_patch(git_dir, parent, commit, run_directory), error)


def get_run_directory(settings: Settings, run: str) -> Path:
    """Returns the directory that contains a run's files."""
    return settings.data / "runs" / run


def commit_author(user: User, server_url: str) -> tuple[str, str]:
    """Returns the name and email address that link a commit to a GitHub account.

    Source: docs.github.com/account-and-profile/reference/email-addresses-reference
    """
    host = urlsplit(server_url).hostname or "github.com"
    return user.login, f"{user.id}+{user.login}@users.noreply.{host}"


async def _render_patch(git_dir: Path, parent: str, commit: str, run_directory: Path) -> str:
    diff = await _text_patch(git_dir, parent, commit)
    if len(diff) <= MAX_PASTED_PATCH:
        return publishing_texts.render_pasted_patch(diff)
    await asyncio.to_thread(_write_patch, diff, run_directory)
    return render(
        "replies/patch_too_large.md.j2", characters=len(diff), run=run_directory.name, name=PATCH_FILE
    )


async def _text_patch(git_dir: Path, parent: str, commit: str) -> str:
    """Returns the change as a patch. `git apply` accepts this patch even if somebody has copied it from a
    browser.
    """

    async def diff(**settings: str) -> bytes:
        return await run_git(
            *("diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color"),
            *(parent, commit),
            git_dir=git_dir,
            config={name.replace("_", "."): value for name, value in settings.items()},
        )

    text = (await diff()).decode(errors="replace")
    if "\r" not in text and "\ufffd" not in text:
        return text
    # Copying from a browser loses carriage returns and bytes that are not UTF-8. To avoid this, every file is
    # encoded like a binary file.
    with tempfile.NamedTemporaryFile("w", prefix="attributes-", dir=git_dir) as attributes:
        attributes.write("* -diff\n")
        attributes.flush()
        return (await diff(core_attributesFile=attributes.name)).decode(errors="replace")


def _write_patch(diff: str, run_directory: Path) -> None:
    run_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    (run_directory / PATCH_FILE).write_text(diff)
