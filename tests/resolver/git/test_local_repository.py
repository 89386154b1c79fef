"""Changes that are not committed are reported before a local run, and can be part of its base."""

import os
import subprocess
from pathlib import Path

import pytest

from patchwright.resolver.errors import UsageError
from patchwright.resolver.git.local_repository import (
    commit_uncommitted_changes,
    describe_uncommitted_changes,
    read_uncommitted_changes,
)
from patchwright.resolver.git.workspaces import WorkspaceFactory
from tests.resolver.git_repository import Repository


async def test_uncommitted_files_are_counted(workspaces: WorkspaceFactory, repository: Repository) -> None:
    repository.commit({"a.py": "1\n", ".gitignore": "*.log\n"})

    async def describe(*, is_included: bool = False) -> str | None:
        async with workspaces.local(repository.path) as workspace:
            return await describe_uncommitted_changes(workspace, repository.path, is_included=is_included)

    repository.write("run.log", "ignored")
    assert await describe() is None
    repository.write("a.py", "2\n")
    sentence = await describe()
    assert sentence is not None and sentence.startswith("Using HEAD (")
    assert sentence.endswith("; 1 modified file is not included. Add --include-changes to include it.")
    repository.write("b.py", "3\n")
    repository.write("new/c.py", "3\n")
    assert "1 modified and 2 new files are not included. Add --include-changes to include them." in (
        await describe() or ""
    )
    repository.write("a.py", "1\n")
    assert (await describe(is_included=True) or "").endswith("); 2 new files are included.")


async def test_uncommitted_changes_become_a_base_and_the_repository_stays_as_it_is(
    workspaces: WorkspaceFactory, repository: Repository
) -> None:
    head = repository.commit({"a.py": "1\n", "b.py": "1\n", "c.py": "1\n", ".gitignore": "*.log\n"})
    (repository.path / ".git/info").mkdir(exist_ok=True)
    (repository.path / ".git/info/exclude").write_text("private\n")
    for path, content in {
        "a.py": "2\n",
        "run.log": "x",
        "private": "x",
        "kept.log": "x",
        "new/d": b"\xff\0",
    }.items():
        repository.write(path, content)
    os.utime(repository.path / "kept.log", (1, 1))  # git does not read a file that is older than the index
    repository.git("add", "--force", "kept.log", "a.py")
    (repository.path / "b.py").unlink()
    # A file outside of a sparse checkout is absent, but not deleted.
    repository.git("update-index", "--skip-worktree", "c.py")
    (repository.path / "c.py").unlink()
    repository.write("a.py", "3\n")  # staged, then changed again
    marker = repository.path.parent / "hook-ran"
    repository.git("config", "filter.evil.clean", f"touch {marker}; cat")
    repository.git("config", "core.fsmonitor", f"touch {marker}")
    repository.write(".gitattributes", "*.py filter=evil\n")

    def state() -> dict[str, bytes]:
        return {str(file): file.read_bytes() for file in repository.path.rglob("*") if file.is_file()}

    before = state()
    async with workspaces.local(repository.path) as workspace:
        changes = await read_uncommitted_changes(workspace, repository.path)
        assert changes is not None and changes.base_sha == head
        included = await commit_uncommitted_changes(workspace, changes)
        assert await included.list_files() == (
            ".gitattributes", ".gitignore", "a.py", "c.py", "kept.log", "new/d",
        )  # fmt: skip
        assert await included.read("a.py") == "3\n"
        assert included.config_source.base == included.base  # uncommitted settings apply, too
    assert (state(), marker.exists()) == (before, False)
    # A resumed run has the same base, even if the work tree has changed meanwhile.
    repository.write("a.py", "4\n")
    async with workspaces.local(repository.path, changes.base_sha) as workspace:
        assert (await commit_uncommitted_changes(workspace, changes)).base == included.base


async def test_too_large_changes_are_rejected(workspaces: WorkspaceFactory, repository: Repository) -> None:
    repository.commit({"a.py": "1\n"})
    async with workspaces.local(repository.path) as workspace:
        assert await read_uncommitted_changes(workspace, repository.path) is None
        repository.write("small", "x")
        repository.write("data.bin", os.urandom(5_000_000))
        with pytest.raises(UsageError, match=r"the limit is 4 MB.*The largest: data\.bin, small"):
            await read_uncommitted_changes(workspace, repository.path)


async def test_changes_of_a_linked_work_tree_are_found(workspaces: WorkspaceFactory, tmp_path: Path) -> None:
    repository, linked = Repository(tmp_path / 'with: "quotes"'), tmp_path / "linked"
    repository.commit({"a.py": "1\n"})
    repository.git("worktree", "add", "--quiet", str(linked))
    for arguments in (("add", "--intent-to-add", "b.py"), ("update-index", "--split-index", "--add", "a.py")):
        (linked / "a.py").write_text("2\n")
        (linked / "b.py").write_text("3\n")
        subprocess.run(["git", "-C", linked, *arguments], check=True)
    async with workspaces.local(linked) as workspace:
        changes = await read_uncommitted_changes(workspace, linked)
    assert changes is not None and b"\n+2\n" in changes.diff and b"\n+3\n" in changes.diff
