"""Renders a step, a tool call and its result as a title, blocks and a summary, without repeating any text."""

from collections.abc import Iterator
from typing import Any, Literal

from patchwright.resolver.actions import AnyObservation, ExternalToolResult, SubagentResult
from patchwright.resolver.agent.messages import render_observation
from patchwright.resolver.cost import format_usd
from patchwright.resolver.descriptions import describe_observation
from patchwright.resolver.events import ModelReply
from patchwright.resolver.rendering import filters
from patchwright.resolver.viewer.blocks import (
    Block,
    ChecklistBlock,
    TextBlock,
    build_code_block,
    build_diff_block,
    build_text_block,
)
from patchwright.runtime.observations import (
    Acknowledgment,
    ActionFailure,
    CellResult,
    EditResult,
    PageSnapshot,
    ShellResult,
    TextResult,
)
from patchwright.runtime.output_text import MAX_LINE, clip_line
from patchwright.runtime.tool_action import CallDescription, CallKind

ItemKind = CallKind | Literal["program"]
MAX_TITLE_LENGTH = MAX_LINE - 20  # characters of a call's title
MAX_CLIPPED_TITLE_LENGTH = 100  # characters of a call's title if a block below shows the whole text


def render_call_title(call: CallDescription) -> str:
    """Returns the title of a call. A block below the title shows long commands and code in full, so the title
    contains only their beginning.
    """
    return call.heading or clip_line(
        call.title, MAX_LINE if _fits_in_title(call.code) else MAX_CLIPPED_TITLE_LENGTH
    )


def build_reply_blocks(reply: ModelReply, limit: int) -> tuple[Block, ...]:
    """Returns the reasoning of a reply, which is folded, and its text. Reasoning that only the provider can read is
    named by its kind.
    """
    parts = (
        "\n".join(_iter_reasoning_texts(block)) or f"[{block.get('type', 'unknown')}: not readable]"
        for block in reply.reasoning
    )
    texts = (("Reasoning", "\n\n".join(parts), True), ("", reply.thought, False))
    return tuple(
        build_text_block(label, text, limit, is_folded=is_folded)
        for label, text, is_folded in texts
        if text.strip()
    )


def _iter_reasoning_texts(value: Any) -> Iterator[str]:
    """Yields the readable texts of a reasoning block, in the fields of Anthropic, OpenAI, DeepSeek and OpenRouter."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _iter_reasoning_texts(each)
    elif isinstance(value, dict) and value.get("type") not in ("thought_signature", "thought_signatures"):
        for field in ("thinking", "summary", "content", "text", "value"):
            yield from _iter_reasoning_texts(value.get(field))


def build_call_blocks(call: CallDescription, limit: int, *, is_failed: bool) -> tuple[Block, ...]:
    """Returns the details of a call as blocks of the page. Leaves out what the call's title already says.

    If `is_failed` is True, the result of an edit contains no diff, so the arguments of the edit are shown.
    """
    blocks = list[Block]()
    if not _fits_in_title(call.code):
        blocks.append(build_code_block("command", call.code, limit, is_folded=False))
    for text in call.texts:
        if text.shown == "if_failed" and not is_failed:
            continue
        if text.shown != "if_long" or not _fits_in_title(text.text):
            build_block = build_code_block if text.is_code else build_text_block
            blocks.append(build_block(text.label, text.text, limit))
    if call.checklist:
        blocks.append(ChecklistBlock(call.checklist))
    return tuple(blocks)


def build_result_blocks(tool_result: AnyObservation, limit: int) -> tuple[Block, ...]:
    """Returns the blocks of a call's result, without its images."""
    match tool_result:
        case ShellResult(output=output, note=note) | CellResult(output=output, note=note):
            text = (build_code_block("output", output, limit),) if output.strip() else ()
            return (*text, *_build_optional_text(note, limit))
        case EditResult(diff=text, warning=warning, path=path):
            return (build_diff_block(path, text, limit), *_build_optional_text(warning, limit))
        case PageSnapshot(tree=tree, notes=notes):
            return (
                build_code_block("page", tree, limit, is_folded=True),
                *_build_optional_text("\n".join(notes), limit),
            )
        case SubagentResult(text=text):
            return () if _fits_in_title(text) else (build_text_block("Report:", text, limit),)
        case ExternalToolResult(text=text):
            return (build_code_block("result", text, limit),)
        case TextResult(text=text):
            return (build_code_block("text", text, limit, is_folded=True),)
        case ActionFailure(message=text):
            return _build_optional_text(text, limit)
        case Acknowledgment(text=text):
            return (
                (build_text_block("result", text, limit, is_folded=not _fits_in_title(text)),) if text else ()
            )
        case _:
            return (build_code_block("result", render_observation(tool_result), limit),)


def summarize_result(tool_result: AnyObservation) -> str:
    """Returns the result of a call in a few words, or an empty string if the blocks already show it."""
    match tool_result:
        case EditResult(warning=None) | TextResult() | Acknowledgment() | ExternalToolResult(ok=True):
            return ""
        case ExternalToolResult():
            return "the tool reported a failure"
        case ShellResult(exit_code=int(code), output=output) if output.count("\n") <= 1:
            return f"exit code {code}" if code or not output.strip() else ""
        case ActionFailure(reason=reason):
            return f"failed: {reason.replace('_', ' ')}"
        case _:
            return describe_observation(tool_result)


def is_failure(tool_result: AnyObservation) -> bool:
    """Returns True if the result is a problem that a reader should see."""
    match tool_result:
        case ShellResult(exit_code=code):
            return code != 0
        case CellResult(ok=ok) | ExternalToolResult(ok=ok):
            return not ok
        case PageSnapshot(error=error, infeasible_reason=infeasible):
            return error is not None or infeasible is not None
        case SubagentResult(status=status):
            return status != "answered"
        case EditResult(warning=warning):
            return warning is not None
        case _:
            return isinstance(tool_result, ActionFailure)


def render_caption(tool_result: AnyObservation) -> str:
    """Returns the caption of an image in a result."""
    return clip_line(f"Screenshot of {tool_result.url}") if isinstance(tool_result, PageSnapshot) else "Image"


def render_call_cost(tool_result: AnyObservation) -> str:
    """Returns the duration or cost of a call, or an empty string if it is unknown."""
    match tool_result:
        case ShellResult(seconds=seconds) | CellResult(seconds=seconds):
            return filters.format_duration(seconds)
        case SubagentResult(usage=usage):
            return "" if usage.cost is None else format_usd(usage.cost)
        case _:
            return ""


def _fits_in_title(text: str) -> bool:
    return "\n" not in text.strip() and len(text) <= MAX_TITLE_LENGTH


def _build_optional_text(text: str | None, limit: int) -> tuple[TextBlock, ...]:
    return (build_text_block("", text, limit),) if text else ()
