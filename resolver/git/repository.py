"""Represents a repository at one commit, for one run. Patchwright reads the repository's files as bytes,
sends the repository to sandboxes, and changes it only with patches.

There is no work tree on the host. The agent's work tree is in the sandbox, and the diff of that tree is
applied to the index of a bare repository on the host. In the bare repository, git runs no hooks or filters,
and writes no files of a work tree.
"""

import re
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from patchwright.resolver.domain import Patch
from patchwright.resolver.errors import WorkspaceError
from patchwright.resolver.git.git_process import MAX_STDOUT, GitFailed, GitLimits, run_git
from patchwright.resolver.git.tree_transfer import send_tree, take_diff
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.sandbox import Sandbox

MAX_FILES = 500_000  # Maximum number of paths that `list_files` returns. Tests at later paths are not found.
MAX_READ_BYTES = 1_000_000  # bytes of one file that `read` returns
MAX_LINK_LENGTH = 4096  # bytes; PATH_MAX on Linux
APPLY_MEMORY = (
    2 << 30
)  # Memory limit of `git apply` in bytes. A compressed patch of 4 MB can expand to gigabytes.
HISTORY_DEPTH = 50  # Number of commits of history that are sent to a sandbox.
ABSENT, SYMLINK, GITLINK = "000000", "120000", "160000"


class FileChange(FrozenModel):
    """The change that a patch makes to one path."""

    path: str
    r"""Path, decoded as UTF-8. Bytes that are not UTF-8 are shown as `\xNN`."""
    mode: str
    """Mode in git's notation: 100644, 100755, 120000 (symbolic link), 160000 (submodule), 000000 (deleted).
    """
    old_mode: str
    """Mode before the patch; 000000 if the path is new."""
    size: int
    """Size of the new content in bytes; 0 for a deleted file or a submodule."""
    old_size: int
    link_target: str | None = None
    """Target of a new or changed symbolic link."""


class TreeEntry(FrozenModel):
    """A file or symbolic link at the base commit."""

    path: str
    mode: str
    """Mode in git's notation: 100644, 100755, 120000 (symbolic link)."""
    id: str
    """Blob ID of the content; equal IDs mean equal contents."""


class _DiffEntry(NamedTuple):
    """A path that differs between two trees, with modes and IDs in git's notation."""

    old_mode: str
    mode: str
    old_id: str
    id: str
    path: bytes


class Workspace:
    """A repository at its base commit, for one run."""

    def __init__(
        self, git_dir: Path, base: str, base_branch: str | None, config_source: "Workspace | None" = None
    ) -> None:
        self.git_dir = git_dir
        """A bare repository that belongs to this run only."""
        self.base = base
        """Full commit ID."""
        self.base_branch = base_branch
        """Name of the base branch; None if the base was given as a commit ID."""
        self._last_tree: tuple[Patch, str] | None = None
        """The last patch that was applied, and the ID of its tree."""
        self.config_source = config_source or self
        """The same repository at the commit that provides the settings, instructions and test commands.

        If the base contains a proposed change, this commit differs from the base, because the author of a
        change must not set the rules for that change.
        """

    async def read(self, path: str, limit: int = MAX_READ_BYTES) -> str | None:
        """Returns the text of a file at the base, or None if the path is not a file. Reads at most `limit`
        bytes, and replaces bytes that are not UTF-8.
        """
        if path.startswith("/") or ".." in path.split("/"):
            return None
        listed = await run_git("ls-tree", "-z", "--long", self.base, "--", path, git_dir=self.git_dir)
        facts, _, _ = listed.decode(errors="replace").partition("\t")
        if not facts or not facts.startswith("100"):
            return None
        _, _, object_id, size = facts.split()
        if int(size) > 64 * MAX_READ_BYTES:
            return None
        return (await self._cat_blob(object_id))[:limit].decode(errors="replace")

    async def list_files(self) -> tuple[str, ...]:
        r"""Lists at most MAX_FILES paths at the base, in git's order. Bytes that are not UTF-8 are shown as
        `\xNN`.
        """
        listed = await run_git("ls-tree", "-r", "-z", "--name-only", self.base, git_dir=self.git_dir)
        return tuple(decode_path(name) for name in listed.split(b"\0")[:MAX_FILES] if name)

    async def find_entries(self, pattern: re.Pattern[str]) -> tuple[TreeEntry, ...]:
        """Returns the files and symbolic links at the base, in git's order. The pattern must match the whole path."""
        matching = (
            (facts.decode().split(), path)
            for facts, path in await self._list_tree()
            if pattern.fullmatch(path)
        )
        return tuple(
            TreeEntry(path=path, mode=mode, id=id) for (mode, _, id), path in matching if mode != GITLINK
        )

    async def get_entry(self, path: str) -> TreeEntry | None:
        """Returns the file or symbolic link at this path of the base, or None if there is none."""
        if path.startswith("/") or ".." in path.split("/"):
            return None
        listed = await run_git("ls-tree", "-z", self.base, "--", path, git_dir=self.git_dir)
        facts = listed.partition(b"\t")[0].decode().split()
        if not facts or facts[1] != "blob":
            return None
        return TreeEntry(path=path, mode=facts[0], id=facts[2])

    async def read_blobs(self, ids: Sequence[str], limit: int) -> dict[str, bytes | int]:
        """Returns the contents of blobs by ID. For a blob of more than `limit` bytes, returns its size in
        bytes instead.
        """
        sizes = await self._object_sizes(list(dict.fromkeys(ids))) if ids else {}
        large: dict[str, bytes | int] = {id: size for id, size in sizes.items() if size > limit}
        return large | await self._cat_blobs({id: size for id, size in sizes.items() if id not in large})

    async def get_blob_ids(self, paths: tuple[str, ...]) -> dict[str, str]:
        """Returns the blob IDs of these files at the base; equal IDs mean equal contents."""
        if not paths:
            return {}
        wanted = frozenset(paths)
        return {path: facts.split()[2].decode() for facts, path in await self._list_tree() if path in wanted}

    async def _list_tree(self) -> Iterator[tuple[bytes, str]]:
        """Lists all paths at the base in git's order. Each item is a pair of the text `mode type ID` and the path."""
        listed = await run_git("ls-tree", "-r", "-z", self.base, git_dir=self.git_dir)
        rows = (row.partition(b"\t") for row in listed.split(b"\0") if row)
        return ((facts, decode_path(name)) for facts, _, name in rows)

    async def send_to(self, sandbox: Sandbox, patch: Patch | None = None) -> None:
        """Writes the tree at the base to the sandbox's empty work tree, together with recent git history.
        Then applies the patch.

        The index in the sandbox stays at the base, so that `git diff` shows the patch. Raises WorkspaceError.
        """
        tree = (
            await self.build_tree(patch)
            if patch
            else await resolve_revision(self.git_dir, f"{self.base}^{{tree}}")
        )
        await send_tree(sandbox, self.git_dir, base=self.base, tree=tree, history=HISTORY_DEPTH)

    async def take_patch(self, sandbox: Sandbox) -> Patch:
        """Returns the difference between the base and the sandbox's work tree. The index and the commits in
        the sandbox do not affect this difference.

        Build artifacts and nested repositories are excluded. Raises WorkspaceError, or ChangeTooLarge
        if the diff exceeds tree_transfer.MAX_DIFF.
        """
        return Patch(base_sha=self.base, diff=await take_diff(sandbox, self.git_dir, self.base))

    async def build_tree(self, patch: Patch) -> str:
        """Applies the patch to the base and returns the ID of the resulting tree. Raises WorkspaceError if
        the patch does not apply.
        """
        if patch.base_sha != self.base:
            raise WorkspaceError(f"The change was made against {patch.base_sha[:12]}, not {self.base[:12]}.")
        if self._last_tree is None or self._last_tree[0] != patch:
            self._last_tree = patch, await self._write_tree(patch)
        return self._last_tree[1]

    async def _write_tree(self, patch: Patch) -> str:
        with tempfile.TemporaryDirectory(prefix="index-", dir=self.git_dir) as scratch:
            index = {"GIT_INDEX_FILE": f"{scratch}/index"}
            await run_git("read-tree", self.base, git_dir=self.git_dir, environment=index)
            if not patch.is_empty:
                try:
                    await run_git(
                        *("apply", "--cached", "--binary", "--whitespace=nowarn", "-"),
                        git_dir=self.git_dir,
                        environment=index,
                        stdin=patch.diff,
                        limits=GitLimits(memory=APPLY_MEMORY),
                    )
                except GitFailed as exc:
                    raise WorkspaceError(f"The change does not apply to {self.base[:12]}: {exc}") from exc
            tree = await run_git("write-tree", git_dir=self.git_dir, environment=index)
        return tree.decode().strip()

    def with_base(self, commit: str) -> "Workspace":
        """Returns this repository with another base commit. The repository must contain that commit. The
        settings and instructions still come from the same commit as before.
        """
        return Workspace(self.git_dir, commit, self.base_branch, config_source=self.config_source)

    async def commit(
        self,
        patch: Patch,
        message: str,
        *,
        author: tuple[str, str],
        when: datetime | None = None,
        parents: tuple[str, ...] = (),
    ) -> str:
        """Commits the patch on top of the base and returns the commit ID. If `when` is given, equal arguments
        always result in the same ID.

        `author` is a name and an email address. By default, `when` is the current time, and the base is the
        only parent. Raises WorkspaceError.
        """
        tree = await self.build_tree(patch)
        return await self.commit_tree(
            tree, message, author=author, when=when or datetime.now(UTC), parents=parents or (self.base,)
        )

    async def commit_tree(
        self, tree: str, message: str, *, author: tuple[str, str], when: datetime, parents: tuple[str, ...]
    ) -> str:
        """Commits a tree that is already in the repository; see `commit`. Raises WorkspaceError."""
        name, email = author
        date = f"@{int(when.timestamp())} +0000"
        commit = await run_git(
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
        return commit.decode().strip()

    async def list_changes(self, patch: Patch) -> tuple[FileChange, ...]:
        """Returns one change for each path that the patch changes. Raises WorkspaceError."""
        rows = await self._list_diff_entries(await self.build_tree(patch))
        sizes = await self._object_sizes([id for row in rows for id in (row.old_id, row.id)])
        links = {row.id: await self._cat_blob(row.id) for row in rows if row.mode == SYMLINK}
        return tuple(
            FileChange(
                path=decode_path(row.path),
                mode=row.mode,
                old_mode=row.old_mode,
                size=sizes.get(row.id, 0),
                old_size=sizes.get(row.old_id, 0),
                link_target=decode_path(links[row.id][:MAX_LINK_LENGTH]) if row.id in links else None,
            )
            for row in rows
        )

    async def revert_paths(self, patch: Patch, paths: frozenset[str]) -> Patch:
        """Returns the patch without its changes to these paths. The paths have the form that `list_changes` returns."""
        changed = await self.build_tree(patch)
        restored = b"".join(
            f"{row.old_mode} {row.old_id}\t".encode() + row.path + b"\0"
            for row in await self._list_diff_entries(changed)
            if decode_path(row.path) in paths
        )
        with tempfile.TemporaryDirectory(prefix="index-", dir=self.git_dir) as scratch:
            index = {"GIT_INDEX_FILE": f"{scratch}/index"}
            await run_git("read-tree", changed, git_dir=self.git_dir, environment=index)
            await run_git(
                *("update-index", "-z", "--replace", "--index-info"),
                git_dir=self.git_dir,
                environment=index,
                stdin=restored,
            )
            reverted = (await run_git("write-tree", git_dir=self.git_dir, environment=index)).decode().strip()
        return Patch(base_sha=self.base, diff=await self._diff_tree(reverted))

    async def _diff_tree(self, tree: str, *paths: str) -> bytes:
        return await run_git(
            *("diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color"),
            *(self.base, tree, "--", *paths),
            git_dir=self.git_dir,
        )

    async def read_patched(self, patch: Patch, path: str) -> bytes | None:
        """Returns the whole content of a file after the patch, or None if there is no file at this path."""
        listed = await run_git(
            "ls-tree", "-z", await self.build_tree(patch), "--", path, git_dir=self.git_dir
        )
        facts = listed.partition(b"\t")[0].decode().split()
        return await self._cat_blob(facts[2]) if facts and facts[0].startswith("100") else None

    async def read_changed_files(self, patch: Patch) -> dict[str, tuple[bytes, bytes]]:
        """Returns the path of each added or changed file, with its content before and after the patch. The
        content before the patch is empty for an added file.
        """
        rows = await self._list_diff_entries(await self.build_tree(patch))
        found = await self._cat_blobs(
            await self._object_sizes([id for row in rows for id in (row.old_id, row.id)])
        )
        return {
            decode_path(row.path): (
                found[row.old_id] if row.old_mode.startswith("100") else b"",
                found[row.id],
            )
            for row in rows
            if row.mode.startswith("100")
        }

    async def _list_diff_entries(self, tree: str) -> list["_DiffEntry"]:
        """Returns the paths at which a tree differs from the base, in git's order."""
        raw = await run_git(
            *("diff-tree", "-r", "-z", "--raw", "--no-renames", self.base, tree), git_dir=self.git_dir
        )
        fields = raw.split(b"\0")
        pairs = zip(fields[::2], fields[1::2], strict=False)
        return [
            _DiffEntry(old_mode, mode, old_id, id, path)
            for facts, path in pairs
            for old_mode, mode, old_id, id, _ in [facts.decode().lstrip(":").split()]
        ]

    async def _cat_blobs(self, sizes: dict[str, int]) -> dict[str, bytes]:
        """Returns the contents of blobs by ID. `sizes` contains the size of each blob. One git process reads
        many blobs.
        """
        found: dict[str, bytes] = {}
        chunk: list[str] = []
        for id, size in [*sizes.items(), ("", MAX_STDOUT)]:
            if chunk and sum(sizes[blob_id] + 100 for blob_id in chunk) + size > MAX_STDOUT // 2:
                output = await run_git(
                    "cat-file", "--batch", git_dir=self.git_dir, stdin="\n".join(chunk).encode() + b"\n"
                )
                at = 0
                for blob_id in chunk:  # Each answer is a header, the content and a line break.
                    begin = output.index(b"\n", at) + 1
                    at = begin + sizes[blob_id] + 1
                    found[blob_id] = output[begin : at - 1]
                chunk = []
            chunk.append(id)
        return found

    async def _cat_blob(self, object_id: str) -> bytes:
        return await run_git("cat-file", "blob", object_id, git_dir=self.git_dir)

    async def _object_sizes(self, object_ids: list[str]) -> dict[str, int]:
        """Returns the size in bytes of each object. Objects that the repository does not contain, such as the
        commits of submodules, are left out.
        """
        if not object_ids:
            return {}
        answer = await run_git(
            *("cat-file", "--batch-check=%(objectname) %(objectsize)"),
            git_dir=self.git_dir,
            stdin="\n".join(object_ids).encode() + b"\n",
        )
        pairs = (line.split() for line in answer.decode().splitlines())
        return {pair[0]: int(pair[1]) for pair in pairs if pair[1].isdigit()}


async def resolve_revision(git_dir: Path, name: str) -> str:
    """Returns the full ID of a revision. Raises GitFailed."""
    return (await run_git("rev-parse", "--verify", "--quiet", name, git_dir=git_dir)).decode().strip()


def decode_path(name: bytes) -> str:
    r"""Decodes a path; bytes that are not UTF-8 are shown as `\xNN`."""
    return name.decode(errors="backslashreplace")
