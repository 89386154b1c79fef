"""A bare repository on disk, which the fake server reads and writes without a work tree."""

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

GIT = shutil.which("git") or "git"

# The host's and the user's git configuration must not affect the fake server.
GIT_ENVIRONMENT = {
    "PATH": f"{Path(GIT).parent}:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
}


WORKFLOWS_VARIABLE = "FAKE_GITHUB_WORKFLOWS"  # "no" if the pusher may not change workflows
UPDATE_HOOK = f"""#!/bin/sh
# Rejects the pushes that GitHub rejects. Arguments: reference, old commit, new commit.
while IFS='|' read -r pattern why; do
    case ${{1#refs/heads/}} in
    $pattern)
        echo "error: GH006: Protected branch update failed for $1."
        echo "error: $why"
        exit 1
        ;;
    esac
done <protected
[ "${WORKFLOWS_VARIABLE}" = no ] || exit 0
old=$2
git cat-file -e "$old" 2>/dev/null || old=HEAD
for path in $(git diff --name-only "$old" "$3" -- .github/workflows); do
    echo "refusing to allow a GitHub App to create or update workflow \\`$path\\` without \\`workflows\\` permission"
    exit 1
done
"""


class BareRepository:
    """One bare repository. Its methods run git processes, so each call blocks for a few milliseconds."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, branch: str) -> "BareRepository":
        """Creates an empty repository whose HEAD points to `branch`."""
        path.mkdir(parents=True)
        bare = cls(path)
        bare.git("init", "--quiet", "--bare", f"--initial-branch={branch}", ".")
        bare.git("config", "uploadpack.allowAnySHA1InWant", "true")  # as github.com does
        bare.git("config", "uploadpack.allowFilter", "true")
        bare.git("config", "http.receivepack", "true")  # the server has already checked who may push
        (path / "protected").touch()
        (path / "hooks").mkdir(exist_ok=True)
        (path / "hooks" / "update").write_text(UPDATE_HOOK)
        (path / "hooks" / "update").chmod(0o755)
        return bare

    def git(
        self, *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] = GIT_ENVIRONMENT
    ) -> bytes:
        """Runs a git command and returns its standard output. Raises CalledProcessError."""
        ran = subprocess.run(
            [GIT, *arguments],
            cwd=self.path,
            env=environment,
            input=stdin,
            capture_output=True,
            check=True,
        )
        return ran.stdout

    def commit(self, branch: str, files: Mapping[str, str | bytes | None] | Path, message: str) -> str:
        """Commits changes of these files to `branch`, and returns the id of the new commit.

        `files` contains the new content of each file by path; None deletes a file. Other files do not change.
        """
        tip = self.branch_sha(branch)
        lines = [
            f"commit refs/heads/{branch}",
            f"committer fake <fake@forge.invalid> {int(time.time())} +0000",
            _data_block(message.encode()),
        ]
        if tip is not None:
            lines.append(f"from {tip}")
        stream = "\n".join(lines).encode() + b"\n"
        for path, (mode, content) in sorted(_file_entries(files).items()):
            if content is None:
                stream += f"D {path}\n".encode()
            else:
                stream += (
                    f"M {mode} inline {path}\n".encode() + f"data {len(content)}\n".encode() + content + b"\n"
                )
        self.git("fast-import", "--quiet", stdin=stream)
        made = self.branch_sha(branch)
        assert made is not None
        return made

    def branch_sha(self, branch: str) -> str | None:
        """Returns the commit id of the branch's tip, or None if the branch does not exist."""
        return self.resolve(f"refs/heads/{branch}")

    def resolve_ref(self, ref: str) -> str | None:
        """Returns the id of the commit that a reference names. Like GitHub, searches the branches first, and
        then tags and commit ids.
        """
        return self.branch_sha(ref.removeprefix("refs/").removeprefix("heads/")) or self.resolve(ref)

    def resolve(self, revision: str) -> str | None:
        """Returns the id of the commit that a revision names, or None if there is no such commit."""
        try:
            found = self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        except subprocess.CalledProcessError:
            return None
        return found.decode().strip()

    def branches(self) -> tuple[str, ...]:
        """Returns the names of all branches, sorted."""
        return tuple(
            self.git("for-each-ref", "--format=%(refname:strip=2)", "refs/heads/").decode().split("\n")[:-1]
        )

    def read(self, revision: str, path: str) -> bytes | None:
        """Returns the content of a file at a revision, or None if the file does not exist."""
        try:
            return self.git("cat-file", "blob", f"{revision}:{path}")
        except subprocess.CalledProcessError:
            return None

    def diff(self, base: str, head: str, *options: str) -> str:
        """Returns the diff from the merge base of `base` and `head` to `head`, as GitHub shows it."""
        return self.git("diff", *options, f"{base}...{head}").decode(errors="replace")

    def has_merge_base(self, one: str, other: str) -> bool:
        """Returns True if the two revisions have a common ancestor."""
        try:
            self.git("merge-base", one, other)
        except subprocess.CalledProcessError:
            return False
        return True

    def count_commits(self, base: str, head: str) -> int:
        """Returns the number of commits on `head` that are not on `base`."""
        return int(self.git("rev-list", "--count", f"{base}..{head}"))


def _data_block(content: bytes) -> str:
    return f"data {len(content)}\n{content.decode()}"


def _file_entries(files: Mapping[str, str | bytes | None] | Path) -> dict[str, tuple[str, bytes | None]]:
    if not isinstance(files, Path):
        return {
            path: ("100644", content.encode() if isinstance(content, str) else content)
            for path, content in files.items()
        }
    found: dict[str, tuple[str, bytes | None]] = {}
    for file in files.rglob("*"):
        relative = file.relative_to(files)
        if {".git", "__pycache__"} & set(relative.parts):
            continue
        if file.is_symlink():
            found[relative.as_posix()] = ("120000", str(file.readlink()).encode())
        elif file.is_file():
            found[relative.as_posix()] = (
                "100755" if file.stat().st_mode & 0o100 else "100644",
                file.read_bytes(),
            )
    return found
