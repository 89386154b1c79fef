"""Runs the browsing agent. Each prompt shows the page and the steps so far. The last fenced code block in the
model's reply is the action.

The browsing agent derives its next step from its log, like all agents of Patchwright. Source:
arXiv:2407.16741v2, section 3.
"""

import json
from typing import Literal

from patchwright.resolver import run_limits, stuck
from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.browsing import challenges
from patchwright.resolver.browsing.browser_options import build_action
from patchwright.resolver.browsing.guessed_urls import (
    find_missing_url,
    find_only_url,
    iter_guessed_urls,
    list_guessed_urls,
)
from patchwright.resolver.browsing.prompt import (
    MAX_ANSWER_LENGTH,
    build_prompt,
    find_last_page,
    find_schema_error,
    get_output_fields,
    list_answer_pages,
    list_pages,
)
from patchwright.resolver.browsing.structured_output import parse_output
from patchwright.resolver.domain import RunId, StopReason
from patchwright.resolver.errors import ContextOverflow, ModelAccessDenied, ModelError
from patchwright.resolver.events import (
    AgentStopped,
    AuxiliaryModelCall,
    Event,
    ModelReply,
    SystemPrompt,
    ToolCall,
    ToolResult,
    Trajectory,
)
from patchwright.resolver.llm.code_blocks import parse_code_blocks
from patchwright.resolver.llm.model import Model, Reply
from patchwright.resolver.llm.prompt_fingerprint import fingerprint
from patchwright.resolver.rendering.template_renderer import render, render_prompt
from patchwright.resolver.run_limits import Limits
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.tool_actions.unchecked_actions import MalformedCall
from patchwright.runtime.actions import UseBrowser
from patchwright.runtime.observations import ActionFailure, Observation, PageSnapshot
from patchwright.runtime.output_text import clip
from patchwright.runtime.sandbox import Sandbox

MAX_UNREADABLE_REPLIES = 3
"""Number of consecutive replies without an action after which the agent stops."""
MAX_ANSWER_ATTEMPTS = 2
"""Maximum number of reports per run that violate the output schema. When this number is reached, the last
report is returned unchanged.
"""
MAX_REPLY_LENGTH = 100_000  # characters at the end of a reply that are searched for an action
MAX_CODE_LENGTH = 20_000  # characters of one action
MAX_THOUGHT_LENGTH = 20_000  # characters of a reply's text that are logged; prompts show less
MAX_NOTE_LENGTH = 150  # characters of the line that says what was left out of a long answer

INITIAL_SNAPSHOT = "initial-snapshot"
"""Placeholder for the call id of the snapshot taken before the model's first reply."""
INITIAL_NAVIGATION = "initial-navigation"
"""Placeholder for the call id of the first navigation. The browser opens the task's URL before the first model
request, because the model would otherwise need a request only to open it.
"""


async def run_browsing_agent(log: RunLog, model: Model, sandbox: Sandbox, limits: Limits) -> AgentStopped:
    """Works on the task in the log until the agent stops.

    Raises ModelAccessDenied if the provider rejects the API key or the model, or SandboxError if the sandbox
    failed.
    """
    await log.append(SystemPrompt(text=render("prompts/browsing_system.md.j2"), tools=()))
    first_snapshot = await sandbox.act(_empty_action(log.trajectory))
    await log.append(
        ToolResult(
            call_id=INITIAL_SNAPSHOT, observation=_add_notes(first_snapshot, INITIAL_SNAPSHOT, log.trajectory)
        )
    )
    if (url := _find_initial_url(log.trajectory)) is not None:
        code = f"goto({json.dumps(url, ensure_ascii=False)})"
        opened = await sandbox.act(
            _empty_action(log.trajectory).model_copy(update={"code": code, "allowed_calls": ("goto",)})
        )
        observation = _add_notes(opened, INITIAL_NAVIGATION, log.trajectory)
        await log.append(ToolResult(call_id=INITIAL_NAVIGATION, observation=observation))
    while (stopped := log.trajectory.agent_stopped) is None:
        for event in await _run_step(log.trajectory, model, sandbox, limits):
            await log.append(event)
    return stopped


def _find_initial_url(trajectory: Trajectory) -> str | None:
    """Returns the URL in the task. Returns None if the task does not contain exactly one URL, or if the
    browser already shows a page.
    """
    started, page = trajectory.subagent_started, find_last_page(trajectory)
    if started is None or page is None or page.url != "about:blank":
        return None
    return find_only_url(started.task)


async def _run_step(
    trajectory: Trajectory, model: Model, sandbox: Sandbox, limits: Limits
) -> tuple[Event, ...]:
    if calls := trajectory.pending_calls():
        return (await _execute_call(calls[0], trajectory, sandbox),)
    if stopped := _find_stop(trajectory, limits):
        return (stopped,)
    prompt = build_prompt(trajectory)
    try:
        reply = await model.reply(prompt, ())
    except ModelAccessDenied:
        raise  # every other run would fail, too, so the operator must act
    except ModelError as exc:
        failed_calls = () if exc.usage is None else (AuxiliaryModelCall(purpose="failed", usage=exc.usage),)
        reason: StopReason = "limit" if isinstance(exc, ContextOverflow) else "error"
        return (*failed_calls, AgentStopped(reason=reason, detail=str(exc)))
    model_reply = parse_reply(reply, f"step-{len(trajectory.replies()) + 1}", _empty_action(trajectory))
    return (model_reply.model_copy(update={"prompt_fingerprint": fingerprint(prompt, ())}),)


def _empty_action(trajectory: Trajectory) -> UseBrowser:
    """Returns an action without code, with the run's options. Such an action only takes a snapshot."""
    started, page = trajectory.subagent_started, find_last_page(trajectory)
    assert started is not None, "the start is the first event of a browsing agent's log"
    return build_action(started.browser, "", len(page.tabs) if page else 1)


async def _execute_call(call: ToolCall, trajectory: Trajectory, sandbox: Sandbox) -> ToolResult:
    match call.action:
        case UseBrowser() as action:
            if (url := find_missing_url(action.code, trajectory)) is not None:
                problem = render_prompt("missing_url.md.j2", url=url)
                refused = ActionFailure(reason="refused", message=problem)
                return ToolResult(call_id=call.id, observation=refused)
            observation = await sandbox.act(action)
            return ToolResult(call_id=call.id, observation=_add_notes(observation, call.id, trajectory))
        case MalformedCall(problem=problem):
            return ToolResult(call_id=call.id, observation=ActionFailure(reason="malformed", message=problem))
        case other:
            raise AssertionError(f"{other.kind} is not an action of the browsing agent")


def _add_notes(observation: Observation, call: str, trajectory: Trajectory) -> Observation:
    """Adds notes to a page snapshot. A note says that the agent guessed the URL, or that the page shows a
    challenge, such as a CAPTCHA.
    """
    if not isinstance(observation, PageSnapshot):
        return observation
    notes = [
        render_prompt("guessed.md.j2", url=url) for id, url in iter_guessed_urls(trajectory) if id == call
    ]
    if challenge := challenges.detect_challenge(observation):
        notes.append(render_prompt("challenge.md.j2", challenge=challenge))
    return observation.model_copy(update={"notes": (*observation.notes, *notes)}) if notes else observation


def _find_stop(trajectory: Trajectory, limits: Limits) -> AgentStopped | None:
    """Returns the event that stops the agent, or None if the agent continues."""
    if has_reported(trajectory):
        return AgentStopped(reason="finished", detail="The agent reported its result.")
    if (page := find_last_page(trajectory)) and (challenge := _find_blocking_challenge(trajectory)):
        return AgentStopped(
            reason="stuck",
            detail=render_prompt("challenged.md.j2", challenge=challenge, url=page.url),
        )
    if page is None:
        failures = [event.observation for event in trajectory if isinstance(event, ToolResult)]
        problem = next((failure.message for failure in failures if isinstance(failure, ActionFailure)), "")
        return AgentStopped(reason="error", detail=f"The browser shows no page. {problem}".strip())
    if _count_unreadable_replies(trajectory) >= MAX_UNREADABLE_REPLIES:
        detail = f"The model gave {MAX_UNREADABLE_REPLIES} replies in a row without a readable action."
        return AgentStopped(reason="stuck", detail=detail)
    return run_limits.check_limits(trajectory, limits) or stuck.check_stuck_without_nudge(trajectory)


def has_reported(trajectory: Trajectory) -> bool:
    """Returns True if the agent has reported an answer, or has reported that there is no answer."""
    page = find_last_page(trajectory)
    if page is None or (page.user_message is None and page.infeasible_reason is None):
        return False
    return (
        not find_schema_error(trajectory, page) or len(list_answer_pages(trajectory)) >= MAX_ANSWER_ATTEMPTS
    )


def _find_blocking_challenge(trajectory: Trajectory) -> str | None:
    """Returns the challenge, such as a CAPTCHA, that blocks the agent. Returns None if there is no challenge,
    or if the agent may still find a way around the challenge.
    """
    return challenges.find_blocking_challenge(list_pages(trajectory, excluded_call=INITIAL_SNAPSHOT))


def _count_unreadable_replies(trajectory: Trajectory) -> int:
    """Returns the number of consecutive replies without an action at the end of the run."""
    count = 0
    for reply in reversed(trajectory.replies()):
        if not any(isinstance(call.action, MalformedCall) for call in reply.calls):
            break
        count += 1
    return count


def parse_reply(reply: Reply, call_id: str, empty_action: UseBrowser) -> ModelReply:
    """Parses a reply. Its last fenced code block is the code of the action, and the text before that block is the
    thought. `empty_action` is the action without code.
    """
    text = reply.text[-MAX_REPLY_LENGTH:]
    block = next(reversed(parse_code_blocks(text)), None)
    action: UseBrowser | MalformedCall
    if block is None or not block.text.strip():
        problem = render_prompt("no_action.md.j2", cut_off=reply.truncated)
        action = MalformedCall(name="use_browser", arguments="", problem=problem)
    elif len(block.text) > MAX_CODE_LENGTH:
        problem = f"The action is {len(block.text):,} characters long; the limit is {MAX_CODE_LENGTH:,}."
        action = MalformedCall(name="use_browser", arguments="", problem=problem)
    else:
        action = empty_action.model_copy(update={"code": block.text})
        text = text[: block.start]
    return ModelReply(
        thought=text.strip()[:MAX_THOUGHT_LENGTH],
        calls=(ToolCall(id=call_id, action=action),),
        usage=reply.usage,
        reasoning=reply.reasoning,
        truncated=reply.truncated,
    )


def build_result(run: RunId, trajectory: Trajectory) -> SubagentResult:
    """Returns the run's result for the calling agent."""
    usage, guessed_urls = trajectory.usage(), list_guessed_urls(trajectory)

    def make_result(
        status: Literal["answered", "infeasible", "unfinished"], text: str, problem: str = ""
    ) -> SubagentResult:
        text = clip(text, MAX_ANSWER_LENGTH - MAX_NOTE_LENGTH) if len(text) > MAX_ANSWER_LENGTH else text
        return SubagentResult(
            run=run, status=status, text=text, usage=usage, schema_error=problem, guessed_urls=guessed_urls
        )

    page, answer_pages = find_last_page(trajectory), list_answer_pages(trajectory)
    stopped = trajectory.agent_stopped
    if page is not None and page.infeasible_reason is not None:
        return make_result("infeasible", page.infeasible_reason)
    if answer_pages and (text := answer_pages[-1].user_message) is not None:
        problem, fields = find_schema_error(trajectory, answer_pages[-1]), get_output_fields(trajectory)
        return make_result(
            "answered", parse_output(text, fields) if fields and not problem else text, problem
        )
    if stopped is not None and stopped.reason == "stuck" and _find_blocking_challenge(trajectory):
        return make_result("infeasible", stopped.detail)
    replies = trajectory.replies()
    detail = stopped.detail if stopped else "The agent never started."
    return make_result(
        "unfinished",
        render_prompt(
            "browsing_unfinished.md.j2",
            detail=detail,
            page=page,
            thought=replies[-1].thought if replies else "",
        ),
    )
