"""Restores an earlier state of the agent's work tree, for another attempt or after an edit that is not kept."""

import logging

from patchwright.resolver.domain import Patch
from patchwright.resolver.events import Checkpoint
from patchwright.resolver.git.tree_transfer import GIT_ENVIRONMENT
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.run_log import RunLog
from patchwright.runtime.actions import Execute, WriteBytes
from patchwright.runtime.observations import ExecuteResult
from patchwright.runtime.sandbox import Sandbox

logger = logging.getLogger(__name__)

# Files that git ignores are kept, because the installed dependencies are among them.
_RESET_SCRIPT = (
    'cd "$1" && git read-tree --reset -u "$2" && git clean -ffdq && { [ -z "$3" ] || git apply "$3"; }'
)


async def reset_worktree(sandbox: Sandbox, workspace: Workspace, log: RunLog) -> bool:
    """Resets the work tree and logs a checkpoint with an empty patch. Returns False if the reset failed."""
    empty = Patch(base_sha=workspace.base, diff=b"")
    if not await restore_worktree(sandbox, workspace, empty):
        return False
    await log.append(Checkpoint(patch=empty))
    return True


async def restore_worktree(sandbox: Sandbox, workspace: Workspace, patch: Patch) -> bool:
    """Resets the work tree to the base commit with this patch. Returns False if this failed."""
    file = "" if patch.is_empty else f"{sandbox.scratch}/restored.diff"
    if file:
        await sandbox.act(WriteBytes(path=file, content=patch.diff))
    argv = ("sh", "-c", _RESET_SCRIPT, "sh", sandbox.root, workspace.base, file)
    result = await sandbox.act(Execute(argv=argv, env=GIT_ENVIRONMENT, timeout=300))
    if not isinstance(result, ExecuteResult) or result.exit_code != 0:
        logger.warning("work tree reset failed", extra={"result": str(result)[:500]})
        return False
    restored = await workspace.take_patch(sandbox)
    if restored.diff != patch.diff:
        logger.warning("work tree differs after reset", extra={"bytes": len(restored.diff)})
        return False
    return True
