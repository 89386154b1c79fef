"""Changes that are not committed are reported before a local run."""

from pathlib import Path

from patchwright.resolver.git.uncommitted import describe_uncommitted_changes
from patchwright.resolver.workspaces import WorkspaceFactory
from tests.resolver.git_repository import Repository


async def test_uncommitted_files_are_counted(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "calc")
    repository.commit({"a.py": "1\n", ".gitignore": "*.log\n"})

    async def describe() -> str | None:
        async with WorkspaceFactory(tmp_path / "cache").local(repository.path) as workspace:
            return await describe_uncommitted_changes(workspace, repository.path)

    (repository.path / "run.log").write_text("ignored")
    assert await describe() is None
    (repository.path / "a.py").write_text("2\n")
    sentence = await describe()
    assert sentence is not None and sentence.startswith("Using HEAD (")
    assert sentence.endswith("); 1 modified file is not included. Commit changes to include them.")
    (repository.path / "b.py").write_text("3\n")
    assert "2 modified files are not included" in (await describe() or "")
