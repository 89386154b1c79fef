"""Checks that a model can call tools and reads a prompt to its end, before a run spends money on work."""

from typing import Literal

import pydantic_core

from patchwright.resolver.errors import ContextOverflow, ModelAccessDenied, ModelError, ToolsUnsupported
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.model import ChatMessage, Model, Reply, SystemMessage, ToolSpec, UserMessage
from patchwright.resolver.llm.pricing import sum_usage
from patchwright.resolver.llm.text_tool_model import TextToolModel
from patchwright.resolver.llm.token_estimate import BYTES_PER_TOKEN
from patchwright.runtime.frozen_model import FrozenModel

PROBE_NUMBER = 417  # no model writes this number by chance

FIRST_PROMPT_TOKENS = 8_000  # A run's first prompt has 6,000 to 7,500 tokens.

PROBE_PROMPT = f"Report the number {PROBE_NUMBER} with the tool report_number, and do nothing else."

_FILLER = "This line only makes the prompt longer.\n"
LONG_PROBE_PROMPT = (
    f"The number to report is {PROBE_NUMBER}.\n\n"
    + _FILLER * (FIRST_PROMPT_TOKENS * BYTES_PER_TOKEN // len(_FILLER))
    + "\nReport the number from the beginning of this message with the tool report_number, and do nothing else."
)
"""For a model whose context window is unknown. Some servers, such as Ollama, cut a prompt that is too long without an
error, so the number would be missing.
"""

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
    is_conclusive: bool = True
    """False if the model was down or the provider denied access, so that nothing is known about the model."""
    is_access_denied: bool = False
    """True if the provider rejected the key or the model name."""
    supports_vision: bool
    usage: ReplyUsage | None
    """Usage of the probe itself; None if the model returned nothing."""


async def probe_model(model: Model, tool_calling: Literal["native", "text"] = "native") -> ProbeResult:
    """Asks the model for a tool call of the configured kind. If a native call fails, asks for a tool call as text.
    If this fails, too, the result is "none" with the reason. Sends no second request if the model is down, if the
    prompt is too long for it, or if the provider denies access.

    The prompt is as long as a run's first prompt if the model's context window is unknown.
    """
    text = PROBE_PROMPT if model.context_window else LONG_PROBE_PROMPT
    prompt: tuple[ChatMessage, ...] = (SystemMessage(text="Use the tool."), UserMessage(text=text))
    usages: list[ReplyUsage] = []
    problems, advice, is_access_denied, is_conclusive = list[str](), "", False, True
    methods: tuple[Literal["native", "text"], ...] = (
        ("native", "text") if tool_calling == "native" else ("text",)
    )
    for method in methods:
        candidate = model if method == "native" else TextToolModel(model)
        try:
            reply = await candidate.reply(prompt, (PROBE_TOOL,))
        except ModelError as exc:
            problems.append(str(exc))
            is_access_denied = type(exc) is ModelAccessDenied
            if exc.usage is not None:
                usages.append(exc.usage)
            if exc.retryable or type(exc) not in (ModelError, ToolsUnsupported):
                is_conclusive = isinstance(exc, ContextOverflow)
                break  # A second request would fail the same way.
            continue
        usages.append(reply.usage)
        if (reply_problem := _find_problem(reply)) is None:
            return ProbeResult(
                model=model.name,
                tool_calling=method,
                reason="the model called the tool as instructed",
                supports_vision=model.supports_vision,
                usage=sum_usage(usages),
            )
        problems.append(reply_problem)
    else:
        advice = " (neither native nor text tool calls work: choose another model)"
    native, as_text = problems[0], problems[-1]
    both = (
        native
        if native == as_text
        else f"native tool calls: {native.rstrip('.')}; tool calls as text: {as_text}"
    )
    return ProbeResult(
        model=model.name,
        tool_calling="none",
        reason=both + advice,
        is_conclusive=is_conclusive,
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
