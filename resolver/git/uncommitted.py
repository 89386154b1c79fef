"""Describes the changes in a local repository that are not committed."""

from pathlib import Path

from patchwright.resolver.git.git_process import run_git
from patchwright.resolver.git.repository import Workspace


async def describe_uncommitted_changes(workspace: Workspace, path: Path) -> str | None:
    """Returns a sentence that says how many files in the work tree `path` differ from the workspace's base.
    Returns None if no file differs.

    The function uses the workspace's own git directory, so that no setting of the repository at `path` starts
    a program.
    """
    if not (path / ".git").exists():
        return None  # a bare repository has no work tree
    git_dir = workspace.git_dir
    await run_git("read-tree", workspace.base, git_dir=git_dir)
    status = await run_git(
        "--work-tree", str(path), "status", "--porcelain", "-z", "--ignore-submodules=all", git_dir=git_dir
    )
    count = sum(1 for entry in status.split(b"\0") if entry)
    if not count:
        return None
    files = "1 modified file is" if count == 1 else f"{count} modified files are"
    return f"Using HEAD ({workspace.base[:7]}); {files} not included. Commit changes to include them."
