"""A commit in a bare repository of ours: what it holds, and whether GitHub's API can carry it."""

from pathlib import Path
from typing import NamedTuple

from bot.github.answers import CommitAnswer
from resolver.delivery.delivery_prose import by_git
from resolver.git.plumbing import run_git

# GitHub documents no limits. Others report that a commit of 40 MiB fails, and requests that time out from a few
# hundred files on (grafana/github-api-commit-action#66, PostHog/context-mill#362).
MAX_FILES = 100
MAX_BYTES = 20_000_000  # of contents; base64 makes 27 MB of them
PLAIN, ABSENT, SUBMODULE = "100644", "000000", "160000"


class Made(NamedTuple):
    """A commit that was made here."""

    sha: str
    tree: str
    parents: tuple[str, ...]
    headline: str
    body: str

    def is_in(self, seen: CommitAnswer) -> bool:
        """Whether GitHub's commit is this one, whoever signed it."""
        return (seen.tree.sha, tuple(one.sha for one in seen.parents)) == (self.tree, self.parents)


class Plain(NamedTuple):
    """A change of plain files only."""

    additions: dict[str, bytes]
    """The new content by path."""
    deletions: tuple[str, ...]


async def read(git_dir: Path, commit: str) -> Made:
    """Raises GitFailed when there is no such commit."""
    shown = await run_git("show", "-s", "--format=%H%n%T%n%P%n%B", commit, git_dir=git_dir)
    sha, tree, parents, message = shown.decode(errors="replace").split("\n", 3)
    headline, _, body = message.strip().partition("\n")
    return Made(sha, tree, tuple(parents.split()), headline, body.strip())


async def plain(git_dir: Path, made: Made, parent: str) -> Plain | str:
    """What `createCommitOnBranch` needs to make this commit; else why it cannot, in a sentence."""
    if made.parents != (parent,):
        return by_git("merge", "")
    raw = await run_git(
        *("diff-tree", "-r", "-z", "--raw", "--no-renames", parent, made.sha), git_dir=git_dir
    )
    fields = raw.split(b"\0")
    wanted, deletions = dict[str, str](), list[str]()
    for facts, name in zip(fields[::2], fields[1::2], strict=False):
        old_mode, mode, _, object_id, _ = facts.decode().lstrip(":").split()
        try:
            path = name.decode()
        except UnicodeDecodeError:
            return by_git("name", name.decode(errors="backslashreplace"))
        goes = mode == ABSENT and old_mode != SUBMODULE
        if not goes and not (mode == PLAIN and old_mode in (PLAIN, ABSENT)):
            return by_git("mode", path)
        if mode == ABSENT:
            deletions.append(path)
        else:
            wanted[path] = object_id
    if len(wanted) + len(deletions) > MAX_FILES:
        return by_git("files", str(len(wanted) + len(deletions)))
    if (size := await _size(git_dir, wanted)) > MAX_BYTES:
        return by_git("size", f"{size / 1e6:.0f}")
    contents = {path: await run_git("cat-file", "blob", id, git_dir=git_dir) for path, id in wanted.items()}
    return Plain(contents, tuple(deletions))


async def _size(git_dir: Path, wanted: dict[str, str]) -> int:
    """Bytes of these contents together."""
    if not wanted:
        return 0
    answer = await run_git(
        *("cat-file", "--batch-check=%(objectsize)"),
        git_dir=git_dir,
        stdin="\n".join(wanted.values()).encode() + b"\n",
    )
    return sum(map(int, answer.split()))
