"""One typed function per text. Words live in `templates/`; a missing value is an error, never a blank."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from resolver.domain import Job, PullRequest, SuiteRun, Thread, Verdict
from resolver.events import Ended
from resolver.llm.model import Message, ToolSpec
from resolver.preparing.skill_docs import skill_docs
from resolver.settings.server import is_loopback
from resolver.summary import Step, Summary, clip
from resolver.words import texts, wording
from runtime.egress.egress import WHY, Network, Refusal
from runtime.plugins import Plugin
from runtime.text import clip as shortened

if TYPE_CHECKING:  # these import this module
    from resolver.actions import Finish, Plan, Reported
    from resolver.brief import Brief
    from resolver.preparing.skills import Skill
    from resolver.security.risk import Rating
    from resolver.stuck import Pattern
    from resolver.words.quotation import Quoted


def render(template: str, **values: Any) -> str:
    """A template's text, with one line break at its end."""
    environment = texts.environment()
    if "quiet" not in environment.filters:
        environment.filters.update(
            quiet=wording.quiet,
            fenced=wording.fenced,
            coded=wording.coded,
            literal=wording.literal,
            money=wording.money,
            duration=wording.duration,
            brought=wording.brought,
            tally=wording.tally,
            clip=clip,
            size=wording.size,
            is_loopback=is_loopback,
            shortened=shortened,
        )
        environment.globals["why"] = WHY
    return environment.get_template(template).render(**values).strip() + "\n"


def reply(template: str, **values: Any) -> str:
    """A text for people; the empty lines that a template's branches leave are folded."""
    return re.sub(r"\n{3,}", "\n\n", render(f"replies/{template}", **values))


def brief(brief: Brief) -> str:
    """First message to the agent."""
    return render("prompts/brief.md.j2", **dict(brief))


# --- what the model reads while it works --------------------------------------------------------------------


def system(
    root: str,
    scratch: str,
    kind: Literal["docker", "local"],
    network: Network = "none",
    plugins: Sequence[Plugin] = (),
    secrets: Sequence[str] = (),
    *,
    delegates: bool = False,
    reviewed: bool = False,
) -> str:
    """The system prompt. `root` and `scratch` are absolute paths in a sandbox of this kind, network and plugins.

    `secrets` are the names of those that a command may use; `delegates`: questions may be handed to investigators;
    `reviewed`: the work is on a pull request, and what its reviewers ask for takes the place of an issue.
    """
    return render(
        "prompts/system.md.j2",
        root=root,
        scratch=scratch,
        kind=kind,
        network=network,
        plugins=plugins,
        secrets=secrets,
        delegates=delegates,
        reviewed=reviewed,
        skills=skill_docs() if "kernel" in plugins else (),
    )


def senses(frames: int) -> str:
    """What a model is told that looks at something for the agent; `frames`: of a video, 0 for a picture."""
    return render("prompts/senses.md.j2", frames=frames).strip()


def baseline(before: SuiteRun) -> str:
    """How the tests ended on the untouched code, when that was not known yet at the beginning."""
    return render("prompts/baseline.md.j2", before=before, failing=before.failing).strip()


def malformed(tool: ToolSpec, problems: Sequence[str]) -> str:
    """Why a call was not made, and the shape that its arguments should have."""
    return render("prompts/malformed.md.j2", tool=tool, problems=problems).strip()


def text_tools(tools: Sequence[ToolSpec]) -> str:
    """The tools, and how to call them, for a model that is told of them in its prompt."""
    return render("prompts/text_tools.md.j2", tools=tools)


def unknown_tool(name: str, near: str | None, known: Sequence[str]) -> str:
    """That there is no such tool, and which there are."""
    return render("prompts/unknown_tool.md.j2", name=name, near=near, known=known).strip()


def cut_off(tool: str | None) -> str:
    """That the reply ran into the output limit; `tool` is the call that was cut, None when there was none."""
    return render("prompts/cut_off.md.j2", tool=tool).strip()


def too_many_calls(made: int, limit: int) -> str:
    """Answer to the last call that is kept of a reply with more calls than may be."""
    return render("prompts/too_many_calls.md.j2", made=made, limit=limit).strip()


End = Literal["finish", "propose", "report"]
"""The call by which an agent ends its work."""


def no_call(tools: Sequence[str], end: End = "finish") -> str:
    """That a reply without a call does nothing."""
    return render("prompts/no_call.md.j2", tools=tools, end=end).strip()


def finish_noted() -> str:
    """Answer to the call that ends the work."""
    return render("prompts/finish_noted.md.j2").strip()


def steps_left(steps: int, end: End = "finish") -> str:
    """That the run is about to end at its limit."""
    return render("prompts/steps_left.md.j2", steps=steps, end=end).strip()


def lost(*, saved: bool, adopted: bool = False) -> str:
    """Answer to a call that was in flight when the run broke off.

    `saved`: what it did to the tree is kept. `adopted`: so is its sandbox, and whatever it did there.
    """
    return render("prompts/lost.md.j2", saved=saved, adopted=adopted).strip()


def resumed(scratch: str, reason: str | None = None) -> str:
    """What the model must know when its run goes on in a new sandbox; `reason`: why the last one was lost."""
    return render("prompts/resumed.md.j2", scratch=scratch, reason=reason).strip()


def adopted() -> str:
    """What the model must know when its run goes on in the sandbox that it had."""
    return render("prompts/adopted.md.j2").strip()


def skill(skill: Skill, text: str, start: int, following: int | None) -> str:
    """Part of a repository's instructions, from line `start` on; `following`: the line to go on with."""
    return render("prompts/skill.md.j2", skill=skill, text=text, start=start, following=following).strip()


def no_such_skill(name: str, names: Sequence[str]) -> str:
    """That there is no such skill, and which there are."""
    return render("prompts/no_such_skill.md.j2", name=name, names=names).strip()


def condense() -> str:
    """The system prompt of a model that sums up the work so far."""
    return render("prompts/condense.md.j2")


def to_condense(messages: Sequence[Message], limit: int) -> str:
    """The work so far as a record to read, at most about `limit` characters."""
    record = render("prompts/to_condense.md.j2", messages=messages)
    return shortened(record, limit)


def condensed(replies: int, summary: str | None, steps: Sequence[Step] | None, plan: Plan | None) -> str:
    """What stands in the place of the first so many replies: a summary, or a line for each of the last steps.

    `plan` is the latest one, when it was written in one of those replies.
    """
    return render("prompts/condensed.md.j2", replies=replies, summary=summary, steps=steps, plan=plan)


def masked(size: int, what: Literal["output", "diff", "answer"], facts: str) -> str:
    """What stands in the place of an old result of `size` characters."""
    return render("prompts/masked.md.j2", size=size, what=what, facts=facts).strip()


# --- what agents are told that ask others (what these read: browsing/delegate_prose.py) ------------------------------


def not_delegated(*, too_deep: bool, among: int = 1) -> str:
    """Why a task was not handed to so many other agents: its depth, or what is left of the run's limits."""
    return render("prompts/not_delegated.md.j2", too_deep=too_deep, among=among).strip()


def reported(report: Reported) -> str:
    """What another agent reported, as the one reads it that asked: nothing in it can pass for the program's words."""
    return render("prompts/reported.md.j2", report=report).strip()


# --- what people read on the forge --------------------------------------------------------------------------


def pull_title(thread: Thread) -> str:
    """Title of the pull request: one quiet line."""
    return f"Fix: {clip(wording.quiet(thread.title), 100)} (#{thread.number})"


def pull_body(
    thread: Thread,
    verdict: Verdict,
    story: Summary,
    files: tuple[str, ...],
    notes: tuple[str, ...],
    left_open: tuple[str, ...] = (),
    left_out: tuple[str, ...] = (),
    unsigned: str = "",
    form: str = "",
    ci: str = "",
) -> str:
    """Body of the pull request; the verdict comes first, the story last, the repository's own `form` at the end.

    `unsigned`: why the forge has not signed the commit. `ci`: why continuous integration does not start by itself.
    """
    return reply(
        "pull_body.md.j2",
        thread=thread,
        verdict=verdict,
        story=story,
        files=files,
        notes=notes,
        left_open=left_open,
        left_out=left_out,
        unsigned=unsigned,
        form=form,
        ci=ci,
    )


def commit_message(thread: Thread, account: Finish | None, requester: str = "", run: str = "") -> str:
    """Message of the one commit of a pull request; `requester`: name and address of who asked for it, `run`: its id."""
    return reply("commit.txt.j2", thread=thread, account=account, requester=requester, run=run)


def working() -> str:
    """The status comment when a run starts."""
    return reply("working.md.j2")


def delivered(pull: PullRequest, verdict: Verdict, story: Summary, *, held: bool = False) -> str:
    """The status comment once a pull request is open; `held`: it was, with this very change."""
    return reply("delivered.md.j2", pull=pull, verdict=verdict, story=story, held=held)


def declined(reason: str, branch: str | None, verdict: Verdict, story: Summary, attached: str = "") -> str:
    """The comment that says why there is no pull request, and where the work is: on a branch, or `attached`."""
    return reply(
        "declined.md.j2", reason=reason, branch=branch, verdict=verdict, story=story, attached=attached
    )


def setup_failed(command: str, code: int | None, said: str, refused: Mapping[str, Refusal]) -> str:
    """Why a set-up came to nothing. `code` None: it was stopped; `said` is the end of its output."""
    return reply("setup_failed.md.j2", command=command, code=code, said=said, refused=refused).strip()


def setup_lacks(programs: Sequence[str]) -> str:
    """That a set-up needs programs that the image does not have."""
    return reply("setup_lacks.md.j2", programs=programs).strip()


def answer(job: Job, answer: Quoted) -> str:
    """What a person answered to the agent's question."""
    return render("prompts/answer.md.j2", job=job, answer=answer).strip()


def message(job: Job, words: Quoted) -> str:
    """What a person says in the thread while the agent is at work."""
    return render("prompts/message.md.j2", job=job, words=words).strip()


def nudge(pattern: Pattern, end: End = "finish") -> str:
    """That the run goes in circles, and what to do about it."""
    return render("prompts/nudge.md.j2", pattern=pattern, end=end).strip()


def planning(has_list: bool) -> str:
    """The request to look back and ahead; `has_list`: the plan is a list that the model keeps with a tool."""
    return render("prompts/planning.md.j2", has_list=has_list).strip()


def not_yet(missing: Sequence[str]) -> str:
    """Why a wish to finish is sent back, once."""
    return render("prompts/not_yet.md.j2", missing=missing).strip()


def too_risky(rating: Rating) -> str:
    """That a call is refused for its risk, and what to do instead."""
    return render("prompts/too_risky.md.j2", rating=rating).strip()


def foreign_tool(text: str, server: str) -> str:
    """The description of a tool that is not ours."""
    return render("prompts/foreign_tool.md.j2", text=text, server=server).strip()


def ask_noted() -> str:
    """The answer to a question that ends the run."""
    return render("prompts/ask_noted.md.j2").strip()


def asked(question: str, story: Summary) -> str:
    """What is said in the thread when the run waits for an answer."""
    return reply("asked.md.j2", question=question, story=story).strip()


def refused(explanation: str) -> str:
    """The answer to a trigger that was not admitted."""
    return reply("refused.md.j2", explanation=explanation)


def withdrawn(explanation: str, story: Summary) -> str:
    """The answer where whoever asked may not have it done any more, although the work was done."""
    return reply("withdrawn.md.j2", explanation=explanation, story=story)


def failed(sentence: str, run: str) -> str:
    """The comment when the machine, the forge or the model failed us."""
    return reply("failed.md.j2", sentence=sentence, run=run)


Refusing = Literal[
    "permission",
    "withdrawn",
    "closed",
    "closed_pull",
    "locked",
    "archived",
    "empty",
    "gone",
    "nothing_asked",
    "pull_only",
    "no_plan",
    "old_plan",
    "not_stopped",
    "told",
    "done",
]


def refusal(why: Refusing, job: Job) -> str:
    """Why a job is not admitted, in a sentence or two."""
    return reply("refusal.md.j2", why=why, job=job).strip()


def no_branch(name: str) -> str:
    """That there is no branch of this name to begin from."""
    return reply("no_branch.md.j2", name=name).strip()


def nothing_changed(ending: Ended) -> str:
    """Why there is no patch."""
    return reply("nothing_changed.md.j2", ending=ending).strip()


def against_policy(refused: tuple[str, ...]) -> str:
    """Which parts of a patch may not be proposed."""
    return reply("against_policy.md.j2", refused=refused).strip()
