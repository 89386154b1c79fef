"""Sends a tree to a sandbox as a git pack, and reads the changes back as a text diff."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from patchwright.resolver.errors import ChangeTooLarge, WorkspaceError
from patchwright.resolver.git.git_process import GitFailed, GitLimits, run_git
from patchwright.runtime.actions import Execute, WriteBytes
from patchwright.runtime.observations import ExecuteResult, WriteResult
from patchwright.runtime.sandbox import Sandbox

MAX_DIFF = 4_000_000  # bytes
MAX_PACK = 2 << 30  # bytes
CHUNK_BYTES = 3_000_000  # Bytes per WriteBytes action.
PACK_TIMEOUT = 600
UNPACK_TIMEOUT = 1200
DIFF_TIMEOUT = 300
MAX_LISTED_PATHS = 5  # Maximum number of paths that the message of ChangeTooLarge names.

GIT_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}

LEFTOVERS = tuple(
    line
    for line in Path(__file__).with_name("leftovers.gitignore").read_text().splitlines()
    if not line.startswith("#")
)
MAX_IGNORE_PATTERNS = 100_000  # bytes; Linux allows 131,071 bytes in one argument of a program

UNPACK_SCRIPT = Path(__file__).with_name("unpack_tree.sh").read_text()

# Arguments: Patchwright's directory.
RESTORE_SCRIPT = r"""
set -eu
cd "$1"
git init --quiet --bare --template= sent.git
git --git-dir=sent.git index-pack --stdin <pack >/dev/null
rm -f pack shallow base-index
"""

DIFF_SCRIPT = Path(__file__).with_name("take_diff.sh").read_text()


async def send_tree(sandbox: Sandbox, git_dir: Path, *, base: str, tree: str, history: int) -> None:
    """Replaces the sandbox's empty work tree with `tree`. Creates a new repository for this work tree. The
    HEAD and the index of the repository are at `base`.

    The repository contains the last `history` commits and the latest version tag, but no remote. Raises
    WorkspaceError.
    """
    transfer_dir = _transfer_dir(sandbox)
    await _write_pack(sandbox, git_dir, base, tree, history)
    await _write_file(sandbox, "tag", await _latest_version_tag(git_dir, base, history))
    result = await _run_script(
        sandbox,
        UNPACK_SCRIPT,
        (sandbox.root, transfer_dir, base, tree, _read_ignore_patterns(git_dir)),
        timeout=UNPACK_TIMEOUT,
    )
    if result.exit_code != 0:
        raise WorkspaceError(
            f"The repository could not be unpacked in the sandbox: {_last_error_line(result)}"
        )


async def take_diff(sandbox: Sandbox, git_dir: Path, base: str) -> bytes:
    """Returns the diff between the commit `base` and the sandbox's work tree. Raises ChangeTooLarge,
    WorkspaceError.
    """
    tree = (sandbox.root, _transfer_dir(sandbox), base, _read_ignore_patterns(git_dir))
    diff = (*tree, "diff", str(MAX_DIFF))
    result = await _run_script(sandbox, DIFF_SCRIPT, diff, timeout=DIFF_TIMEOUT)
    if result.exit_code not in (0, None) and len(result.stdout) <= MAX_DIFF:
        # The repository in the sandbox may be deleted or broken.
        await _restore_objects(sandbox, git_dir, base)
        result = await _run_script(sandbox, DIFF_SCRIPT, diff, timeout=DIFF_TIMEOUT)
    if len(result.stdout) > MAX_DIFF:
        names = (*tree, "names", str(MAX_LISTED_PATHS))
        paths = (await _run_script(sandbox, DIFF_SCRIPT, names, timeout=DIFF_TIMEOUT)).stdout.decode(
            errors="replace"
        )
        raise ChangeTooLarge(
            f"The change is larger than {MAX_DIFF // 1_000_000} MB. Some of its paths: "
            f"{', '.join(paths.splitlines()[:MAX_LISTED_PATHS])}. Keep generated and binary files out of the work tree."
        )
    if result.exit_code is None:
        raise WorkspaceError(f"Reading the change from the sandbox took more than {DIFF_TIMEOUT} s.")
    if result.exit_code != 0:
        raise WorkspaceError(f"The change could not be read from the sandbox: {_last_error_line(result)}")
    return result.stdout


async def diff_files(sandbox: Sandbox, base: str, paths: Sequence[str]) -> bytes | None:
    """Returns the diff of these files, all of which were part of the base or of the work tree when `take_diff` was
    last called. Returns None if the diff is unknown. Takes a tenth of the time of `take_diff`.
    """
    options = ("core.bare=false", "core.compression=0", "core.autocrlf=false", "core.quotePath=true")
    difference = "diff-index --no-renames --no-color --binary --full-index --no-ext-diff --no-textconv -p"
    argv = (
        *("git", *(word for option in options for word in ("-c", option))),
        *(*difference.split(), "--src-prefix=a/", "--dst-prefix=b/", base, "--", *paths),
    )
    env = {
        **GIT_ENVIRONMENT,
        "GIT_DIR": f"{_transfer_dir(sandbox)}/take/git",
        "GIT_WORK_TREE": sandbox.root,
        "GIT_LITERAL_PATHSPECS": "1",
    }
    result = await sandbox.act(Execute(argv=argv, cwd=sandbox.root, env=env, timeout=DIFF_TIMEOUT))
    return result.stdout if isinstance(result, ExecuteResult) and result.exit_code == 0 else None


async def _restore_objects(sandbox: Sandbox, git_dir: Path, base: str) -> None:
    """Sends the git objects of `base` to the sandbox again, because the repository in the work tree may be
    deleted or broken. The objects go to Patchwright's own directory in the sandbox.
    """
    await _write_pack(sandbox, git_dir, base, base, history=1)
    result = await _run_script(sandbox, RESTORE_SCRIPT, (_transfer_dir(sandbox),), timeout=UNPACK_TIMEOUT)
    if result.exit_code != 0:
        raise WorkspaceError(
            f"The repository could not be sent to the sandbox again: {_last_error_line(result)}"
        )


async def _write_pack(sandbox: Sandbox, git_dir: Path, base: str, tree: str, history: int) -> None:
    """Writes the files `pack` and `shallow` to Patchwright's directory in the sandbox. Together they contain
    `tree` and the last `history` commits up to `base`.
    """
    shallow = await _shallow_commits(git_dir, base, history)
    revisions = [*(f"--shallow {commit}" for commit in shallow), base, tree]
    with tempfile.TemporaryFile(dir=git_dir) as pack:
        await run_git(
            *("pack-objects", "--revs", "--stdout", "--quiet", "--delta-base-offset"),
            git_dir=git_dir,
            stdin="\n".join(revisions).encode() + b"\n",
            stdout_file=pack,
            limits=GitLimits(timeout=PACK_TIMEOUT),
        )
        if (size := pack.tell()) > MAX_PACK:
            raise WorkspaceError(
                f"The packed repository has {size >> 20} MiB; the limit is {MAX_PACK >> 20} MiB."
            )
        pack.seek(0)
        await _write_file(sandbox, "shallow", "".join(f"{commit}\n" for commit in shallow).encode())
        await _write_file(sandbox, "pack", b"")
        while chunk := pack.read(CHUNK_BYTES):
            await _write_file(sandbox, "pack", chunk, append=True)


async def _shallow_commits(git_dir: Path, base: str, history: int) -> list[str]:
    """Returns the commits whose parents are missing if only the last `history` commits are sent to the
    sandbox.
    """
    listed = await run_git("rev-list", "--parents", f"--max-count={history}", base, git_dir=git_dir)
    parents = {commit: rest for commit, *rest in (line.split() for line in listed.decode().splitlines())}
    roots = {commit for commit, before in parents.items() if not parents.keys() >= set(before)}
    shallow_file = git_dir / "shallow"
    if shallow_file.exists():  # The source repository is shallow, too.
        roots |= parents.keys() & set(shallow_file.read_text().split())
    return sorted(roots)


async def _latest_version_tag(git_dir: Path, base: str, history: int) -> bytes:
    """Returns an instruction for `git update-ref -z --stdin`: create the nearest version tag before `base`.
    Returns an empty instruction if there is no such tag.

    A version tag is a tag whose name contains a digit. Build tools such as setuptools-scm derive the project's
    version from it. Without a tag, they would use version 0.1, which may lead to wrong dependencies.

    If the tagged commit is not sent to the sandbox, the tag is created on the oldest commit that is sent. In
    that case, only the number of commits since the tag is wrong.
    """
    nearest = ("describe", "--tags", "--abbrev=0", "--match=*[0-9]*", base)
    try:
        tag = f"refs/tags/{os.fsdecode(await run_git(*nearest, git_dir=git_dir)).rstrip()}"
        # For an annotated tag, git prints the name inside the tag, which the tag's author can choose freely. It is
        # possible that no tag has this name, or that the name is a path outside refs/tags.
        await run_git("show-ref", "--verify", "--quiet", tag, git_dir=git_dir)
        tagged = (
            await run_git("rev-parse", "--verify", "--quiet", f"{tag}^{{commit}}", git_dir=git_dir)
        ).strip()
    except GitFailed:
        return b""
    sent = (await run_git("rev-list", f"--max-count={history}", base, git_dir=git_dir)).split()
    return os.fsencode(f"create {tag}\0") + (tagged if tagged in sent else sent[-1]) + b"\0"


def _read_ignore_patterns(git_dir: Path) -> str:
    """Returns the ignore patterns for a work tree in a sandbox: LEFTOVERS, and then the patterns of the repository's
    own `info/exclude`, which come last because git uses the last pattern that matches.
    """
    # Without the prefix, git would match a pattern that contains a slash only at the root.
    leftovers = (f"**/{name}" if "/" in name.rstrip("/") else name for name in LEFTOVERS)
    file = git_dir / "info/exclude"
    own = file.read_bytes()[:MAX_IGNORE_PATTERNS].replace(b"\0", b"") if file.is_file() else b""
    return "\n".join((*leftovers, own.rpartition(b"\n")[0].decode(errors="ignore")))


def _transfer_dir(sandbox: Sandbox) -> str:
    return f"{sandbox.scratch}/patchwright-tree"


async def _write_file(sandbox: Sandbox, name: str, content: bytes, *, append: bool = False) -> None:
    result = await sandbox.act(
        WriteBytes(path=f"{_transfer_dir(sandbox)}/{name}", content=content, append=append)
    )
    if not isinstance(result, WriteResult):
        raise WorkspaceError(f"The repository could not be written to the sandbox: {result}")


async def _run_script(
    sandbox: Sandbox, script: str, arguments: tuple[str, ...], timeout: int
) -> ExecuteResult:
    argv = ("sh", "-c", script, "sh", *arguments)
    result = await sandbox.act(Execute(argv=argv, cwd="/", env=GIT_ENVIRONMENT, timeout=timeout))
    if not isinstance(result, ExecuteResult):
        raise WorkspaceError(f"The sandbox did not run git: {result}")
    return result


def _last_error_line(result: ExecuteResult) -> str:
    """Returns the last line of the program's error output."""
    lines = result.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1][:500] if lines else f"exit code {result.exit_code}, without output"
