"""The base branch merged into a pull request's head, without a work tree."""

import pytest

from resolver.domain import Patch
from resolver.errors import WorkspaceError
from resolver.git.merging import merge, unresolved
from resolver.git.plumbing import run_git
from resolver.git.repository import Workspace
from tests.resolver.repositories import Repository

BASE = {"calc.py": "def add(a, b):\n    return a - b\n", "notes.txt": "one\n"}


@pytest.fixture
def repository(tmp_path) -> Repository:
    made = Repository(tmp_path / "source")
    made.commit(BASE)
    made.git("branch", "topic")
    return made


def on(repository: Repository, branch: str, **files: str) -> str:
    repository.git("checkout", "--quiet", branch)
    return repository.commit({name.replace("_", "."): content for name, content in files.items()})


def at(repository: Repository, commit: str) -> Workspace:
    return Workspace(repository.path / ".git", commit, None)


async def test_two_changes_of_different_files_become_a_commit_with_two_parents(repository) -> None:
    head, base = on(repository, "topic", calc_py="x = 1\n"), on(repository, "main", notes_txt="two\n")
    merged = await merge(at(repository, head), base)
    assert merged is not None
    assert merged.conflicts == ()
    assert merged.parents == (head, base)
    assert repository.git("show", "-s", "--format=%P", merged.commit) == f"{head} {base}"
    assert repository.git("show", f"{merged.commit}:calc.py") == "x = 1"
    assert repository.git("show", f"{merged.commit}:notes.txt") == "two"


async def test_what_is_in_conflict_is_named_and_marked(repository) -> None:
    head, base = on(repository, "topic", calc_py="x = 1\n"), on(repository, "main", calc_py="x = 2\n")
    merged = await merge(at(repository, head), base)
    assert merged is not None
    assert merged.conflicts == ("calc.py",)
    marked = repository.git("show", f"{merged.commit}:calc.py")
    assert "<<<<<<<" in marked and "x = 1" in marked and "x = 2" in marked


async def test_markers_that_are_left_are_found_where_the_conflict_was_and_nowhere_else(repository) -> None:
    repository.git("checkout", "--quiet", "topic")
    head = repository.commit({"a b.py": "x = 1\n", "calc.py": "x = 1\n", "doc.md": "<<<<<<< is a marker\n"})
    repository.git("checkout", "--quiet", "main")
    base = repository.commit({"a b.py": "x = 2\n", "calc.py": "x = 2\n"})
    workspace = at(repository, head)
    merged = await merge(workspace, base)
    assert merged is not None
    there = workspace.at_commit(merged.commit)
    assert await unresolved(there, Patch(base=merged.commit, diff=b""), merged) == ("a b.py", "calc.py")
    repository.git("checkout", "--quiet", merged.commit)
    repository.write("calc.py", "x = 3\n")
    half = Patch(base=merged.commit, diff=repository.git("diff", "--full-index").encode() + b"\n")
    assert await unresolved(there, half, merged) == ("a b.py",)


async def test_the_same_merge_is_the_same_commit_whenever_it_is_made(repository) -> None:
    head, base = on(repository, "topic", calc_py="x = 1\n"), on(repository, "main", calc_py="x = 2\n")
    assert await merge(at(repository, head), base) == await merge(at(repository, head), base)


async def test_a_base_that_the_head_has_already_needs_no_merge(repository) -> None:
    base = repository.git("rev-parse", "main")
    assert await merge(at(repository, on(repository, "topic", calc_py="x = 1\n")), base) is None


async def test_histories_that_have_nothing_in_common_are_told_so(repository) -> None:
    repository.git("checkout", "--quiet", "--orphan", "other")
    other = repository.commit({"calc.py": "y = 1\n"})
    with pytest.raises(WorkspaceError, match="cannot be merged"):
        await merge(at(repository, repository.git("rev-parse", "main")), other)


async def test_neither_side_decides_how_git_merges(repository, tmp_path) -> None:
    """A merge driver that the tree asks for is started by git's configuration alone, and ours has none."""
    ran = tmp_path / "ran"
    attributes = {".gitattributes": "* merge=evil\n"}
    repository.git("checkout", "--quiet", "topic")
    head = repository.commit({**attributes, "calc.py": "x = 1\n"})
    repository.git("checkout", "--quiet", "main")
    base = repository.commit({**attributes, "calc.py": "x = 2\n"})
    repository.git("config", "merge.evil.driver", f"touch {ran}; true")
    bare = tmp_path / "bare.git"
    await run_git("init", "--quiet", "--bare", "--template=", str(bare))
    await run_git(
        *("fetch", "--quiet", str(repository.path), "+refs/heads/*:refs/heads/*"),
        git_dir=bare,
        protocols="file",
    )
    merged = await merge(Workspace(bare, head, None), base)
    assert merged is not None and merged.conflicts == ("calc.py",)
    assert not ran.exists()
