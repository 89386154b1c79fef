"""How a tree gets into a sandbox, and how the difference comes out: a pack in, text out."""

import os
import tempfile
from pathlib import Path

from resolver.errors import ChangeTooLarge, WorkspaceError
from resolver.git.plumbing import GitFailed, run_git
from runtime.actions import Execute, MarkTree, WriteBytes
from runtime.observations import Executed, Marked, Written
from runtime.sandbox import Sandbox

MAX_DIFF = 4_000_000  # bytes
MAX_PACK = 2 << 30  # bytes
CHUNK = 3_000_000  # bytes; one WriteBytes
PACK_SECONDS = 600
UNPACK_SECONDS = 1200
TAKE_SECONDS = 300
NAMED = 5  # paths that are named of a change that is too large

GIT_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}

# What tests and tools leave behind, wherever the repository forgot to ignore it: patterns for git.
LEFTOVERS = r"""
leftovers() {
  printf '%s\n' __pycache__/ '*.py[co]' .pytest_cache/ .mypy_cache/ .ruff_cache/ .hypothesis/ .tox/ .nox/ \
    .venv/ .coverage '*.egg-info/' node_modules/ .DS_Store '*.orig' '*.rej'
}
"""

# Arguments: work tree, directory of ours, base commit, tree. What TAKE leaves out, `git status` does not show.
UNPACK = (
    LEFTOVERS
    + r"""
set -eu
root=$1 ours=$2 base=$3 tree=$4
cd "$root"
git init --quiet --template= --initial-branch=work .
git config user.name "Patchwright agent"
git config user.email "agent@patchwright.invalid"
mkdir -p .git/info
leftovers >.git/info/exclude
git index-pack --stdin <"$ours/pack" >"$ours/packed"
if [ -s "$ours/shallow" ]; then cp "$ours/shallow" .git/shallow; fi
git update-ref refs/heads/work "$base"
git update-ref -z --stdin <"$ours/tag"
git read-tree --reset -u "$tree"
git reset --quiet
cp -p .git/index "$ours/base-index"
rm "$ours/pack" "$ours/packed" "$ours/shallow" "$ours/tag"
"""
)

# Arguments: directory of ours.
RESTORE = r"""
set -eu
cd "$1"
git init --quiet --bare --template= sent.git
git --git-dir=sent.git index-pack --stdin <pack >/dev/null
rm -f pack shallow base-index
"""

# Arguments: work tree, directory of ours, base commit, and `diff` with its most bytes, or `names` with how many.
# The repository is ours and new each time: the tree's own configuration, hooks, filters and index do not count,
# nor what was staged or committed there. Its objects are those of the work tree's repository, or those of
# `sent.git` when that one is broken. `base-index` is the index at base as `send` left it: it knows which files are
# unchanged since. As few programs as can be: each costs some milliseconds.
TAKE = (
    LEFTOVERS
    + r"""
set -eu
root=$1 ours=$2 base=$3 what=$4 most=$5
work="$ours/take"
if [ -e "$work" ] || [ -L "$work" ]; then rm -rf "$work"; fi
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/git/objects/info" "$work/git/refs" "$work/git/info"
echo 'ref: refs/heads/none' >"$work/git/HEAD"
objects="$root/.git/objects"
if [ -d "$ours/sent.git/objects" ]; then objects="$ours/sent.git/objects"; fi
printf '%s\n' "$objects" >"$work/git/objects/info/alternates"
leftovers >"$work/git/info/exclude"
ours_git() {
  git --git-dir="$work/git" --work-tree="$root" -c core.bare=false -c core.compression=0 \
    -c core.autocrlf=false -c core.quotePath=true -c core.excludesFile=/dev/null "$@"
}
cd "$root"
from_base() {
  rm -f "$work/git/index"
  ours_git read-tree "$base"
}
add() { ours_git add --all --ignore-errors . >"$work/said" 2>&1; }
difference() { ours_git diff-index --cached --no-renames --no-color "$@" "$base"; }
added_repository() { difference --raw | grep -q '^:000000 160000 '; }
cp -p "$ours/base-index" "$work/git/index" 2>/dev/null || from_base
# git warns of each repository that it finds inside the tree.
if ! add || { [ -s "$work/said" ] && added_repository; }; then
  # It cannot be part of a diff; without it the rest can.
  find . -mindepth 2 -name .git -prune -print |
    sed 's|^\.||; s|/\.git$||; s|[][*?\\]|\\&|g' >>"$work/git/info/exclude"
  from_base
  add || true
fi
if [ "$what" = names ]; then
  difference --name-only --diff-filter=d | head -n "$most"
  exit
fi
{
  difference --binary --full-index --no-ext-diff --no-textconv --src-prefix=a/ --dst-prefix=b/ -p ||
    echo "$?" >"$work/failed"
} | head -c "$((most + 1))"
[ ! -e "$work/failed" ]
"""
)


async def send_tree(sandbox: Sandbox, git_dir: Path, *, base: str, tree: str, history: int) -> None:
    """Make the sandbox's work tree the `tree`, in a new repository whose HEAD and index are `base`.

    The repository has no remote, `history` commits and the tag of the last version. Raises WorkspaceError.
    """
    ours = _ours(sandbox)
    await _write_pack(sandbox, git_dir, base, tree, history)
    await _write(sandbox, "tag", await _last_version(git_dir, base, history))
    done = await _execute(sandbox, UNPACK, (sandbox.root, ours, base, tree), seconds=UNPACK_SECONDS)
    if done.exit_code != 0:
        raise WorkspaceError(f"The repository could not be unpacked in the sandbox: {_said(done)}")


async def take_diff(sandbox: Sandbox, git_dir: Path, base: str) -> bytes:
    """The difference between the commit `base` and the sandbox's work tree. Raises ChangeTooLarge, WorkspaceError."""
    diff = (sandbox.root, _ours(sandbox), base, "diff", str(MAX_DIFF))
    taken = await _execute(sandbox, TAKE, diff, seconds=TAKE_SECONDS)
    if taken.exit_code not in (0, None) and len(taken.stdout) <= MAX_DIFF:
        await _restore(sandbox, git_dir, base)  # its repository may be gone or broken
        taken = await _execute(sandbox, TAKE, diff, seconds=TAKE_SECONDS)
    if len(taken.stdout) > MAX_DIFF:
        names = (*diff[:3], "names", str(NAMED))
        named = (await _execute(sandbox, TAKE, names, seconds=TAKE_SECONDS)).stdout.decode(errors="replace")
        raise ChangeTooLarge(
            f"The change is larger than {MAX_DIFF // 1_000_000} MB; among what it touches: "
            f"{', '.join(named.splitlines()[:NAMED])}. Keep generated and binary files out of the work tree."
        )
    if taken.exit_code is None:
        raise WorkspaceError(f"Taking the change out of the sandbox took more than {TAKE_SECONDS} s.")
    if taken.exit_code != 0:
        raise WorkspaceError(f"The change could not be taken out of the sandbox: {_said(taken)}")
    return taken.stdout


async def mark(sandbox: Sandbox) -> str | None:
    """A name of the work tree's state; the same as long as nothing there is written. None: not known."""
    seen = await sandbox.act(MarkTree())
    return seen.mark if isinstance(seen, Marked) else None


async def _restore(sandbox: Sandbox, git_dir: Path, base: str) -> None:
    """Put the objects of `base` beside the work tree once more."""
    await _write_pack(sandbox, git_dir, base, base, history=1)
    done = await _execute(sandbox, RESTORE, (_ours(sandbox),), seconds=UNPACK_SECONDS)
    if done.exit_code != 0:
        raise WorkspaceError(f"The repository could not be sent to the sandbox again: {_said(done)}")


async def _write_pack(sandbox: Sandbox, git_dir: Path, base: str, tree: str, history: int) -> None:
    """Write `pack` and `shallow` into our directory there: the last commits up to `base`, and `tree`."""
    shallow = await _shallow(git_dir, base, history)
    wanted = [*(f"--shallow {commit}" for commit in shallow), base, tree]
    with tempfile.TemporaryFile(dir=git_dir) as pack:
        await run_git(
            *("pack-objects", "--revs", "--stdout", "--quiet", "--delta-base-offset"),
            git_dir=git_dir,
            stdin="\n".join(wanted).encode() + b"\n",
            into=pack,
            seconds=PACK_SECONDS,
        )
        if (size := pack.tell()) > MAX_PACK:
            raise WorkspaceError(f"The repository packs to {size >> 20} MiB; {MAX_PACK >> 20} are the limit.")
        pack.seek(0)
        await _write(sandbox, "shallow", "".join(f"{commit}\n" for commit in shallow).encode())
        await _write(sandbox, "pack", b"")
        while piece := pack.read(CHUNK):
            await _write(sandbox, "pack", piece, append=True)


async def _shallow(git_dir: Path, base: str, history: int) -> list[str]:
    """The commits that look like first ones to somebody who has only the last `history` of them."""
    listed = await run_git("rev-list", "--parents", f"--max-count={history}", base, git_dir=git_dir)
    parents = {commit: rest for commit, *rest in (line.split() for line in listed.decode().splitlines())}
    cut = {commit for commit, before in parents.items() if not parents.keys() >= set(before)}
    known = git_dir / "shallow"
    if known.exists():  # the source was shallow itself
        cut |= parents.keys() & set(known.read_text().split())
    return sorted(cut)


async def _last_version(git_dir: Path, base: str, history: int) -> bytes:
    """What makes the nearest tag before `base` with a digit in it, for `git update-ref -z --stdin`; empty: none.

    Builds make a version of it, as setuptools-scm does: without, they install 0.1 and what goes with that. A tag
    that is older than what is sent stands on the oldest commit there: only the commits since are too few then.
    """
    nearest = ("describe", "--tags", "--abbrev=0", "--match=*[0-9]*", base)
    try:
        tag = f"refs/tags/{os.fsdecode(await run_git(*nearest, git_dir=git_dir)).rstrip()}"
        # The name is the one that an annotated tag gives itself: it may be no tag's here, or one of a file.
        await run_git("show-ref", "--verify", "--quiet", tag, git_dir=git_dir)
        at = (await run_git("rev-parse", "--verify", "--quiet", f"{tag}^{{commit}}", git_dir=git_dir)).strip()
    except GitFailed:
        return b""
    sent = (await run_git("rev-list", f"--max-count={history}", base, git_dir=git_dir)).split()
    return os.fsencode(f"create {tag}\0") + (at if at in sent else sent[-1]) + b"\0"


def _ours(sandbox: Sandbox) -> str:
    return f"{sandbox.scratch}/patchwright-tree"


async def _write(sandbox: Sandbox, name: str, content: bytes, *, append: bool = False) -> None:
    seen = await sandbox.act(WriteBytes(path=f"{_ours(sandbox)}/{name}", content=content, append=append))
    if not isinstance(seen, Written):
        raise WorkspaceError(f"The repository could not be written to the sandbox: {seen}")


async def _execute(sandbox: Sandbox, script: str, arguments: tuple[str, ...], seconds: int) -> Executed:
    argv = ("sh", "-c", script, "sh", *arguments)
    seen = await sandbox.act(Execute(argv=argv, cwd="/", env=GIT_ENVIRONMENT, timeout=seconds))
    if not isinstance(seen, Executed):
        raise WorkspaceError(f"The sandbox did not run git: {seen}")
    return seen


def _said(done: Executed) -> str:
    """The last line of its complaint."""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1][:500] if lines else f"exit code {done.exit_code}, and it said nothing"
