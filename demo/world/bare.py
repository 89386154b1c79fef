"""A bare repository on disk: the stand-in's own reading and writing, without a work tree."""

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

GIT = shutil.which("git") or "git"

# Nothing of the host's or the user's git configuration reaches the stand-in.
GIT_ENVIRONMENT = {
    "PATH": f"{Path(GIT).parent}:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
}


WORKFLOWS_VARIABLE = "WORLD_WORKFLOWS"  # "no" when whoever pushes may not change workflows
UPDATE = f"""#!/bin/sh
# What GitHub refuses of a push; git gives reference, old and new commit.
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


class Bare:
    """One bare repository. Its methods block for a few milliseconds each: they are git processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, branch: str) -> "Bare":
        """A new, empty repository whose HEAD names `branch`."""
        path.mkdir(parents=True)
        bare = cls(path)
        bare.git("init", "--quiet", "--bare", f"--initial-branch={branch}", ".")
        bare.git("config", "uploadpack.allowAnySHA1InWant", "true")  # as github.com does
        bare.git("config", "uploadpack.allowFilter", "true")
        bare.git("config", "http.receivepack", "true")  # who may push was asked before
        (path / "protected").touch()
        (path / "hooks").mkdir(exist_ok=True)
        (path / "hooks" / "update").write_text(UPDATE)
        (path / "hooks" / "update").chmod(0o755)
        return bare

    def git(
        self, *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] = GIT_ENVIRONMENT
    ) -> bytes:
        """Standard output of one git command. Raises CalledProcessError."""
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
        """Full id of a new commit on `branch` with these files on top of what is there; None removes one."""
        tip = self.sha(branch)
        lines = [
            f"commit refs/heads/{branch}",
            f"committer Stand-in <stand-in@forge.invalid> {int(time.time())} +0000",
            _data(message.encode()),
        ]
        if tip is not None:
            lines.append(f"from {tip}")
        stream = "\n".join(lines).encode() + b"\n"
        for path, (mode, content) in sorted(_entries(files).items()):
            if content is None:
                stream += f"D {path}\n".encode()
            else:
                stream += (
                    f"M {mode} inline {path}\n".encode() + f"data {len(content)}\n".encode() + content + b"\n"
                )
        self.git("fast-import", "--quiet", stdin=stream)
        made = self.sha(branch)
        assert made is not None
        return made

    def sha(self, branch: str) -> str | None:
        """Full id of the branch's tip, None if there is no such branch."""
        return self.resolve(f"refs/heads/{branch}")

    def meant(self, ref: str) -> str | None:
        """Full id of the commit that GitHub takes this for: a branch first, then a tag, or an id."""
        return self.sha(ref.removeprefix("refs/").removeprefix("heads/")) or self.resolve(ref)

    def resolve(self, revision: str) -> str | None:
        """Full id of the commit that a revision names, None if it names none."""
        try:
            found = self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        except subprocess.CalledProcessError:
            return None
        return found.decode().strip()

    def branches(self) -> tuple[str, ...]:
        """Names of all branches, sorted."""
        return tuple(
            self.git("for-each-ref", "--format=%(refname:strip=2)", "refs/heads/").decode().split("\n")[:-1]
        )

    def read(self, revision: str, path: str) -> bytes | None:
        """Content of a file at a revision, None if there is none."""
        try:
            return self.git("cat-file", "blob", f"{revision}:{path}")
        except subprocess.CalledProcessError:
            return None

    def diff(self, base: str, head: str, *options: str) -> str:
        """What `head` changed since it left `base`, as a forge shows it."""
        return self.git("diff", *options, f"{base}...{head}").decode(errors="replace")

    def related(self, one: str, other: str) -> bool:
        """Whether the two have a commit in common."""
        try:
            self.git("merge-base", one, other)
        except subprocess.CalledProcessError:
            return False
        return True

    def count(self, base: str, head: str) -> int:
        """Number of commits on `head` that `base` has not."""
        return int(self.git("rev-list", "--count", f"{base}..{head}"))


def _data(content: bytes) -> str:
    return f"data {len(content)}\n{content.decode()}"


def _entries(files: Mapping[str, str | bytes | None] | Path) -> dict[str, tuple[str, bytes | None]]:
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
