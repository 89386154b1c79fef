"""What is said of a run that was stopped, to people and to the model that goes on; one typed function per text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resolver.prose import render, reply

if TYPE_CHECKING:
    from resolver.domain import Job, Thread, Verdict
    from resolver.salvage import Salvaged
    from resolver.summary import Summary
    from resolver.words.quotation import Quoted


def commit_so_far(thread: Thread) -> str:
    """Message of the commit that keeps the work of a run which was stopped."""
    return reply("commit_so_far.txt.j2", thread=thread)


def salvaged(
    why: str,
    kept: Salvaged,
    verdict: Verdict | None,
    story: Summary,
    run: str,
    mention: str,
    *,
    lasting: bool,
) -> str:
    """The comment of a run that was stopped: why, where the work is, how far it got, how to go on."""
    return reply(
        "salvaged.md.j2",
        why=why,
        kept=kept,
        verdict=verdict,
        story=story,
        run=run,
        mention=mention,
        lasting=lasting,
    )


def resumed_by(job: Job | None, stopped: str, words: Quoted) -> str:
    """That somebody had a run go on that had been stopped; `job` None: the operator. `words` may be empty."""
    return render("prompts/resumed_by.md.j2", job=job, stopped=stopped, words=words).strip()
