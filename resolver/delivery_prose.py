"""What people read of how the work was put on the forge, as `prose.py`: one typed function per text."""

from typing import Literal

from resolver.prose import render

NotSigned = Literal["merge", "name", "mode", "files", "size", "refused", "different", "unsigned"]


def by_git(why: NotSigned, detail: str = "") -> str:
    """Why the forge did not sign a commit, in a sentence."""
    return render("replies/by_git.md.j2", why=why, detail=detail).strip()
