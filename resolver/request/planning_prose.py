"""What is said about plans, questions and options, to people and to the model; one typed function per text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from resolver.prose import render, reply
from resolver.words.spans import closed

if TYPE_CHECKING:
    from resolver.actions import Propose
    from resolver.domain import Job
    from resolver.request.request import Unclear
    from resolver.summary import Summary
    from resolver.words.quotation import Quoted
    from runtime.egress.egress import Network


def explain_system(
    root: str,
    scratch: str,
    kind: Literal["docker", "local"],
    network: Network,
    longest: int,
    *,
    reviewed: bool,
) -> str:
    """The system prompt of a run that answers a question; the rest is as in `prose.system`.

    `longest`: characters of an answer.
    """
    return render(
        "prompts/explain_system.md.j2",
        root=root,
        scratch=scratch,
        kind=kind,
        network=network,
        longest=longest,
        reviewed=reviewed,
    )


def go(job: Job, words: Quoted) -> str:
    """That somebody says go to the plan; `words` may be empty."""
    return render("prompts/go.md.j2", who=who(job), words=words).strip()


def plan_answered(job: Job, words: Quoted) -> str:
    """What somebody says to the plan who has not said go."""
    return render("prompts/plan_answered.md.j2", who=who(job), words=words).strip()


def no_go_yet() -> str:
    """Answer to a call that has to wait for a go."""
    return render("prompts/no_go_yet.md.j2").strip()


def planned_already() -> str:
    """Answer to a plan that is handed over when there is a go already."""
    return render("prompts/planned_already.md.j2").strip()


def propose_noted() -> str:
    """Answer to the call that hands over the plan."""
    return render("prompts/propose_noted.md.j2").strip()


def who(job: Job) -> str:
    """Whoever asked, as the model is told of them."""
    return job.requester.login if job.requester else "The person who started you"


# --- what people read ---------------------------------------------------------------------------------------


def planned(plan: Propose, story: Summary) -> str:
    """The status comment with a plan, and how to answer it."""
    settings = story.under.settings if story.under else {}
    days = f"{settings.get('approval_days', 14):g} days"
    mention = settings.get("mention", "@agent")
    said = {name: closed(text) for name, text in dict(plan).items() if name in ("cause", "proof", "risks")}
    plan = plan.model_copy(update=said)
    return reply("plan.md.j2", plan=plan, story=story, mention=mention, days=days)


def explained(answer: str | None, story: Summary) -> str:
    """The status comment with the answer to a question; None: the run came to none."""
    return reply("explained.md.j2", answer=closed(answer) if answer else None, story=story)


def unclear(slip: Unclear) -> str:
    """Why nothing is begun where a command was mistyped, in a sentence or two."""
    return reply("unclear.md.j2", unclear=slip).strip()


def no_such_model(name: str, known: Sequence[str]) -> str:
    """That people may not choose this model, and which they may."""
    return reply("no_such_model.md.j2", name=name, known=known).strip()
