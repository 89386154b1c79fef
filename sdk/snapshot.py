"""Records the state of a directory in a bare repository of its own, so that later changes can be read as a patch.

The directory itself stays as it is: no file is added, and git settings of the directory have no effect.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from patchwright.resolver.domain import Patch
from patchwright.resolver.errors import RepositoryUnusable, WorkspaceError
from patchwright.resolver.git.git_process import GitFailed, run_git
from patchwright.resolver.git.local_repository import commit_uncommitted_changes, read_uncommitted_changes
from patchwright.resolver.git.tree_transfer import LEFTOVERS, MAX_DIFF
from patchwright.resolver.git.workspaces import Workspace, WorkspaceFactory

_IDENTITY = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (
        ("NAME", "Patchwright"),
        ("EMAIL", "patchwright@noreply.invalid"),
        ("DATE", "2000-01-01T00:00:00Z"),
    )
}


class Snapshot:
    """The state of a directory at one time."""

    def __init__(self, repository: Workspace, path: Path) -> None:
        self.repository = repository
        """A bare repository whose base is this state."""
        self._path = path

    async def take_patch(self) -> Patch:
        """Returns the difference between this state and the directory now."""
        git = self.repository.git_dir
        environment = {"GIT_INDEX_FILE": f"{git}/directory-index", "GIT_WORK_TREE": str(self._path)}
        await run_git("add", "--all", git_dir=git, environment=environment)
        arguments = ("diff-index", "--cached", "--no-renames", "-p", "--binary", "--full-index", "--no-color")
        with tempfile.TemporaryFile(dir=git) as file:
            await run_git(
                *arguments, self.repository.base, git_dir=git, environment=environment, stdout_file=file
            )
            if (size := file.tell()) > MAX_DIFF:
                raise WorkspaceError(
                    f"The changes in {self._path} have {size / 1e6:.1f} MB; the limit is {MAX_DIFF // 1_000_000} MB."
                )
            file.seek(0)
            return Patch(base_sha=self.repository.base, diff=file.read())

    async def apply(self, patch: Patch) -> None:
        """Writes the changes of a patch to the directory. Raises WorkspaceError if a changed file has meanwhile been
        changed in the directory, too; no file is written then.
        """
        git = self.repository.git_dir
        try:
            await run_git(
                *("-C", str(self._path), "apply", "--binary", "--whitespace=nowarn", "-"),
                git_dir=git,
                environment={"GIT_WORK_TREE": str(self._path)},
                stdin=patch.diff,
            )
        except GitFailed as exc:
            raise WorkspaceError(f"The changes cannot be written to {self._path}: {exc.reason}") from exc


@contextlib.asynccontextmanager
async def take_snapshot(path: Path, cache: Path) -> AsyncIterator[Snapshot]:
    """Records the directory as it is, with changes that are not committed. The record is removed when the context
    exits. If the directory is a git repository, the record has its history, too.
    """
    factory = WorkspaceFactory(cache)
    async with contextlib.AsyncExitStack() as stack:
        repository = None
        if (path / ".git").exists():
            with contextlib.suppress(RepositoryUnusable):  # It has no commit yet.
                repository = await stack.enter_async_context(factory.local(path))
        if repository is None:
            git_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="patchwright-snapshot-")))
            repository = await _record_directory(git_dir, path)
        elif changes := await read_uncommitted_changes(repository, path):
            repository = await commit_uncommitted_changes(repository, changes)
        yield Snapshot(repository, path)


async def _record_directory(git_dir: Path, path: Path) -> Workspace:
    await run_git("init", "--quiet", "--bare", "--template=", "--initial-branch=base", str(git_dir))
    await asyncio.to_thread(_write_ignore_patterns, git_dir)
    environment = {"GIT_INDEX_FILE": f"{git_dir}/directory-index", "GIT_WORK_TREE": str(path)}
    await run_git("add", "--all", git_dir=git_dir, environment=environment)
    tree = (await run_git("write-tree", git_dir=git_dir, environment=environment)).decode().strip()
    message = ("-m", "The directory as it was")
    commit = await run_git("commit-tree", tree, *message, git_dir=git_dir, environment=_IDENTITY)
    base = commit.decode().strip()
    await run_git("update-ref", "refs/heads/base", base, git_dir=git_dir)
    return Workspace(git_dir=git_dir, base=base, base_branch=None)


def _write_ignore_patterns(git_dir: Path) -> None:
    (git_dir / "info").mkdir(exist_ok=True)
    patterns = (f"**/{name}" if "/" in name.rstrip("/") else name for name in LEFTOVERS)
    (git_dir / "info/exclude").write_text("\n".join(patterns) + "\n")
