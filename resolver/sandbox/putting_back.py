"""The agent's work tree made what it is at base, for another attempt in the same sandbox."""

import logging

from resolver.domain import Patch
from resolver.events import Checkpointed
from resolver.git.tree import GIT_ENVIRONMENT
from resolver.log import Log
from resolver.workspace import Workspace
from runtime.actions import Execute
from runtime.observations import Executed
from runtime.sandbox import Sandbox

logger = logging.getLogger(__name__)

# What git ignores stays: the repository's dependencies are there.
_PUT_BACK = 'cd "$1" && git read-tree --reset -u "$2" && git clean -ffdq'


async def put_back(sandbox: Sandbox, workspace: Workspace, log: Log) -> bool:
    """Whether the tree is as at base now; the log says so with an empty checkpoint."""
    argv = ("sh", "-c", _PUT_BACK, "sh", sandbox.root, workspace.base)
    seen = await sandbox.act(Execute(argv=argv, env=GIT_ENVIRONMENT, timeout=300))
    if not isinstance(seen, Executed) or seen.exit_code != 0:
        logger.warning(
            "no further attempt: the work tree could not be put back", extra={"seen": str(seen)[:500]}
        )
        return False
    left = await workspace.take_patch(sandbox)
    if not left.empty:
        logger.warning("no further attempt: the work tree is not as at base", extra={"bytes": len(left.diff)})
        return False
    await log.append(Checkpointed(patch=Patch(base=workspace.base, diff=b"")))
    return True
