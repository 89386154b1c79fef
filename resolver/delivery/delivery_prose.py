"""What people read of how the work was put on the forge, as `resolver/prose.py`: one typed function per text."""

import re
from typing import Literal

from resolver.domain import Verdict
from resolver.prose import render, reply
from resolver.summary import Summary, clip

NotSigned = Literal["merge", "name", "mode", "files", "size", "refused", "different", "unsigned", "fork"]


def by_git(why: NotSigned, detail: str = "") -> str:
    """Why the forge did not sign a commit, in a sentence."""
    return render("replies/by_git.md.j2", why=why, detail=detail).strip()


def attached(patch: str) -> str:
    """The whole change in a comment, folded; `git apply` takes what is pasted."""
    longest = max((len(run) for run in re.findall(r"`{3,}", patch)), default=2)
    # A line after the patch, so that a copy that loses its last line break loses nothing of it.
    return render("replies/attached.md.j2", patch=f"{patch}-- \npatchwright\n", fence="`" * (longest + 1))


def too_large(characters: int, run: str, name: str) -> str:
    """Where a patch is that no comment can hold."""
    return render("replies/too_large.md.j2", characters=characters, run=run, name=name)


def check_title(verdict: Verdict) -> str:
    """What the check run on the commit says, in a line of plain text."""
    return clip(render("replies/check_title.md.j2", verdict=verdict), 200)


def check_summary(verdict: Verdict, story: Summary) -> str:
    """The tests before and after, on the check run's page."""
    return reply("check_summary.md.j2", verdict=verdict, story=story)


def job_summary(verdict: Verdict, story: Summary) -> str:
    """The tests before and after, the bill and what the set-up and the network came to, on a workflow's page."""
    return reply("job_summary.md.j2", verdict=verdict, story=story)


Unproposed = Literal["closed", "rewritten", "refused", "nowhere"]


def unproposed(why: Unproposed, detail: str = "") -> str:
    """Why there is no pull request although there is a change that deserves one."""
    return render("replies/unproposed.md.j2", why=why, detail=detail).strip()
