"""Checks that a model can call tools, before a run spends money on work. The check sends a short request."""

from typing import Literal

import pydantic_core

from patchwright.resolver.errors import ModelAccessDenied, ModelError, ToolsUnsupported
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.model import ChatMessage, Model, Reply, ToolSpec, UserMessage
from patchwright.resolver.llm.pricing import sum_usage
from patchwright.resolver.llm.text_tool_model import TextToolModel
from patchwright.runtime.frozen_model import FrozenModel

PROBE_NUMBER = 417  # no model writes this number by chance

PROBE_PROMPT = f"Report the number {PROBE_NUMBER} with the tool report_number, and do nothing else."

PROBE_TOOL = ToolSpec(
    name="report_number",
    description="Report a number.",
    parameters={
        "type": "object",
        "properties": {"number": {"type": "integer", "description": "The number to report."}},
        "required": ["number"],
        "additionalProperties": False,
    },
)


class ProbeResult(FrozenModel):
    """The result of a model probe."""

    model: str
    tool_calling: Literal["native", "text", "none"]
    """How the model calls tools: natively, as text (the setting `tool_calling`), or not at all."""
    reason: str
    """What the probe observed, in one sentence."""
    is_access_denied: bool = False
    """True if the provider rejected the key or the model name."""
    supports_vision: bool
    usage: ReplyUsage | None
    """Usage of the probe itself; None if the model returned nothing."""


async def probe_model(model: Model) -> ProbeResult:
    """Asks the model for a native tool call. If this fails, asks for a tool call as text. If this
    fails, too, the result is "none" with the reason. Sends no second request if the model is down or the
    provider denies access.
    """
    prompt: tuple[ChatMessage, ...] = (UserMessage(text=PROBE_PROMPT),)
    usages: list[ReplyUsage] = []
    problems, advice, is_access_denied = list[str](), "", False
    for method, candidate in (("native", model), ("text", TextToolModel(model))):
        try:
            reply = await candidate.reply(prompt, (PROBE_TOOL,))
        except ModelError as exc:
            problems.append(str(exc))
            is_access_denied = type(exc) is ModelAccessDenied
            if exc.usage is not None:
                usages.append(exc.usage)
            if exc.retryable or type(exc) not in (ModelError, ToolsUnsupported):
                break  # the model is down or denies access; a second request would fail the same way
            continue
        usages.append(reply.usage)
        if (reply_problem := _find_problem(reply)) is None:
            reason = "the model called the tool as instructed"
            return ProbeResult(
                model=model.name,
                tool_calling="native" if method == "native" else "text",
                reason=reason,
                supports_vision=model.supports_vision,
                usage=sum_usage(usages),
            )
        problems.append(reply_problem)
    else:
        advice = " (neither native nor text tool calls work: choose another model)"
    native, text = problems[0], problems[-1]
    both = (
        native if native == text else f"native tool calls: {native.rstrip('.')}; tool calls as text: {text}"
    )
    return ProbeResult(
        model=model.name,
        tool_calling="none",
        reason=both + advice,
        is_access_denied=is_access_denied,
        supports_vision=model.supports_vision,
        usage=sum_usage(usages) if usages else None,
    )


def _find_problem(reply: Reply) -> str | None:
    """Returns what is wrong with a reply to the probe, or None if the reply is right."""
    if not reply.tool_calls:
        return f"the model answered without calling the tool: {' '.join(reply.text.split())[:200] or '(nothing)'}"
    call = reply.tool_calls[0]
    try:
        arguments = pydantic_core.from_json(call.arguments)
    except ValueError:
        arguments = None
    if call.name == PROBE_TOOL.name and arguments == {"number": PROBE_NUMBER}:
        return None
    return f"the model called {call.name[:60]} with {call.arguments[:100]} instead"
