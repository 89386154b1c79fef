"""Builds a git repository from files, for instances whose data set contains files instead of a repository."""

from collections.abc import Mapping
from pathlib import Path

from patchwright.resolver.git.git_process import run_git

Files = Mapping[str, bytes]
"""Contents of files by path."""

_IDENTITY = "Upstream <upstream@example.org> 1000000000 +0000"
_MAIN, _CHANGE = "refs/heads/main", "refs/patchwright/change"


class BuiltRepository:
    """A bare repository with one commit. Equal files give an equal commit, so that a killed evaluation continues."""

    def __init__(self, path: Path, commit: str) -> None:
        self.path = path
        self.commit = commit

    @classmethod
    async def create(cls, path: Path, files: Files, tag: str = "") -> "BuiltRepository":
        """Commits the files on a new branch `main`. If there is a tag, it names the commit."""
        await run_git("init", "--quiet", "--bare", "--template=", "--initial-branch=main", str(path))
        return cls(path, await _import_commit(path, _MAIN, files, tag))

    async def diff(self, files: Files) -> str:
        """Returns the patch from the commit to these files."""
        changed = await _import_commit(self.path, _CHANGE, files)
        diff = await run_git(
            *("diff-tree", "-r", "-p", "--full-index", "--no-renames", "--no-color", "--binary"),
            *(self.commit, changed),
            git_dir=self.path,
        )
        return diff.decode(errors="replace")


async def _import_commit(git_dir: Path, ref: str, files: Files, tag: str = "") -> str:
    """Commits the files without a parent, in one process. Returns the commit's ID.

    Source: git-scm.com/docs/git-fast-import
    """
    stream = [
        f"commit {ref}\ncommitter {_IDENTITY}\n".encode(),
        _format_data((tag or "Start").encode()),
        b"deleteall\n",
    ]
    for path, content in sorted(files.items()):
        quoted = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        stream += [f'M 100644 inline "{quoted}"\n'.encode(errors="surrogateescape"), _format_data(content)]
    if tag:
        stream += [f"tag {tag}\nfrom {ref}\ntagger {_IDENTITY}\n".encode(), _format_data(tag.encode())]
    await run_git("update-ref", "-d", ref, git_dir=git_dir)
    await run_git("fast-import", "--quiet", "--force", git_dir=git_dir, stdin=b"".join(stream))
    return (await run_git("rev-parse", ref, git_dir=git_dir)).decode().strip()


def _format_data(content: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(content), content)
