"""Reads the HEAD of a repository on this disk, and the uncommitted changes in its work tree."""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from patchwright.resolver.domain import Patch
from patchwright.resolver.errors import RepositoryUnusable, UsageError
from patchwright.resolver.git.git_process import run_git
from patchwright.resolver.git.repository import Workspace
from patchwright.resolver.git.tree_transfer import MAX_DIFF, MAX_LISTED_PATHS
from patchwright.runtime.frozen_model import FrozenModel

AUTHOR = ("Patchwright", "patchwright@noreply.invalid")


class LocalRepository(FrozenModel):
    """A repository on this disk."""

    git_dir: Path
    objects: Path
    """Directory with the objects; a linked work tree shares it with the other work trees."""
    branch: str | None
    """Name of the current branch; None if HEAD is detached."""
    empty: bool
    ignore_files: tuple[Path, ...]
    """Files with ignore patterns that are not part of the work tree. They need not exist."""
    has_file_modes: bool
    """False if git ignores the executable bit in the work tree."""


def inspect_repository(path: Path) -> LocalRepository:
    """Reads the files of a repository with GitPython, without starting a git process in it. Raises
    RepositoryUnusable.
    """
    try:
        for name in ("", ".git", ".git/HEAD", ".git/objects", ".git/refs"):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.close(os.open(path / name, os.O_RDONLY))
    except PermissionError as exc:  # GitPython would say that the repository has no commit.
        raise RepositoryUnusable(
            f"You have no permission to read {exc.filename}. Ask its owner for access, or run this as its owner."
        ) from exc
    import git  # The import takes 120 ms, and only runs on local repositories need it.

    try:
        with git.Repo(path, expand_vars=False) as repo, repo.config_reader() as config:
            empty = False
            try:
                git.SymbolicReference.dereference_recursive(repo, "HEAD")
            except ValueError:  # The branch that HEAD names has no commit yet.
                empty = True
            common_dir = Path(repo.common_dir).absolute()
            global_ignores = config.get_value("core", "excludesfile", "~/.config/git/ignore")
            return LocalRepository(
                git_dir=Path(repo.git_dir).absolute(),
                objects=common_dir / "objects",
                branch=None if repo.head.is_detached else repo.head.reference.name,
                empty=empty,
                ignore_files=(Path(str(global_ignores)).expanduser(), common_dir / "info/exclude"),
                has_file_modes=bool(config.get_value("core", "filemode", True)),
            )
    except git.exc.NoSuchPathError as exc:
        raise RepositoryUnusable(f"There is no directory {path}. Check --repo.") from exc
    except (git.exc.InvalidGitRepositoryError, ValueError, OSError) as exc:
        raise RepositoryUnusable(
            f"{path} is not a git repository: use the directory that contains .git."
        ) from exc


def copy_ignore_patterns(source: LocalRepository, file: Path) -> None:
    """Copies the ignore patterns that are not part of the work tree to one file, in git's order of priority."""
    texts = (ignore_file.read_bytes() for ignore_file in source.ignore_files if ignore_file.is_file())
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"".join(text + b"\n" for text in texts))


async def describe_uncommitted_changes(
    workspace: Workspace, path: Path, *, is_included: bool = False
) -> str | None:
    """Returns a sentence about the files in the work tree `path` that differ from the workspace's base.
    Returns None if no file differs. `is_included` says whether the run includes these changes.
    """
    if not (path / ".git").exists():
        return None  # a bare repository has no work tree
    async with _work_tree_git(workspace, path) as git:
        status = await git(
            "status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all", "--untracked-files=all"
        )
    entries = [entry for entry in status.split(b"\0") if entry]
    if not entries:
        return None
    new = sum(entry.startswith(b"??") for entry in entries)
    counts = ((len(entries) - new, "modified"), (new, "new"))
    files = " and ".join(f"{count} {kind}" for count, kind in counts if count)
    verb, pronoun = ("file is", "it") if len(entries) == 1 else ("files are", "them")
    hint = "" if is_included else f" Add --include-changes to include {pronoun}."
    included = "included" if is_included else "not included"
    return f"Using HEAD ({workspace.base[:7]}); {files} {verb} {included}.{hint}"


async def read_uncommitted_changes(workspace: Workspace, path: Path) -> Patch | None:
    """Returns the difference between the workspace's base and the work tree `path`: changed files and new
    files that git does not ignore. Returns None if there is no difference.

    Raises UsageError if the difference exceeds MAX_DIFF, and WorkspaceError if git cannot read a file.
    """
    if not (path / ".git").exists():
        return None
    async with _work_tree_git(workspace, path) as git:
        await git("add", "--all")
        compare = partial(git, "diff-index", "--cached", "--no-renames", workspace.base)
        with tempfile.TemporaryFile(dir=workspace.git_dir) as file:
            await compare("-p", "--binary", "--full-index", "--no-color", stdout_file=file)
            if (size := file.tell()) > MAX_DIFF:
                names = [
                    os.fsdecode(name) for name in (await compare("--name-only", "-z")).split(b"\0") if name
                ]
                raise UsageError(
                    f"--include-changes: the changes in {path} have {size / 1e6:.1f} MB; the limit is "
                    f"{MAX_DIFF // 1_000_000} MB. Commit large files or add them to .gitignore. The largest: "
                    f"{', '.join(await asyncio.to_thread(_largest_files, path, names))}"
                )
            file.seek(0)
            patch = Patch(base_sha=workspace.base, diff=file.read())
    return None if patch.is_empty else patch


async def commit_uncommitted_changes(workspace: Workspace, changes: Patch) -> Workspace:
    """Returns the workspace with a base that includes the changes. Equal arguments result in the same base."""
    date = await run_git("log", "-1", "--format=%ct", workspace.base, git_dir=workspace.git_dir)
    commit = await workspace.commit(
        changes, "Uncommitted changes", author=AUTHOR, when=datetime.fromtimestamp(int(date), UTC)
    )
    return Workspace(workspace.git_dir, commit, workspace.base_branch)


def _largest_files(root: Path, names: list[str]) -> list[str]:
    def size(name: str) -> int:
        return (root / name).lstat().st_size if os.path.lexists(root / name) else 0

    return sorted(names, key=size, reverse=True)[:MAX_LISTED_PATHS]


@contextlib.asynccontextmanager
async def _work_tree_git(workspace: Workspace, path: Path) -> AsyncIterator[Callable[..., Awaitable[bytes]]]:
    """Yields a function that runs git in the work tree `path`, with a copy of its index.

    Git uses the workspace's own git directory. Therefore, the repository at `path` stays unchanged, and its
    settings cannot start a program.
    """
    source = await asyncio.to_thread(inspect_repository, path)
    with tempfile.TemporaryDirectory(prefix="index-", dir=workspace.git_dir) as scratch:
        has_index = await asyncio.to_thread(_copy_index, source, workspace.git_dir, Path(scratch))
        # Staged files may not be committed yet. The quotes protect a colon in the path.
        objects = str(source.objects).replace("\\", "\\\\").replace('"', '\\"')
        git = partial(
            run_git,
            git_dir=workspace.git_dir,
            environment={
                "GIT_INDEX_FILE": f"{scratch}/index",
                "GIT_WORK_TREE": str(path),
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{objects}"',
            },
            config={
                "core.excludesFile": f"{scratch}/ignored",
                "core.fileMode": str(source.has_file_modes).lower(),
            },
        )
        if not has_index:
            await git("read-tree", workspace.base)
        yield git


def _copy_index(source: LocalRepository, git_dir: Path, scratch: Path) -> bool:
    """Copies the index to the directory `scratch`, and all ignore patterns to one file in this directory.
    Returns False if there is no index.
    """
    copy_ignore_patterns(source, scratch / "ignored")
    if not (source.git_dir / "index").is_file():
        return False
    # `copy2` keeps the time of the index, with which git recognizes files that were changed later.
    shutil.copy2(source.git_dir / "index", scratch / "index")
    for part in source.git_dir.glob("sharedindex.*"):
        shutil.copy2(part, git_dir / part.name)
    return True
