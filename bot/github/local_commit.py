"""Reads a commit from a local bare repository, and checks whether GitHub's API can publish it."""

from pathlib import Path
from typing import NamedTuple

from patchwright.bot.github.schemas import CommitResponse
from patchwright.resolver.git.git_process import run_git
from patchwright.resolver.publishing.publishing_texts import render_unsigned_reason

# GitHub documents no limits. Other projects report that a commit of 40 MiB fails, and that requests with
# several hundred files time out: grafana/github-api-commit-action#66, PostHog/context-mill#362.
MAX_FILES = 100
MAX_BYTES = 20_000_000  # bytes of all files together; they take 27 MB in base64
REGULAR_FILE, ABSENT, SUBMODULE = "100644", "000000", "160000"


class LocalCommit(NamedTuple):
    """A commit in the local repository."""

    sha: str
    tree: str
    parents: tuple[str, ...]
    headline: str
    body: str

    def matches(self, response: CommitResponse) -> bool:
        """Returns whether GitHub's commit has the same tree and the same parents. Does not compare signatures
        or authors.
        """
        return (response.tree.sha, tuple(one.sha for one in response.parents)) == (self.tree, self.parents)


class FileChanges(NamedTuple):
    """Changes to regular files."""

    additions: dict[str, bytes]
    """New contents by path."""
    deletions: tuple[str, ...]


async def read_commit(git_dir: Path, commit: str) -> LocalCommit:
    """Reads a commit. Raises GitFailed if it does not exist."""
    output = await run_git("show", "-s", "--format=%H%n%T%n%P%n%B", commit, git_dir=git_dir)
    sha, tree, parents, message = output.decode(errors="replace").split("\n", 3)
    headline, _, body = message.strip().partition("\n")
    return LocalCommit(sha, tree, tuple(parents.split()), headline, body.strip())


async def read_file_changes(git_dir: Path, commit: LocalCommit, parent: str) -> FileChanges | str:
    """Returns the changes of a commit in the form that `createCommitOnBranch` needs. If the API cannot publish
    the commit, returns the reason as a sentence.
    """
    if commit.parents != (parent,):
        return render_unsigned_reason("merge", "")
    raw = await run_git(
        *("diff-tree", "-r", "-z", "--raw", "--no-renames", parent, commit.sha), git_dir=git_dir
    )
    fields = raw.split(b"\0")
    blob_ids, deletions = dict[str, str](), list[str]()
    for metadata, name in zip(fields[::2], fields[1::2], strict=False):
        old_mode, mode, _, object_id, _ = metadata.decode().lstrip(":").split()
        try:
            path = name.decode()
        except UnicodeDecodeError:
            return render_unsigned_reason("name", name.decode(errors="backslashreplace"))
        is_deleted = mode == ABSENT and old_mode != SUBMODULE
        if not is_deleted and not (mode == REGULAR_FILE and old_mode in (REGULAR_FILE, ABSENT)):
            return render_unsigned_reason("mode", path)
        if mode == ABSENT:
            deletions.append(path)
        else:
            blob_ids[path] = object_id
    if len(blob_ids) + len(deletions) > MAX_FILES:
        return render_unsigned_reason("files", str(len(blob_ids) + len(deletions)))
    if (size := await _total_size(git_dir, blob_ids)) > MAX_BYTES:
        return render_unsigned_reason("size", f"{size / 1e6:.0f}")
    contents = {path: await run_git("cat-file", "blob", id, git_dir=git_dir) for path, id in blob_ids.items()}
    return FileChanges(contents, tuple(deletions))


async def _total_size(git_dir: Path, blob_ids: dict[str, str]) -> int:
    """Returns the total size of these blobs in bytes."""
    if not blob_ids:
        return 0
    output = await run_git(
        *("cat-file", "--batch-check=%(objectsize)"),
        git_dir=git_dir,
        stdin="\n".join(blob_ids.values()).encode() + b"\n",
    )
    return sum(map(int, output.split()))
