"""Merging the base branch into a pull request's head without a work tree."""

import pytest

from patchwright.resolver.domain import Patch
from patchwright.resolver.errors import WorkspaceError
from patchwright.resolver.git.git_process import run_git
from patchwright.resolver.git.merge import find_unresolved, merge_commit
from patchwright.resolver.git.repository import Workspace
from tests.resolver.git_repository import Repository

BASE = {"calc.py": "def add(a, b):\n    return a - b\n", "notes.txt": "one\n"}


@pytest.fixture
def repository(tmp_path) -> Repository:
    repo = Repository(tmp_path / "source")
    repo.commit(BASE)
    repo.git("branch", "topic")
    return repo


def commit_on(repository: Repository, branch: str, **files: str) -> str:
    repository.git("checkout", "--quiet", branch)
    return repository.commit({name.replace("_", "."): content for name, content in files.items()})


def workspace_at(repository: Repository, commit: str) -> Workspace:
    return Workspace(repository.path / ".git", commit, None)


async def test_a_clean_merge_makes_a_commit_with_two_parents(repository) -> None:
    head, base = (
        commit_on(repository, "topic", calc_py="x = 1\n"),
        commit_on(repository, "main", notes_txt="two\n"),
    )
    merge = await merge_commit(workspace_at(repository, head), base)
    assert merge is not None
    assert merge.conflicts == ()
    assert merge.parents == (head, base)
    assert repository.git("show", "-s", "--format=%P", merge.commit) == f"{head} {base}"
    assert repository.git("show", f"{merge.commit}:calc.py") == "x = 1"
    assert repository.git("show", f"{merge.commit}:notes.txt") == "two"


async def test_conflicts_are_listed_and_marked(repository) -> None:
    head, base = (
        commit_on(repository, "topic", calc_py="x = 1\n"),
        commit_on(repository, "main", calc_py="x = 2\n"),
    )
    merge = await merge_commit(workspace_at(repository, head), base)
    assert merge is not None
    assert merge.conflicts == ("calc.py",)
    marked = repository.git("show", f"{merge.commit}:calc.py")
    assert "<<<<<<<" in marked and "x = 1" in marked and "x = 2" in marked


async def test_remaining_markers_are_found_only_in_conflicted_files(repository) -> None:
    repository.git("checkout", "--quiet", "topic")
    head = repository.commit({"a b.py": "x = 1\n", "calc.py": "x = 1\n", "doc.md": "<<<<<<< is a marker\n"})
    repository.git("checkout", "--quiet", "main")
    base = repository.commit({"a b.py": "x = 2\n", "calc.py": "x = 2\n"})
    workspace = workspace_at(repository, head)
    merge = await merge_commit(workspace, base)
    assert merge is not None
    merge_workspace = workspace.with_base(merge.commit)
    assert await find_unresolved(merge_workspace, Patch(base_sha=merge.commit, diff=b""), merge) == (
        "a b.py",
        "calc.py",
    )
    repository.git("checkout", "--quiet", merge.commit)
    repository.write("calc.py", "x = 3\n")
    half_resolved = Patch(base_sha=merge.commit, diff=repository.git("diff", "--full-index").encode() + b"\n")
    assert await find_unresolved(merge_workspace, half_resolved, merge) == ("a b.py",)


async def test_the_same_merge_is_always_the_same_commit(repository) -> None:
    head, base = (
        commit_on(repository, "topic", calc_py="x = 1\n"),
        commit_on(repository, "main", calc_py="x = 2\n"),
    )
    assert await merge_commit(workspace_at(repository, head), base) == await merge_commit(
        workspace_at(repository, head), base
    )


async def test_a_base_in_the_heads_history_needs_no_merge(repository) -> None:
    base = repository.git("rev-parse", "main")
    assert (
        await merge_commit(workspace_at(repository, commit_on(repository, "topic", calc_py="x = 1\n")), base)
        is None
    )


async def test_unrelated_histories_are_an_error(repository) -> None:
    repository.git("checkout", "--quiet", "--orphan", "other")
    other = repository.commit({"calc.py": "y = 1\n"})
    with pytest.raises(WorkspaceError, match="cannot be merged"):
        await merge_commit(workspace_at(repository, repository.git("rev-parse", "main")), other)


async def test_neither_branch_can_configure_the_merge(repository, tmp_path) -> None:
    """Git starts a merge driver only if its own configuration defines it, and Patchwright's defines none."""
    marker = tmp_path / "ran"
    attributes = {".gitattributes": "* merge=evil\n"}
    repository.git("checkout", "--quiet", "topic")
    head = repository.commit({**attributes, "calc.py": "x = 1\n"})
    repository.git("checkout", "--quiet", "main")
    base = repository.commit({**attributes, "calc.py": "x = 2\n"})
    repository.git("config", "merge.evil.driver", f"touch {marker}; true")
    bare = tmp_path / "bare.git"
    await run_git("init", "--quiet", "--bare", "--template=", str(bare))
    await run_git(
        *("fetch", "--quiet", str(repository.path), "+refs/heads/*:refs/heads/*"),
        git_dir=bare,
        protocols="file",
    )
    merge = await merge_commit(Workspace(bare, head, None), base)
    assert merge is not None and merge.conflicts == ("calc.py",)
    assert not marker.exists()
