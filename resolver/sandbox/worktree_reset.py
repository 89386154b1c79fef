"""Resets the agent's work tree to the base commit, for another attempt in the same sandbox."""

import logging

from patchwright.resolver.domain import Patch
from patchwright.resolver.events import Checkpoint
from patchwright.resolver.git.tree_transfer import GIT_ENVIRONMENT
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.run_log import RunLog
from patchwright.runtime.actions import Execute
from patchwright.runtime.observations import ExecuteResult
from patchwright.runtime.sandbox import Sandbox

logger = logging.getLogger(__name__)

# Files that git ignores are kept, because the installed dependencies are among them.
_RESET_SCRIPT = 'cd "$1" && git read-tree --reset -u "$2" && git clean -ffdq'


async def reset_worktree(sandbox: Sandbox, workspace: Workspace, log: RunLog) -> bool:
    """Resets the work tree and logs a checkpoint with an empty patch. Returns False if the reset failed."""
    argv = ("sh", "-c", _RESET_SCRIPT, "sh", sandbox.root, workspace.base)
    result = await sandbox.act(Execute(argv=argv, env=GIT_ENVIRONMENT, timeout=300))
    if not isinstance(result, ExecuteResult) or result.exit_code != 0:
        logger.warning("no further attempt: worktree reset failed", extra={"result": str(result)[:500]})
        return False
    remaining_patch = await workspace.take_patch(sandbox)
    if not remaining_patch.is_empty:
        logger.warning(
            "no further attempt: work tree differs from base", extra={"bytes": len(remaining_patch.diff)}
        )
        return False
    await log.append(Checkpoint(patch=Patch(base_sha=workspace.base, diff=b"")))
    return True
