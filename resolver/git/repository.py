"""A repository at one commit, for one run: read, carried into sandboxes as bytes, changed by patches alone.

Nothing here has a work tree. The agent's tree is in its sandbox; what comes out is a diff, applied to the
index of a bare repository of ours, where git runs no hooks and no filters and writes none of its files.
"""

import re
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from resolver.domain import Patch
from resolver.errors import WorkspaceError
from resolver.git.plumbing import MAX_OUTPUT, GitFailed, run_git
from resolver.git.tree import send_tree, take_diff
from runtime.frozen import Frozen
from runtime.sandbox import Sandbox

MAX_FILES = 500_000  # paths that `files` lists; tests beyond it would not be found
MAX_READ = 1_000_000  # bytes of one file that `read` gives
MAX_LINK = 4096  # bytes; PATH_MAX of Linux
APPLY_MEMORY = 2 << 30  # bytes; a binary patch of 4 MB may say that it inflates to gigabytes
HISTORY = 50  # commits that a sandbox gets to see
ABSENT, SYMLINK, GITLINK = "000000", "120000", "160000"


class Change(Frozen):
    """What a patch does to one path."""

    path: str
    """Decoded as UTF-8; a byte that is not is shown as `\\xNN`."""
    mode: str
    """As git writes it: 100644, 100755, 120000 (symbolic link), 160000 (submodule), 000000 (deleted)."""
    old_mode: str
    """000000: the path is new."""
    size: int
    """Bytes of the new content; 0 when deleted or a submodule."""
    old_size: int
    link: str | None = None
    """Where a new or changed symbolic link points."""


class Found(Frozen):
    """A path at base."""

    path: str
    mode: str
    """As git writes it: 100644, 100755, 120000 (symbolic link)."""
    id: str
    """Of its content; equal ids are equal contents."""


class _Row(NamedTuple):
    """A path at which two trees differ; modes and ids as git writes them."""

    old_mode: str
    mode: str
    old_id: str
    id: str
    path: bytes


class Workspace:
    """A repository at its base commit, for one run."""

    def __init__(
        self,
        git_dir: Path,
        base: str,
        base_branch: str | None,
        rules: "Workspace | None" = None,
    ) -> None:
        self.git_dir = git_dir
        """A bare repository, private to this run."""
        self.base = base
        """Full commit id."""
        self.base_branch = base_branch
        """None when the base was given as a commit id."""
        self._made: tuple[Patch, str] | None = None
        """The patch of which the tree was asked for last, and that tree."""
        self.rules = rules or self
        """The same repository at the commit whose settings, instructions and way to test hold.

        Another than base where that is what somebody proposes: they must not write the rules for it.
        """

    async def read(self, path: str, limit: int = MAX_READ) -> str | None:
        """A file at base, decoded with replacement, at most `limit` bytes of it; None when it is no file."""
        if path.startswith("/") or ".." in path.split("/"):
            return None
        listed = await run_git("ls-tree", "-z", "--long", self.base, "--", path, git_dir=self.git_dir)
        facts, _, _ = listed.decode(errors="replace").partition("\t")
        if not facts or not facts.startswith("100"):
            return None
        _, _, object_id, size = facts.split()
        if int(size) > 64 * MAX_READ:
            return None
        return (await self._blob(object_id))[:limit].decode(errors="replace")

    async def files(self) -> tuple[str, ...]:
        """Paths at base, sorted as git does, at most MAX_FILES; bytes that are not UTF-8 as `\\xNN`."""
        listed = await run_git("ls-tree", "-r", "-z", "--name-only", self.base, git_dir=self.git_dir)
        return tuple(shown(name) for name in listed.split(b"\0")[:MAX_FILES] if name)

    async def find(self, pattern: re.Pattern[str]) -> tuple[Found, ...]:
        """The files and symbolic links at base whose whole path matches, sorted as git does."""
        matching = (
            (facts.decode().split(), path) for facts, path in await self._listed() if pattern.fullmatch(path)
        )
        return tuple(
            Found(path=path, mode=mode, id=id) for (mode, _, id), path in matching if mode != GITLINK
        )

    async def at(self, path: str) -> Found | None:
        """The file or symbolic link at this path, if there is one."""
        if path.startswith("/") or ".." in path.split("/"):
            return None
        listed = await run_git("ls-tree", "-z", self.base, "--", path, git_dir=self.git_dir)
        facts = listed.partition(b"\t")[0].decode().split()
        if not facts or facts[1] != "blob":
            return None
        return Found(path=path, mode=facts[0], id=facts[2])

    async def contents(self, ids: Sequence[str], limit: int) -> dict[str, bytes | int]:
        """The contents by their ids, whole; its size in bytes instead of one with more than `limit`."""
        sizes = await self._sizes(list(dict.fromkeys(ids))) if ids else {}
        large: dict[str, bytes | int] = {id: size for id, size in sizes.items() if size > limit}
        return large | await self._blobs({id: size for id, size in sizes.items() if id not in large})

    async def ids(self, paths: tuple[str, ...]) -> dict[str, str]:
        """The ids of the contents of these files at base; equal ids are equal contents."""
        if not paths:
            return {}
        wanted = frozenset(paths)
        return {path: facts.split()[2].decode() for facts, path in await self._listed() if path in wanted}

    async def _listed(self) -> Iterator[tuple[bytes, str]]:
        """What git says of each path at base, and the path, sorted as git does."""
        listed = await run_git("ls-tree", "-r", "-z", self.base, git_dir=self.git_dir)
        rows = (row.partition(b"\t") for row in listed.split(b"\0") if row)
        return ((facts, shown(name)) for facts, _, name in rows)

    async def send(self, sandbox: Sandbox, patch: Patch | None = None) -> None:
        """Put the tree at base, with the patch, into the sandbox's empty work tree, with git history.

        The index there stays at base, so that `git diff` shows the patch. Raises WorkspaceError.
        """
        tree = await self.tree(patch) if patch else await resolved(self.git_dir, f"{self.base}^{{tree}}")
        await send_tree(sandbox, self.git_dir, base=self.base, tree=tree, history=HISTORY)

    async def take_patch(self, sandbox: Sandbox) -> Patch:
        """What the sandbox's work tree differs in from base, whatever became of its index and commits.

        Build leftovers and repositories inside the tree are left out. Raises ChangeTooLarge when it is larger
        than tree.MAX_DIFF, and WorkspaceError.
        """
        return Patch(base=self.base, diff=await take_diff(sandbox, self.git_dir, self.base))

    async def tree(self, patch: Patch) -> str:
        """The id of the tree that the patch makes of base. Raises WorkspaceError when it does not apply."""
        if patch.base != self.base:
            raise WorkspaceError(f"The change was made against {patch.base[:12]}, not {self.base[:12]}.")
        if self._made is None or self._made[0] != patch:
            self._made = patch, await self._make(patch)
        return self._made[1]

    async def _make(self, patch: Patch) -> str:
        with tempfile.TemporaryDirectory(prefix="index-", dir=self.git_dir) as scratch:
            index = {"GIT_INDEX_FILE": f"{scratch}/index"}
            await run_git("read-tree", self.base, git_dir=self.git_dir, environment=index)
            if not patch.empty:
                try:
                    await run_git(
                        *("apply", "--cached", "--binary", "--whitespace=nowarn", "-"),
                        git_dir=self.git_dir,
                        environment=index,
                        stdin=patch.diff,
                        memory=APPLY_MEMORY,
                    )
                except GitFailed as exc:
                    raise WorkspaceError(f"The change does not apply to {self.base[:12]}: {exc}") from exc
            made = await run_git("write-tree", git_dir=self.git_dir, environment=index)
        return made.decode().strip()

    def at_commit(self, commit: str) -> "Workspace":
        """The same repository with another base, which has to be in it; the same rules hold."""
        return Workspace(self.git_dir, commit, self.base_branch, rules=self.rules)

    async def commit(
        self,
        patch: Patch,
        message: str,
        *,
        author: tuple[str, str],
        when: datetime | None = None,
        parents: tuple[str, ...] = (),
    ) -> str:
        """Commit the patch on top of base; the new commit's id, equal for equal arguments.

        `author` is name and e-mail address, `when` is now unless given, the commit's parent is base unless others
        are named. Raises WorkspaceError.
        """
        tree = await self.tree(patch)
        return await self.commit_tree(
            tree,
            message,
            author=author,
            when=when or datetime.now(UTC),
            parents=parents or (self.base,),
        )

    async def commit_tree(
        self, tree: str, message: str, *, author: tuple[str, str], when: datetime, parents: tuple[str, ...]
    ) -> str:
        """Commit a tree that is in the repository, see `commit`. Raises WorkspaceError."""
        name, email = author
        date = f"@{int(when.timestamp())} +0000"
        made = await run_git(
            *("commit-tree", tree, *(argument for parent in parents for argument in ("-p", parent))),
            *("-F", "-"),
            git_dir=self.git_dir,
            stdin=message.replace("\0", "").encode(errors="replace"),
            environment={
                f"GIT_{role}_{key}": value
                for role in ("AUTHOR", "COMMITTER")
                for key, value in (("NAME", name), ("EMAIL", email), ("DATE", date))
            },
        )
        return made.decode().strip()

    async def changes(self, patch: Patch) -> tuple[Change, ...]:
        """What the patch does, path by path, as git understands it. Raises WorkspaceError."""
        rows = await self._differing(await self.tree(patch))
        sizes = await self._sizes([id for row in rows for id in (row.old_id, row.id)])
        links = {row.id: await self._blob(row.id) for row in rows if row.mode == SYMLINK}
        return tuple(
            Change(
                path=shown(row.path),
                mode=row.mode,
                old_mode=row.old_mode,
                size=sizes.get(row.id, 0),
                old_size=sizes.get(row.old_id, 0),
                link=shown(links[row.id][:MAX_LINK]) if row.id in links else None,
            )
            for row in rows
        )

    async def without(self, patch: Patch, paths: frozenset[str]) -> Patch:
        """The patch, but these paths (as `changes` shows them) are as they are at base."""
        changed = await self.tree(patch)
        undone = b"".join(
            f"{row.old_mode} {row.old_id}\t".encode() + row.path + b"\0"
            for row in await self._differing(changed)
            if shown(row.path) in paths
        )
        with tempfile.TemporaryDirectory(prefix="index-", dir=self.git_dir) as scratch:
            index = {"GIT_INDEX_FILE": f"{scratch}/index"}
            await run_git("read-tree", changed, git_dir=self.git_dir, environment=index)
            await run_git(
                *("update-index", "-z", "--replace", "--index-info"),
                git_dir=self.git_dir,
                environment=index,
                stdin=undone,
            )
            kept = (await run_git("write-tree", git_dir=self.git_dir, environment=index)).decode().strip()
        return Patch(base=self.base, diff=await self._difference(kept))

    async def _difference(self, tree: str, *paths: str) -> bytes:
        return await run_git(
            *("diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color"),
            *(self.base, tree, "--", *paths),
            git_dir=self.git_dir,
        )

    async def content(self, patch: Patch, path: str) -> bytes | None:
        """A file with the patch, whole; None when it is no file then."""
        listed = await run_git("ls-tree", "-z", await self.tree(patch), "--", path, git_dir=self.git_dir)
        facts = listed.partition(b"\t")[0].decode().split()
        return await self._blob(facts[2]) if facts and facts[0].startswith("100") else None

    async def written(self, patch: Patch) -> dict[str, tuple[bytes, bytes]]:
        """The files that the patch adds or changes: their contents at base (empty if new) and with it, by path."""
        rows = await self._differing(await self.tree(patch))
        found = await self._blobs(await self._sizes([id for row in rows for id in (row.old_id, row.id)]))
        return {
            shown(row.path): (found[row.old_id] if row.old_mode.startswith("100") else b"", found[row.id])
            for row in rows
            if row.mode.startswith("100")
        }

    async def _differing(self, tree: str) -> list["_Row"]:
        """Where a tree is another than base, sorted as git does."""
        raw = await run_git(
            *("diff-tree", "-r", "-z", "--raw", "--no-renames", self.base, tree), git_dir=self.git_dir
        )
        fields = raw.split(b"\0")
        pairs = zip(fields[::2], fields[1::2], strict=False)
        return [
            _Row(old_mode, mode, old_id, id, path)
            for facts, path in pairs
            for old_mode, mode, old_id, id, _ in [facts.decode().lstrip(":").split()]
        ]

    async def _blobs(self, sizes: dict[str, int]) -> dict[str, bytes]:
        """The contents by their ids, given how large they are: a few programs for any number of them."""
        found: dict[str, bytes] = {}
        chunk: list[str] = []
        for id, size in [*sizes.items(), ("", MAX_OUTPUT)]:
            if chunk and sum(sizes[each] + 100 for each in chunk) + size > MAX_OUTPUT // 2:
                printed = await run_git(
                    "cat-file", "--batch", git_dir=self.git_dir, stdin="\n".join(chunk).encode() + b"\n"
                )
                at = 0
                for each in chunk:  # a line of facts, the content, a line break
                    begin = printed.index(b"\n", at) + 1
                    at = begin + sizes[each] + 1
                    found[each] = printed[begin : at - 1]
                chunk = []
            chunk.append(id)
        return found

    async def _blob(self, object_id: str) -> bytes:
        return await run_git("cat-file", "blob", object_id, git_dir=self.git_dir)

    async def _sizes(self, object_ids: list[str]) -> dict[str, int]:
        """Bytes of each object that is here (a submodule's commit is not)."""
        if not object_ids:
            return {}
        answer = await run_git(
            *("cat-file", "--batch-check=%(objectname) %(objectsize)"),
            git_dir=self.git_dir,
            stdin="\n".join(object_ids).encode() + b"\n",
        )
        pairs = (line.split() for line in answer.decode().splitlines())
        return {pair[0]: int(pair[1]) for pair in pairs if pair[1].isdigit()}


async def resolved(git_dir: Path, name: str) -> str:
    """The full id of what `name` means there. Raises GitFailed."""
    return (await run_git("rev-parse", "--verify", "--quiet", name, git_dir=git_dir)).decode().strip()


def shown(name: bytes) -> str:
    """A path as text; bytes that are not UTF-8 as `\\xNN`."""
    return name.decode(errors="backslashreplace")
