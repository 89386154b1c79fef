"""The browsing agent: a page and what was done so far make one prompt, the reply's last fenced block is the action.

Like any agent here it reads its next step from its log. Source: arXiv:2407.16741v2, section 3.
"""

import json
from typing import Literal

from resolver import rules, stuck
from resolver.actions import Malformed, Reported
from resolver.browsing import challenges, delegate_prose
from resolver.browsing.addresses import guessed, guesses, only_address
from resolver.browsing.answers import formed
from resolver.browsing.prompt import MAX_ANSWER, answers, asked_fields, last_page, off_form, pages, shown
from resolver.domain import EndingReason, RunId
from resolver.errors import ContextOverflow, ModelError, ModelRefused
from resolver.events import Call, Consulted, Decided, Ended, Event, Observed, Prompted, Trajectory
from resolver.llm.fences import blocks
from resolver.llm.model import Model, Reply
from resolver.log import Log
from resolver.replay import fingerprint
from resolver.rules import Limits
from runtime.actions import UseBrowser
from runtime.browser.calls import DEFAULT
from runtime.observations import Failed, Look, Observation, Page
from runtime.sandbox import Sandbox
from runtime.text import clip

ALLOWED = (*DEFAULT, "report_infeasible", "new_tab", "tab_focus", "tab_close")
"""The calls of the prompt's action space, and those that it names where they are of use."""
UNREADABLE = 3
"""So many replies in a row without an action end the run."""
TRIES = 2
"""Reports of one run that may be off the form that was asked for; the last one is handed on as it is."""
MAX_REPLY = 100_000  # characters of a reply, its last ones, in which an action is looked for
MAX_CODE = 20_000  # characters of one action
MAX_THOUGHT = 20_000  # characters of a reply's text that the log keeps; prompts show less of it

FIRST_LOOK = "first-look"
"""Stands for a call's id where the program looks at the page before the model is asked."""
FIRST_ADDRESS = "first-address"
"""The same where it opens the address that the task names: the model's first reply could do nothing else."""


async def work(log: Log, model: Model, sandbox: Sandbox, limits: Limits) -> Ended:
    """Work on what the log was assigned, until that has ended.

    Raises ModelRefused when the operator must act, SandboxError when the machine failed.
    """
    look = Look(screenshot=model.sees)
    await log.append(Prompted(system=delegate_prose.browsing_system(), tools=()))
    first = await sandbox.act(UseBrowser(look=look))
    await log.append(Observed(call=FIRST_LOOK, observation=_annotated(first, FIRST_LOOK, log.trajectory)))
    if (url := _address(log.trajectory)) is not None:
        go = f"goto({json.dumps(url, ensure_ascii=False)})"
        opened = await sandbox.act(UseBrowser(code=go, allowed=ALLOWED, look=look))
        observation = _annotated(opened, FIRST_ADDRESS, log.trajectory)
        await log.append(Observed(call=FIRST_ADDRESS, observation=observation))
    while (ended := log.trajectory.ended) is None:
        for event in await _next(log.trajectory, model, sandbox, limits, look):
            await log.append(event)
    return ended


def _address(trajectory: Trajectory) -> str | None:
    """Where the work begins beyond doubt: the browser shows nothing yet, and the task names one address."""
    assigned, page = trajectory.assigned, last_page(trajectory)
    if assigned is None or page is None or page.url != "about:blank":
        return None
    return only_address(assigned.task)


async def _next(
    trajectory: Trajectory, model: Model, sandbox: Sandbox, limits: Limits, look: Look
) -> tuple[Event, ...]:
    if calls := trajectory.unanswered():
        return (await _answer(calls[0], trajectory, sandbox),)
    if ended := _ending(trajectory, limits):
        return (ended,)
    prompt = shown(trajectory)
    try:
        reply = await model.reply(prompt, ())
    except ModelRefused:
        raise  # no other run would fare better: the operator must hear it
    except ModelError as exc:
        billed = () if exc.usage is None else (Consulted(purpose="failed", usage=exc.usage),)
        reason: EndingReason = "limit" if isinstance(exc, ContextOverflow) else "error"
        return (*billed, Ended(reason=reason, detail=str(exc)))
    replied = decided(reply, f"step-{len(trajectory.decisions()) + 1}", look)
    return (replied.model_copy(update={"prompt": fingerprint(prompt, ())}),)


async def _answer(call: Call, trajectory: Trajectory, sandbox: Sandbox) -> Observed:
    match call.action:
        case UseBrowser() as action:
            seen = await sandbox.act(action)
            return Observed(call=call.id, observation=_annotated(seen, call.id, trajectory))
        case Malformed(problem=problem):
            return Observed(call=call.id, observation=Failed(reason="malformed", message=problem))
        case other:
            raise AssertionError(f"{other.kind} is no action of a browsing agent")


def _annotated(seen: Observation, call: str, trajectory: Trajectory) -> Observation:
    """A page with what is to be said about it: that nobody named its address, or that it stands in the way."""
    if not isinstance(seen, Page):
        return seen
    notes = [delegate_prose.guessed(url) for id, url in guesses(trajectory) if id == call]
    if what := challenges.challenge(seen):
        notes.append(delegate_prose.challenge(what))
    return seen.model_copy(update={"notes": (*seen.notes, *notes)}) if notes else seen


def _ending(trajectory: Trajectory, limits: Limits) -> Ended | None:
    """Why the model is not to be asked again, if there is a reason."""
    if has_reported(trajectory):
        return Ended(reason="finished", detail="It reported and ended its work.")
    if (page := last_page(trajectory)) and (what := _blocked(trajectory)):
        return Ended(reason="stuck", detail=delegate_prose.challenged(what, page.url))
    if page is None:
        failures = [event.observation for event in trajectory if isinstance(event, Observed)]
        problem = next((each.message for each in failures if isinstance(each, Failed)), "")
        return Ended(reason="error", detail=f"The browser shows no page. {problem}".strip())
    if _unreadable(trajectory) >= UNREADABLE:
        detail = f"It gave {UNREADABLE} replies in a row without an action that could be read."
        return Ended(reason="stuck", detail=detail)
    return rules.ending(trajectory, limits) or stuck.ending_at_once(trajectory)


def has_reported(trajectory: Trajectory) -> bool:
    """Whether it gave its answer, or said that there is none."""
    page = last_page(trajectory)
    if page is None or (page.answer is None and page.infeasible is None):
        return False
    return not off_form(trajectory, page) or len(answers(trajectory)) >= TRIES


def _blocked(trajectory: Trajectory) -> str | None:
    """What stands in its way, and still did after it could have gone elsewhere."""
    return challenges.blocked(pages(trajectory, but=FIRST_LOOK))


def _unreadable(trajectory: Trajectory) -> int:
    """How many replies at the end of the run held no action."""
    count = 0
    for reply in reversed(trajectory.decisions()):
        if not any(isinstance(call.action, Malformed) for call in reply.calls):
            break
        count += 1
    return count


def decided(reply: Reply, call: str, look: Look) -> Decided:
    """A reply with its one action: the text of its last fenced block; what stands before it is the thought."""
    text = reply.text[-MAX_REPLY:]
    block = next(reversed(blocks(text)), None)
    action: UseBrowser | Malformed
    if block is None or not block.text.strip():
        problem = delegate_prose.no_action(cut_off=reply.truncated)
        action = Malformed(name="use_browser", arguments="", problem=problem)
    elif len(block.text) > MAX_CODE:
        problem = f"The action is {len(block.text):,} characters long; {MAX_CODE:,} are the limit."
        action = Malformed(name="use_browser", arguments="", problem=problem)
    else:
        action = UseBrowser(code=block.text, allowed=ALLOWED, look=look)
        text = text[: block.start]
    return Decided(
        thought=text.strip()[:MAX_THOUGHT],
        calls=(Call(id=call, action=action),),
        usage=reply.usage,
        reasoning=reply.reasoning,
        truncated=reply.truncated,
    )


def report(run: RunId, trajectory: Trajectory) -> Reported:
    """What became of the run, for who asked for it."""
    spent, made_up = trajectory.spent(), guessed(trajectory)

    def said(
        status: Literal["answered", "infeasible", "unfinished"], text: str, problem: str = ""
    ) -> Reported:
        text = clip(text, MAX_ANSWER)
        return Reported(run=run, status=status, text=text, spent=spent, off_form=problem, guessed=made_up)

    page, given, ended = last_page(trajectory), answers(trajectory), trajectory.ended
    if page is not None and page.infeasible is not None:
        return said("infeasible", page.infeasible)
    if given and (text := given[-1].answer) is not None:
        problem, fields = off_form(trajectory, given[-1]), asked_fields(trajectory)
        return said("answered", formed(text, fields) if fields and not problem else text, problem)
    if ended is not None and ended.reason == "stuck" and _blocked(trajectory):
        return said("infeasible", ended.detail)
    replies = trajectory.decisions()
    detail = ended.detail if ended else "It never began."
    return said(
        "unfinished", delegate_prose.browsing_unfinished(detail, page, replies[-1].thought if replies else "")
    )
