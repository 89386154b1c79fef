"""Merges the base branch into a pull request's head. The merge happens in a bare repository and runs no code
of these branches.
"""

from datetime import UTC, datetime
from pathlib import Path

from patchwright.resolver.domain import Patch
from patchwright.resolver.errors import WorkspaceError
from patchwright.resolver.git.git_process import GitFailed, run_git
from patchwright.resolver.git.repository import Workspace, decode_path
from patchwright.runtime.frozen_model import FrozenModel

CONFLICT_EXIT_CODE = 1  # exit code of git merge-tree
CONFLICT_MARKERS = "^(<<<<<<<|>>>>>>>)( |$)"
MAX_CONFLICTS = 500  # maximum number of files with conflicts; an agent could not resolve more


class MergeResult(FrozenModel):
    """The result of merging the base branch into a pull request's head."""

    head: str
    """Full commit ID of the pull request's head."""
    base: str
    """Full commit ID of the base branch."""
    commit: str
    """ID of the local merge commit, which is never published. In this commit, files with conflicts contain
    git's conflict markers.
    """
    conflicts: tuple[str, ...]
    """Paths with conflicts; empty if git merged everything."""

    @property
    def parents(self) -> tuple[str, str]:
        return self.head, self.base


async def merge_commit(workspace: Workspace, other: str) -> MergeResult | None:
    """Merges the commit `other` into the base commit. Returns None if the base commit already contains
    `other`. `other` must be in the repository.

    The same two commits always result in the same merge commit. Raises WorkspaceError, for example if the
    commits have no common history.
    """
    git_dir, base = workspace.git_dir, workspace.base
    if await is_ancestor(git_dir, other, base):
        return None
    arguments = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", base, other)
    try:
        output = await run_git(*arguments, git_dir=git_dir)
    except GitFailed as exc:
        if exc.exit_code != CONFLICT_EXIT_CODE:
            raise WorkspaceError(f"{other[:12]} cannot be merged into {base[:12]}: {exc.reason}") from exc
        output = exc.stdout
    tree, *paths = [decode_path(field) for field in output.split(b"\0") if field]
    if len(paths) > MAX_CONFLICTS:
        raise WorkspaceError(
            f"{other[:12]} and {base[:12]} have conflicts in {len(paths)} files; the limit is {MAX_CONFLICTS}."
        )
    epoch = datetime.fromtimestamp(0, UTC)  # A fixed time makes the commit reproducible.
    commit = await workspace.commit_tree(
        tree, "Merge with conflicts", author=("Patchwright", "merge"), when=epoch, parents=(base, other)
    )
    return MergeResult(head=base, base=other, commit=commit, conflicts=tuple(dict.fromkeys(paths)))


async def find_unresolved(workspace: Workspace, patch: Patch, merge: MergeResult) -> tuple[str, ...]:
    """Returns the files that had conflicts and still contain conflict markers after the patch. Raises
    WorkspaceError.
    """
    if not merge.conflicts:
        return ()
    tree = await workspace.build_tree(patch)
    try:
        output = await run_git(
            *("grep", "--files-with-matches", "-z", "-E", CONFLICT_MARKERS, tree, "--", *merge.conflicts),
            git_dir=workspace.git_dir,
        )
    except GitFailed as exc:
        if exc.exit_code != 1:
            raise
        return ()
    return tuple(decode_path(name).partition(":")[2] for name in output.split(b"\0") if name)


async def is_ancestor(git_dir: Path, ancestor: str, descendant: str) -> bool:
    """Returns True if `ancestor` is in the history of `descendant`."""
    try:
        await run_git("merge-base", "--is-ancestor", ancestor, descendant, git_dir=git_dir)
    except GitFailed as exc:
        if exc.exit_code != 1:
            raise
        return False
    return True
