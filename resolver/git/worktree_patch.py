"""Takes the patches of a work tree that changes step by step."""

import re

from patchwright.resolver.domain import Patch
from patchwright.resolver.git.repository import Workspace
from patchwright.resolver.git.tree_transfer import MAX_DIFF, diff_files
from patchwright.runtime.actions import FingerprintTree
from patchwright.runtime.observations import TreeFingerprint
from patchwright.runtime.sandbox import Sandbox

_PLAIN_PATH = re.compile(r"[^\x00-\x1f\x7f-\U0010ffff\"\\]+")  # Paths that git does not quote.
_CACHE = re.compile(
    r"(.*/)?(__pycache__|\.pytest_cache|\.mypy_cache|\.ruff_cache)/.*"
)  # Always left out of patches.
_RULES = re.compile(r"(.*/)?(\.gitignore|\.gitattributes)")
"""Files that decide which other files are part of the patch, and how."""
_HEADER = re.compile(rb"diff --git a/(.{1,4096}) b/\1\n")


class WorktreePatch:
    """Takes the patches of one work tree. After a change of a few known files, only these files are compared with the
    base.

    Such a change is learned from the sandbox's file system events, which can miss a write. So call `take` without
    `read_fingerprint` for a patch on which a decision depends: it then compares all files.
    """

    def __init__(self, workspace: Workspace, sandbox: Sandbox) -> None:
        self._workspace = workspace
        self._sandbox = sandbox
        self._base_files: frozenset[str] | None = None
        self._state: TreeFingerprint | None = None
        """The state of the tree that the next patch describes."""
        self._patch: Patch | None = None
        self._patch_fingerprint: str | None = None

    async def read_fingerprint(self) -> str | None:
        """Returns a fingerprint of the work tree, as `fingerprint_tree` does."""
        self._state = await read_tree_state(self._sandbox)
        return self._state.fingerprint if self._state else None

    async def take(self) -> Patch:
        """Returns the difference between the base and the work tree. Raises ChangeTooLarge, WorkspaceError."""
        state, self._state = self._state, None
        patch = await self._update_patch(state) if state else None
        if patch is None:
            patch = await self._workspace.take_patch(self._sandbox)
        self._patch, self._patch_fingerprint = patch, state.fingerprint if state else None
        return patch

    async def _update_patch(self, state: TreeFingerprint) -> Patch | None:
        """Returns the last patch with the files that have changed since. Returns None if this is not possible."""
        is_next = state.previous is not None and state.previous == self._patch_fingerprint
        if self._patch is None or state.changed is None or not is_next:
            return None
        sections = split_diff(self._patch.diff)
        if sections is None:
            return None
        known, temporary = await self._list_known_files(sections), set(state.removed)
        # A file that git does not know may be new or ignored. If it is gone, it was temporary.
        changed = [
            path
            for path in state.changed
            if path in known or not (path in temporary or _CACHE.fullmatch(path))
        ]
        if not all(path in known and _PLAIN_PATH.fullmatch(path) for path in changed) or any(
            map(_RULES.fullmatch, state.changed)
        ):
            return None
        if not changed:
            return self._patch
        diff = await diff_files(self._sandbox, self._workspace.base, changed)
        updates = None if diff is None else split_diff(diff)
        if updates is None or not updates.keys() <= set(changed):
            return None
        # A file that was written without a change has only the first line.
        updates = {path: text for path, text in updates.items() if text.count(b"\n") > 1}
        merged = {path: text for path, text in sections.items() if path not in changed} | updates
        result = b"".join(merged[path] for path in sorted(merged, key=str.encode))
        return Patch(base_sha=self._patch.base_sha, diff=result) if len(result) <= MAX_DIFF else None

    async def _list_known_files(self, sections: dict[str, bytes]) -> frozenset[str]:
        """Returns the files of the work tree that git knows."""
        if self._base_files is None:
            self._base_files = frozenset(await self._workspace.list_files())
        deleted = {path for path, text in sections.items() if b"\ndeleted file mode " in text}
        return (self._base_files | sections.keys()) - deleted


async def read_tree_state(sandbox: Sandbox) -> TreeFingerprint | None:
    result = await sandbox.act(FingerprintTree())
    return result if isinstance(result, TreeFingerprint) else None


async def fingerprint_tree(sandbox: Sandbox) -> str | None:
    """Returns a fingerprint of the work tree, or None if it is unknown. It changes when a file is written."""
    state = await read_tree_state(sandbox)
    return state.fingerprint if state else None


def split_diff(diff: bytes) -> dict[str, bytes] | None:
    """Returns the part of a diff for each file, by the file's path. Returns None if git quoted a path."""
    sections: dict[str, bytes] = {}
    for text in filter(None, re.split(rb"(?m)^(?=diff --git )", diff)):
        if (header := _HEADER.match(text)) is None:
            return None
        path = header[1].decode("ascii", "replace")
        sections[path] = sections.get(path, b"") + text  # Two parts if a file became a link.
    return sections
