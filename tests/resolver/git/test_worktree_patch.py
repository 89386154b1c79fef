"""Patches of a work tree that changes step by step are the same as those that compare all files."""

import pytest

from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.git.worktree_patch import WorktreePatch, split_diff
from patchwright.runtime.actions import Execute, RunShell, SandboxAction
from patchwright.runtime.observations import Observation
from patchwright.runtime.sandbox import Sandbox, Sandboxes
from tests.resolver.git_repository import Repository

FILES = {
    "a.py": "x = 1\n",
    "sub/b.py": "y = 2\n",
    "sub/c.txt": "text\n",
    "ä.py": "z = 3\n",
    ".gitignore": "*.log\n",
}
KNOWN_FILES = (
    "echo 'x = 2' >a.py",
    "echo 'y = 3' >>sub/b.py; echo 'x = 3' >a.py",
    "touch sub/c.txt",
    "chmod +x sub/c.txt",
    "rm sub/b.py",
    "git checkout -q a.py",
    "printf '\\0' >a.py",
    "echo 'x = 1' >a.py",
    "sed -i s/1/2/ a.py",
    "rm sub/c.txt; ln -s a.py sub/c.txt",
)
OTHER_FILES = (
    "echo new >new.py",
    "echo 'y = 2' >sub/b.py",  # Removed by one of the commands above.
    "mkdir deep; echo 1 >deep/d.py",
    "echo '*.py' >.gitignore; echo 1 >ignored.py",
    "echo 'z = 4' >ä.py",
    "mv sub moved",
    "rm .git -rf; echo 'x = 4' >a.py",
)


class CountingSandbox:
    """A sandbox that records the programs that were executed."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.root, self.scratch = sandbox.root, sandbox.scratch
        self.programs: list[str] = []

    async def act(self, action: SandboxAction) -> Observation:
        if isinstance(action, Execute):
            self.programs.append(action.argv[0])
        return await self._sandbox.act(action)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("commands", "is_fast"), [(KNOWN_FILES, True), ((*KNOWN_FILES, *OTHER_FILES), False)]
)
async def test_each_patch_is_the_one_that_compares_all_files(
    workspaces: WorkspaceFactory,
    sandboxes: Sandboxes,
    repository: Repository,
    commands: tuple[str, ...],
    is_fast: bool,
) -> None:
    repository.commit(FILES)
    async with workspaces.local(repository.path) as workspace, sandboxes.open("agent") as inner:
        await workspace.send_to(inner)
        sandbox = CountingSandbox(inner)
        worktree_patch = WorktreePatch(workspace, sandbox)
        await inner.act(RunShell(command="echo added >added.py"))
        await worktree_patch.read_fingerprint()
        await worktree_patch.take()
        for command in (*commands, "echo more >>added.py", "rm added.py"):
            await inner.act(RunShell(command=command))
            sandbox.programs.clear()
            await worktree_patch.read_fingerprint()
            patch = await worktree_patch.take()
            assert not is_fast or sandbox.programs == ["git"], command
            # The full comparison replaces the repository that the next fast comparison uses.
            directory = f"{inner.scratch}/patchwright-tree"
            await inner.act(RunShell(command=f"cp -a {directory}/take {directory}/kept"))
            assert patch == await workspace.take_patch(inner), command
            await inner.act(
                RunShell(command=f"rm -rf {directory}/take; mv {directory}/kept {directory}/take")
            )


async def test_a_patch_without_a_fingerprint_compares_all_files(
    workspaces: WorkspaceFactory, sandboxes: Sandboxes, repository: Repository
) -> None:
    repository.commit(FILES)
    async with workspaces.local(repository.path) as workspace, sandboxes.open("agent") as inner:
        await workspace.send_to(inner)
        sandbox = CountingSandbox(inner)
        worktree_patch = WorktreePatch(workspace, sandbox)
        for _ in range(2):
            await inner.act(RunShell(command="echo 1 >>a.py"))
            await worktree_patch.read_fingerprint()
            await worktree_patch.take()
        await inner.act(RunShell(command="echo 1 >>a.py"))
        await worktree_patch.take()
        assert sandbox.programs == ["sh", "git", "sh"]


async def test_files_of_caches_do_not_cause_a_comparison(
    workspaces: WorkspaceFactory, sandboxes: Sandboxes, repository: Repository
) -> None:
    repository.commit(FILES)
    async with workspaces.local(repository.path) as workspace, sandboxes.open("agent") as inner:
        await workspace.send_to(inner)
        await inner.act(RunShell(command="mkdir sub/__pycache__"))
        sandbox = CountingSandbox(inner)
        worktree_patch = WorktreePatch(workspace, sandbox)
        await worktree_patch.read_fingerprint()
        patch = await worktree_patch.take()
        await inner.act(RunShell(command="echo 1 >sub/__pycache__/b.pyc"))
        await worktree_patch.read_fingerprint()
        assert await worktree_patch.take() == patch
        assert sandbox.programs == ["sh"]


def test_a_diff_is_split_by_file() -> None:
    one = b"diff --git a/x b/x\nindex 1..2\n+diff --git a/y b/y\n"
    two = b"diff --git a/a b/c b/a b/c\nnew file mode 100644\n"
    assert split_diff(one + two) == {"x": one, "a b/c": two}
    assert split_diff(b'diff --git "a/\\303" "b/\\303"\n') is None
    assert split_diff(b"") == {}
