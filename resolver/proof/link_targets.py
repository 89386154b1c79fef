"""Finds changed files to which symbolic links of the base commit point."""

import posixpath
import re
from collections.abc import Callable

from patchwright.resolver.git.workspaces import SYMLINK, FileChange, Workspace

MAX_LINK_BYTES = 4096
_ANY_PATH = re.compile(r".*", re.DOTALL)


async def find_link_targets(
    workspace: Workspace, changes: tuple[FileChange, ...], is_wanted: Callable[[str], bool]
) -> frozenset[str]:
    """Returns the changed paths that are the target of a wanted link, or that are in a directory which is. `is_wanted`
    gets the path of a link.
    """
    links = [entry for entry in await workspace.find_entries(_ANY_PATH) if entry.mode == SYMLINK]
    wanted = [link for link in links if is_wanted(link.path)]
    contents = await workspace.read_blobs([link.id for link in wanted], MAX_LINK_BYTES)
    targets = set[str]()
    for link in wanted:
        if isinstance(content := contents[link.id], bytes):
            place = posixpath.join(posixpath.dirname(link.path), content.decode(errors="replace"))
            targets.add(posixpath.normpath(place))
    return frozenset(
        change.path
        for change in changes
        if any(change.path == target or change.path.startswith(f"{target}/") for target in targets)
    )
