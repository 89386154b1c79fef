"""What the contract of a forge is tried on: a repository of the stand-in, and a clone of it."""

from collections.abc import Mapping

from bot.github.rest import Pace
from demo.world.bare import Bare
from resolver.domain import Repo
from resolver.forge import Forge

SAMPLE = Repo(owner="acme", name="sample")
FIXED = "def add(a, b):\n    return a + b\n"
QUICK = Pace(between_writes=0, first_pause=0.01, timeout=10)
BRANCH = "patchwright/issue-1"


async def published(forge: Forge, clone: Bare, files: Mapping[str, str | bytes | None]) -> str:
    """These files on top of the clone's branch `fix`, on BRANCH; the commit as the forge has it, now `fix` too."""
    parent = clone.sha("fix")
    assert parent is not None
    commit = clone.commit("fix", files, "Change")
    made = await forge.publish(SAMPLE, clone.path, commit, BRANCH, parent)
    clone.git("fetch", "--quiet", "origin", f"+refs/heads/{BRANCH}:refs/heads/fix")
    assert clone.sha("fix") == made.sha
    return made.sha


def change(clone: Bare, *stream: bytes) -> tuple[str, str]:
    """A commit of these fast-import commands on `fix`, and its parent."""
    parent = clone.sha("fix")
    assert parent is not None
    message = b"Add instead of subtract\n\nIt subtracted.\n\nIssue: #1\nCo-authored-by: a <1+a@b>\n"
    head = b"commit refs/heads/fix\ncommitter Us <us@forge.invalid> 0 +0000\ndata %d\n" % len(message)
    lines = b"\n".join((head + message + b"from %b" % parent.encode(), *stream)) + b"\n"
    clone.git("fast-import", "--quiet", stdin=lines)
    commit = clone.sha("fix")
    assert commit is not None
    return commit, parent


def file(path: str, content: bytes, mode: str = "100644") -> bytes:
    return b"M %b inline %b\ndata %d\n%b" % (mode.encode(), path.encode(), len(content), content)
