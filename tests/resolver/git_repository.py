"""Real git repositories for tests, and patches to them."""

import os
import subprocess
from pathlib import Path

from patchwright.resolver.domain import Patch
from patchwright.resolver.git.workspaces import Workspace
from patchwright.runtime.actions import Execute
from patchwright.runtime.observations import ExecuteResult
from patchwright.runtime.sandbox import Sandbox, Sandboxes
from tests.plain_python import PROGRAMS, get_fast_programs

GIT_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}

# The interpreter of these tests has pytest; the system's may not.
HOST_ENVIRONMENT = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}


def fast_host_environment() -> dict[str, str]:
    """HOST_ENVIRONMENT for tests that do not depend on how a test run starts (tests/plain_python.py)."""
    return {**os.environ, "PATH": f"{get_fast_programs()}:{os.environ['PATH']}"}


class Repository:
    """A repository with a work tree, as a developer has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str, **environment: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.path), *arguments],
            env={**GIT_ENVIRONMENT, **environment},
            capture_output=True,
            check=True,
            timeout=60,
        )
        return done.stdout.decode(errors="replace").strip()

    def write(self, path: str, content: str | bytes) -> None:
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self, files: dict[str, str | bytes] | None = None, message: str = "Change") -> str:
        """Writes the files, commits everything, and returns the commit's id."""
        for path, content in (files or {}).items():
            self.write(path, content)
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


async def make_patch(
    workspace: Workspace, sandboxes: Sandboxes, files: dict[str, str | None], then: str = "true"
) -> Patch:
    """Returns the patch of an agent that writes these files (None: deletes one) and runs a command."""
    async with sandboxes.open("agent") as sandbox:
        await workspace.send_to(sandbox)
        for path, content in files.items():
            await shell(sandbox, f"mkdir -p \"$(dirname '{path}')\"")
            if content is None:
                await shell(sandbox, f"rm '{path}'")
            else:
                await shell(sandbox, 'printf %s "$CONTENT" >"$TARGET"', CONTENT=content, TARGET=path)
        await shell(sandbox, then)
        return await workspace.take_patch(sandbox)


async def shell(sandbox: Sandbox, command: str, **environment: str) -> str:
    """Returns the output of a command in the work tree. The command must succeed."""
    result = await sandbox.act(Execute(argv=("bash", "-c", command), env=environment))
    assert isinstance(result, ExecuteResult), result
    assert result.exit_code == 0, (result.stdout + result.stderr).decode(errors="replace")
    return result.stdout.decode(errors="replace")
