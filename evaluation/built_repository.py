"""Builds a git repository from files, for instances whose data set contains files instead of a repository."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from patchwright.resolver.git.git_process import run_git

Files = Mapping[str, bytes]
"""Contents of files by path."""

_IDENTITY = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "Upstream"), ("EMAIL", "upstream@example.org"), ("DATE", "@1000000000 +0000"))
}


class BuiltRepository:
    """A bare repository with one commit. Equal files give an equal commit, so that a killed evaluation continues."""

    def __init__(self, path: Path, commit: str, files: Files) -> None:
        self.path = path
        self.commit = commit
        self._files = files

    @classmethod
    async def create(cls, path: Path, files: Files, tag: str = "") -> "BuiltRepository":
        """Commits the files on a new branch `main`. If there is a tag, it names the commit."""
        await run_git("init", "--quiet", "--bare", "--template=", "--initial-branch=main", str(path))
        tree = await _write_tree(path, files)
        commit = await run_git("commit-tree", tree, "-m", tag or "Start", git_dir=path, environment=_IDENTITY)
        name = commit.decode().strip()
        await run_git("update-ref", "refs/heads/main", name, git_dir=path)
        if tag:
            await run_git("tag", "--force", "-a", tag, name, "-m", tag, git_dir=path, environment=_IDENTITY)
        return cls(path, name, files)

    async def diff(self, files: Files) -> str:
        """Returns the patch from the commit to these files. Binary files are left out of it."""
        tree = await _write_tree(self.path, files)
        diff = await run_git(
            *("diff-tree", "-r", "-p", "--full-index", "--no-renames", "--no-color", "--binary"),
            *(self.commit, tree),
            git_dir=self.path,
        )
        return diff.decode(errors="surrogateescape").encode(errors="replace").decode()


async def _write_tree(git_dir: Path, files: Files) -> str:
    """Stores the files, and returns the ID of their tree."""
    index = {"GIT_INDEX_FILE": str(git_dir / f"index-{id(files)}")}
    rows = []
    for path, content in sorted(files.items()):
        blob = await run_git("hash-object", "-w", "--stdin", git_dir=git_dir, stdin=content)
        rows.append(b"100644 " + blob.strip() + b"\t" + path.encode(errors="surrogateescape") + b"\0")
    try:
        await run_git(
            "update-index",
            "--add",
            "-z",
            "--index-info",
            git_dir=git_dir,
            environment=index,
            stdin=b"".join(rows),
        )
        tree = await run_git("write-tree", git_dir=git_dir, environment=index)
    finally:
        await asyncio.to_thread(Path(index["GIT_INDEX_FILE"]).unlink, missing_ok=True)
    return tree.decode().strip()
