"""A workspace sends a repository to sandboxes and takes patches from them, without running its code on the
host.
"""

import asyncio
import os
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from patchwright.resolver.domain import Patch
from patchwright.resolver.errors import ChangeTooLarge, WorkspaceError
from patchwright.resolver.git.local_repository import inspect_repository
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.runtime import processes
from patchwright.runtime.actions import RunShell
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.sandbox import Sandboxes
from tests.resolver.git_repository import GIT_ENVIRONMENT, HOST_ENVIRONMENT, Repository, make_patch, shell

AUTHOR = ("Ada", "ada@example.org")
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


async def round_trip(
    workspaces: WorkspaceFactory, sandboxes: Sandboxes, repository: Repository, command: str
) -> Patch:
    """Returns the patch of `command`, after checking that a second sandbox with it gives the same patch."""
    async with workspaces.local(repository.path) as workspace:
        patch = await make_patch(workspace, sandboxes, {}, command)
        async with sandboxes.open("again") as sandbox:
            await workspace.send_to(sandbox, patch)
            assert await workspace.take_patch(sandbox) == patch
    return patch


# --- reading ------------------------------------------------------------------------------------------------


async def test_a_local_repository_is_taken_as_committed(
    workspaces: WorkspaceFactory, repository: Repository
) -> None:
    base = repository.commit({"a.py": "x = 1\n", "sub/b.bin": b"\xff\x00"})
    async with workspaces.local(repository.path) as workspace:
        assert (workspace.base, workspace.base_branch) == (base, "main")
        assert await workspace.list_files() == ("a.py", "sub/b.bin")
        assert await workspace.read("a.py") == "x = 1\n"
        assert await workspace.read("a.py", limit=3) == "x ="
        assert await workspace.read("sub/b.bin") == "\ufffd\0"
        for absent in ("none", "sub", "../a.py", "/a.py", "*.py"):
            assert await workspace.read(absent) is None
        place = workspace.git_dir
    assert not place.exists()


@pytest.mark.parametrize("change", ["echo >>a.py", "touch new", "git rm -q a.py", "touch new; git add new"])
async def test_uncommitted_changes_are_left_out(workspaces, repository, change: str) -> None:
    repository.commit({"a.py": "x = 1\n", ".gitignore": "*.log\n", "b.log": ""})
    repository.write("ignored.log", "")
    subprocess.run(change, shell=True, cwd=repository.path, env=GIT_ENVIRONMENT, check=True)  # noqa: S602
    before = repository.git("status", "--porcelain")
    async with workspaces.local(repository.path) as workspace:
        assert await workspace.read("a.py") == "x = 1\n"
        assert "new" not in await workspace.list_files()
    assert repository.git("status", "--porcelain") == before


async def test_a_commit_on_no_branch_can_be_the_base(workspaces, repository) -> None:
    old = repository.commit({"a.py": "old"})
    repository.git("reset", "--quiet", "--hard", repository.commit({"a.py": "new"}))
    repository.git("checkout", "--quiet", "--orphan", "other")
    repository.git("commit", "--quiet", "-m", "apart")
    repository.git("branch", "--delete", "--force", "main")
    async with workspaces.local(repository.path, old) as workspace:
        assert (workspace.base, workspace.base_branch) == (old, None)
        assert await workspace.read("a.py") == "old"


async def test_a_name_that_is_not_utf_8_is_shown_and_survives(workspaces, sandboxes, repository) -> None:
    (repository.path / os.fsdecode(b"caf\xe9")).write_text("1\n")
    repository.commit()
    patch = await round_trip(workspaces, sandboxes, repository, "echo 2 >>caf*; echo 3 >$'new\\xff\\n\"'")
    async with workspaces.local(repository.path) as workspace:
        assert await workspace.list_files() == ("caf\\xe9",)
        assert [change.path for change in await workspace.list_changes(patch)] == ["caf\\xe9", 'new\\xff\n"']


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("none", "There is no directory {path}. Check --repo."),
        ("plain", "{path} is not a git repository: use the directory that contains .git."),
        ("empty", "{path} is an empty repository: it has no commit yet. Create a commit first."),
        ("full", "{path} has no 'nowhere'"),
    ],
)
async def test_a_missing_repository_is_one_sentence(workspaces, tmp_path, name, sentence) -> None:
    (tmp_path / "plain").mkdir()
    Repository(tmp_path / "empty")
    Repository(tmp_path / "full").commit({"a": ""})
    path = tmp_path / name
    with pytest.raises(WorkspaceError) as caught:
        async with workspaces.local(path, "nowhere" if name == "full" else "HEAD"):
            pass
    assert str(caught.value).startswith(sentence.format(path=path))


@pytest.mark.skipif(os.geteuid() != 0, reason="to give a directory to another user takes root")
def test_a_repository_that_its_owner_hides_is_not_called_empty() -> None:
    with tempfile.TemporaryDirectory() as directory:  # Other users cannot enter the parents of `tmp_path`.
        Path(directory).chmod(0o755)
        Repository(path := Path(directory) / "r").commit({"a": ""})
        (hidden := path / ".git/refs").chmod(0o700)
        os.seteuid(65534)
        try:
            with pytest.raises(WorkspaceError) as caught:
                inspect_repository(path)
        finally:
            os.seteuid(0)
    assert str(caught.value).startswith(
        f"You have no permission to read {hidden}. Ask its owner for access, or"
    )


async def test_workspaces_of_killed_runs_are_removed_and_those_of_live_ones_are_not(
    tmp_path, repository
) -> None:
    repository.commit({"a": ""})
    first, second = WorkspaceFactory(tmp_path / "cache"), WorkspaceFactory(tmp_path / "cache")
    dead = tmp_path / "cache/workspaces/dead"
    dead.mkdir(parents=True)
    (dead.parent / "dead.lock").touch()
    async with first.local(repository.path) as living, second.local(repository.path):
        assert not dead.exists() and living.git_dir.exists()
        assert await living.read("a") == ""
    assert list((tmp_path / "cache/workspaces").iterdir()) == []


# --- sending to a sandbox -----------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_sandbox_gets_the_tree_with_history_and_no_host_files(
    workspaces, sandboxes, repository
) -> None:
    for number in range(60):
        repository.commit({"a.py": f"x = {number}\n", "run.sh": "echo\n"}, message=f"Step {number}")
    (repository.path / "run.sh").chmod(0o755)
    (repository.path / "link").symlink_to("a.py")
    repository.commit()
    async with workspaces.local(repository.path) as workspace, sandboxes.open("x") as sandbox:
        await workspace.send_to(sandbox)
        assert (
            await shell(sandbox, "cat link; ls -l run.sh | cut -c1-4; git status --short") == "x = 59\n-rwx\n"
        )
        assert (await shell(sandbox, "git log --format=%s")).splitlines()[1:3] == ["Step 59", "Step 58"]
        assert await shell(sandbox, "git rev-list --count HEAD; git remote") == "50\n"
        assert "1 file changed" in await shell(sandbox, "git show --stat HEAD~1 && git blame a.py >/dev/null")
        await shell(sandbox, "echo >n && git add n && git commit -qm mine && git fsck --no-dangling")
        found = await shell(sandbox, f"grep -rIl -e '{repository.path}' -e '{workspace.git_dir}' . || true")
        assert found == ""


async def test_a_shallow_clone_is_good_enough(workspaces, sandboxes, repository, tmp_path) -> None:
    for number in range(5):
        repository.commit({"a.py": f"x = {number}\n"})
    shallow = tmp_path / "shallow"
    repository.git("clone", "--quiet", "--depth=2", f"file://{repository.path}", str(shallow))
    async with workspaces.local(shallow) as workspace, sandboxes.open("x") as sandbox:
        await workspace.send_to(sandbox)
        assert await shell(sandbox, "cat a.py; git rev-list --count HEAD; git fsck") == "x = 4\n2\n"


@pytest.mark.slow
async def test_a_tree_that_needs_several_pieces_arrives_whole(workspaces, sandboxes, repository) -> None:
    noise = os.urandom(8_000_000)
    repository.commit({"noise.bin": noise})
    async with workspaces.local(repository.path) as workspace, sandboxes.open("x") as sandbox:
        await workspace.send_to(sandbox)
        assert await shell(sandbox, "wc -c <noise.bin; git status --short") == "8000000\n"
        assert (Path(sandbox.root) / "noise.bin").read_bytes() == noise


# --- taking a patch -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "echo y >>a.py; rm b.bin; printf 'new\\n' >new; chmod +x run.sh; ln -s a.py link; mkdir e",
        "head -c 300000 /dev/urandom >b.bin; printf '\\0' >c.bin; mv a.py 'with space \" and ü.py'",
        "printf 'one\\r\\ntwo\\r\\n' >dos.txt; sed -i 's/$/\\r/' a.py",
        "echo '*.txt text=auto eol=crlf' >.gitattributes; printf 'a\\r\\nb\\r\\n' >x.txt",
        "rm -r ./*",
    ],
    ids=["text", "binary", "crlf", "attributes", "everything"],
)
async def test_every_kind_of_change_survives_the_way_out_and_in(
    workspaces, sandboxes, repository, command
) -> None:
    repository.commit({"a.py": "x = 1\n", "b.bin": bytes(range(256)), "run.sh": "", "dos.txt": "one\r\n"})
    patch = await round_trip(workspaces, sandboxes, repository, command)
    assert not patch.is_empty
    async with workspaces.local(repository.path) as workspace:
        commit = await workspace.commit(patch, "Fix", author=AUTHOR, when=NOON)
        assert await workspace.commit(patch, "Fix", author=AUTHOR, when=NOON) == commit


@pytest.mark.slow
@pytest.mark.parametrize(
    "mess",
    [
        "git add n && git commit -qm mine",
        "git add n && git stash -q && git stash apply -q --index",
        "echo junk >.git/index",
        "git rm -q --cached a.py && git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),evil",
        "git update-ref -d HEAD; git checkout -q --orphan o 2>/dev/null; true",
        "rm -rf .git",
        "rm -rf .git && git init -q",
        "rm -rf .git && touch .git",
        "rm -rf .git/objects/*",
        'rm -rf "${TMPDIR:?}"/*',
        "git config core.worktree /; git config core.bare true; echo '*' >.git/info/exclude",
        "git config diff.external /bin/false; git config core.excludesFile a; git config core.fileMode false",
        "git update-index --assume-unchanged a.py; git sparse-checkout set --no-cone /n",
    ],
)
async def test_the_diff_is_that_of_the_tree_whatever_the_agent_did_to_git(
    workspaces, sandboxes, repository, mess
) -> None:
    repository.commit({"a.py": "x = 1\n", "b.py": "y = 1\n"})
    edit = "echo z >>a.py; echo n >n; "
    async with workspaces.local(repository.path) as workspace:
        plain = await make_patch(workspace, sandboxes, {}, edit)
        restore = "; [ -e b.py ] || echo 'y = 1' >b.py; [ -e a.py ] || printf 'x = 1\\nz\\n' >a.py"
        assert await make_patch(workspace, sandboxes, {}, edit + mess + restore) == plain


async def test_a_change_that_is_too_large_names_what_it_touches(workspaces, sandboxes, repository) -> None:
    repository.commit({"a": ""})
    with pytest.raises(ChangeTooLarge, match=r"larger than 4 MB\. Some of its paths: data/big\.bin"):
        await round_trip(
            workspaces, sandboxes, repository, "mkdir data; head -c 9000000 /dev/urandom >data/big.bin"
        )


# --- commits ------------------------------------------------------------------------------------------------


async def test_a_commit_has_the_change_its_author_and_nothing_else(workspaces, sandboxes, repository) -> None:
    base = repository.commit({"a.py": "x = 1\n", "b.py": ""})
    async with workspaces.local(repository.path) as workspace:
        patch = await make_patch(workspace, sandboxes, {"a.py": "x = 2\n"})
        first = await workspace.commit(patch, "Fix x\n\nBecause.", author=AUTHOR, when=NOON)
        again = await workspace.commit(patch, "Fix x\n\nBecause.", author=AUTHOR, when=NOON)
        other = await workspace.commit(patch, "Fix y", author=AUTHOR, when=NOON)
        repository.git("fetch", "--quiet", str(workspace.git_dir), first)
    assert first == again != other
    shown = repository.git("show", "--format=%P%n%an <%ae>%n%ct%n%B", "--stat=80", first)
    assert shown.startswith(f"{base}\nAda <ada@example.org>\n{int(NOON.timestamp())}\nFix x\n\nBecause.\n")
    assert "1 file changed, 1 insertion(+), 1 deletion(-)" in shown


@pytest.mark.parametrize(
    "diff", [b"nonsense\n", b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n+2\n"]
)
async def test_a_patch_that_does_not_apply_is_one_sentence(workspaces, repository, diff: bytes) -> None:
    base = repository.commit({"a.py": "x = 1\n"})
    async with workspaces.local(repository.path) as workspace:
        with pytest.raises(
            WorkspaceError, match=f"The change does not apply to {base[:12]}: git apply failed"
        ):
            await workspace.commit(Patch(base_sha=base, diff=diff), "m", author=AUTHOR)
        with pytest.raises(WorkspaceError, match="The change was made against 000000000000, not"):
            await workspace.commit(Patch(base_sha="0" * 40, diff=diff), "m", author=AUTHOR)


# --- the repository's code never runs on the host -----------------------------------------------------------


async def test_a_repositorys_configuration_starts_no_program(workspaces, repository, tmp_path) -> None:
    mark = tmp_path / "sprung"
    trap = tmp_path / "trap"
    trap.write_text(f'#!/bin/sh\necho "$0 $*" >>{mark}\ncat\n')
    trap.chmod(0o755)
    repository.commit({"a.py": "x = 1\n", ".gitattributes": "* filter=evil diff=evil\n"})
    for key in ("filter.evil.clean", "filter.evil.smudge", "core.fsmonitor", "diff.evil.textconv"):
        repository.git("config", key, str(trap))
    for key in (
        "core.sshCommand",
        "core.pager",
        "uploadpack.packObjectsHook",
        "credential.helper",
        "gpg.program",
    ):
        repository.git("config", key, str(trap))
    for hook in ("pre-commit", "post-checkout", "reference-transaction", "post-index-change", "pre-push"):
        target = repository.path / ".git/hooks" / hook
        target.parent.mkdir(exist_ok=True)
        target.symlink_to(trap)
    repository.write("a.py", "x = 2\n")

    sandboxes = LocalSandboxes(tmp_path / "sandboxes", HOST_ENVIRONMENT)
    async with workspaces.local(repository.path) as workspace:
        patch = await make_patch(workspace, sandboxes, {"a.py": "x = 3\n"})
        await workspace.commit(patch, "m", author=AUTHOR)
        await workspace.list_changes(patch)
    assert not mark.exists()

    repository.git("status")
    assert str(trap) in mark.read_text()  # The trap works where git is run without precautions.


async def test_variables_of_an_outer_git_are_ignored(tmp_path, repository, monkeypatch) -> None:
    base = repository.commit({"a.py": "x = 1\n"})
    other = Repository(tmp_path / "other")
    other.commit({"b.py": ""})
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.path / ".git/index"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.bare'='false'")
    async with WorkspaceFactory(tmp_path / "cache").local(repository.path) as workspace:
        assert (workspace.base, await workspace.list_files()) == (base, ("a.py",))


async def test_a_canceled_git_leaves_no_process(tmp_path, repository, monkeypatch) -> None:
    import git  # Its import runs `git version`.

    assert git
    repository.commit({"a": ""})
    slow = tmp_path / "bin/git"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nsleep 60 & wait\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")

    async def enter() -> None:
        async with WorkspaceFactory(tmp_path / "cache").local(repository.path):
            pass

    task = asyncio.create_task(enter())
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    session = int((tmp_path / "pid").read_text())
    async with asyncio.timeout(60):
        while processes.session_pids(session):
            await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.docker
async def test_docker_sandboxes_transfer_trees_and_patches_the_same_way(
    workspaces, repository, docker_sandboxes
) -> None:
    repository.commit({"a.py": "x = 1\n", "b.bin": os.urandom(2_500_000)})
    patch = await round_trip(
        workspaces, docker_sandboxes, repository, "echo 2 >>a.py; head -c 99 /dev/zero >b.bin"
    )
    async with workspaces.local(repository.path) as workspace, docker_sandboxes.open("agent") as sandbox:
        assert [change.path for change in await workspace.list_changes(patch)] == ["a.py", "b.bin"]
        await workspace.send_to(sandbox)
        result = await sandbox.act(
            RunShell(command="git log --oneline && touch n && git add n && git commit -qm n")
        )
        assert getattr(result, "exit_code", None) == 0, result
        assert "new file" in (await workspace.take_patch(sandbox)).diff.decode()
