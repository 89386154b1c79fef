"""What the contract of a forge is tried on: a repository of the fake server, and a clone of it."""

from collections.abc import Mapping

from patchwright.bot.github.auth import RequestPolicy
from patchwright.demo.github.bare_repository import BareRepository
from patchwright.resolver.domain import Repo
from patchwright.resolver.forge import Forge

SAMPLE = Repo(owner="acme", name="sample")
FIXED = "def add(a, b):\n    return a + b\n"
QUICK = RequestPolicy(write_interval=0, initial_backoff=0.01, timeout=10)
BRANCH = "patchwright/issue-1"


async def published(forge: Forge, clone: BareRepository, files: Mapping[str, str | bytes | None]) -> str:
    """These files on top of the clone's branch `fix`, on BRANCH; the commit as the forge has it, now `fix` too."""
    parent = clone.branch_sha("fix")
    assert parent is not None
    commit = clone.commit("fix", files, "Change")
    made = await forge.push_commit(SAMPLE, clone.path, commit, BRANCH, parent)
    clone.git("fetch", "--quiet", "origin", f"+refs/heads/{BRANCH}:refs/heads/fix")
    assert clone.branch_sha("fix") == made.sha
    return made.sha


def change(clone: BareRepository, *stream: bytes) -> tuple[str, str]:
    """A commit of these fast-import commands on `fix`, and its parent."""
    parent = clone.branch_sha("fix")
    assert parent is not None
    message = b"Add instead of subtract\n\nIt subtracted.\n\nIssue: #1\nCo-authored-by: a <1+a@b>\n"
    head = b"commit refs/heads/fix\ncommitter Us <us@forge.invalid> 0 +0000\ndata %d\n" % len(message)
    lines = b"\n".join((head + message + b"from %b" % parent.encode(), *stream)) + b"\n"
    clone.git("fast-import", "--quiet", stdin=lines)
    commit = clone.branch_sha("fix")
    assert commit is not None
    return commit, parent


def file(path: str, content: bytes, mode: str = "100644") -> bytes:
    return b"M %b inline %b\ndata %d\n%b" % (mode.encode(), path.encode(), len(content), content)
