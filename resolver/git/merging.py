"""The base branch merged into a pull request's head: by git in a bare repository, where nothing of either runs."""

from datetime import UTC, datetime
from pathlib import Path

from resolver.domain import Patch
from resolver.errors import WorkspaceError
from resolver.git.plumbing import GitFailed, run_git
from resolver.git.repository import Workspace, shown
from runtime.frozen import Frozen

CONFLICTS = 1  # exit code of git merge-tree
MARKERS = "^(<<<<<<<|>>>>>>>)( |$)"
MOST_NAMED = 500  # files in conflict; more than that is nothing that an agent mends


class Merge(Frozen):
    """What comes of merging one commit into another."""

    into: str
    """Full commit id: the head of the pull request."""
    of: str
    """Full commit id: the base branch."""
    commit: str
    """Of our own, never published: its tree holds git's markers where the two are in conflict."""
    conflicts: tuple[str, ...]
    """Paths that the two changed in ways that git cannot put together; empty: it could."""

    @property
    def parents(self) -> tuple[str, str]:
        return self.into, self.of


async def merge(workspace: Workspace, other: str) -> Merge | None:
    """Merge the commit `other`, which has to be in the repository, into base; None: base has it already.

    The same two commits give the same merge. Raises WorkspaceError, also where they have no history in common.
    """
    git_dir, base = workspace.git_dir, workspace.base
    if await is_ancestor(git_dir, other, base):
        return None
    told = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", base, other)
    try:
        printed = await run_git(*told, git_dir=git_dir)
    except GitFailed as exc:
        if exc.exit_code != CONFLICTS:
            raise WorkspaceError(f"{other[:12]} cannot be merged into {base[:12]}: {exc.reason}") from exc
        printed = exc.stdout
    tree, *paths = [shown(field) for field in printed.split(b"\0") if field]
    if len(paths) > MOST_NAMED:
        raise WorkspaceError(
            f"{other[:12]} and {base[:12]} are in conflict in {len(paths)} files; {MOST_NAMED} are the limit."
        )
    epoch = datetime.fromtimestamp(0, UTC)  # the same commit, whenever it is made again
    commit = await workspace.commit_tree(
        tree,
        "Merge, with what is in conflict",
        author=("Patchwright", "merge"),
        when=epoch,
        parents=(base, other),
    )
    return Merge(into=base, of=other, commit=commit, conflicts=tuple(dict.fromkeys(paths)))


async def unresolved(workspace: Workspace, patch: Patch, merge: Merge) -> tuple[str, ...]:
    """The paths in conflict that still hold git's markers when the patch is on the merge. Raises WorkspaceError."""
    if not merge.conflicts:
        return ()
    tree = await workspace.tree(patch)
    try:
        found = await run_git(
            *("grep", "--files-with-matches", "-z", "-E", MARKERS, tree, "--", *merge.conflicts),
            git_dir=workspace.git_dir,
        )
    except GitFailed as exc:
        if exc.exit_code != 1:
            raise
        return ()
    return tuple(shown(name).partition(":")[2] for name in found.split(b"\0") if name)


async def is_ancestor(git_dir: Path, old: str, new: str) -> bool:
    """Whether `new` has `old` in its history."""
    try:
        await run_git("merge-base", "--is-ancestor", old, new, git_dir=git_dir)
    except GitFailed as exc:
        if exc.exit_code != 1:
            raise
        return False
    return True
