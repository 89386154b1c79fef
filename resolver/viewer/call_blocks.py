"""Renders a tool call and its result as a title, blocks and a summary, without repeating any text."""

import json
from typing import Literal

from patchwright.resolver.actions import (
    Action,
    AnyObservation,
    Ask,
    Browse,
    CallTool,
    ExternalToolResult,
    Finish,
    MalformedCall,
    Plan,
    ProposePlan,
    ReadSkill,
    Report,
    SearchWeb,
    SubagentResult,
    Think,
)
from patchwright.resolver.agent.messages import render_observation
from patchwright.resolver.cost import format_usd
from patchwright.resolver.descriptions import MAX_LINE, clip_line, describe_action, describe_observation
from patchwright.resolver.rendering import filters
from patchwright.resolver.viewer.blocks import (
    Block,
    ChecklistBlock,
    TextBlock,
    build_code_block,
    build_diff_block,
    build_text_block,
)
from patchwright.runtime.actions import (
    CreateFile,
    InsertText,
    ReplaceText,
    RunPython,
    RunShell,
    SearchCode,
    SendInput,
    UndoEdit,
    UseBrowser,
    ViewFile,
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

ItemKind = Literal["thought", "command", "edit", "read", "browse", "plan", "tool", "program", "end"]
MAX_TITLE_LENGTH = MAX_LINE - 20  # characters of a call's title
MAX_CLIPPED_TITLE_LENGTH = 100  # characters of a call's title if a block below shows the whole text


def get_item_kind(action: Action) -> ItemKind:
    """Returns the kind of a call. Readers can filter the timeline by kind."""
    match action:
        case RunShell() | SendInput() | RunPython():
            return "command"
        case CreateFile() | ReplaceText() | InsertText() | UndoEdit():
            return "edit"
        case ViewFile() | ReadSkill() | SearchCode() | SearchWeb():
            return "read"
        case Browse() | UseBrowser():
            return "browse"
        case Plan():
            return "plan"
        case Think():
            return "thought"
        case Finish() | Ask() | ProposePlan():
            return "end"
        case _:
            return "tool"


def render_call_title(action: Action) -> str:
    """Returns the title of a call. A block below the title shows long commands and code in full, so the title
    contains only their beginning.
    """
    line = describe_action(action)
    match action:
        case RunShell(command=code) | RunPython(code=code) | UseBrowser(code=code) if not _fits_in_title(
            code
        ):
            return clip_line(line, MAX_CLIPPED_TITLE_LENGTH)
        case MalformedCall(name=name):
            return f"a call of {clip_line(name, 80)} that could not be parsed"
        case _:
            return line


def build_call_blocks(action: Action, limit: int, *, is_failed: bool) -> tuple[Block, ...]:
    """Returns the details of a call as blocks of the page. Leaves out what the call's title already says.

    If `is_failed` is True, the result of an edit contains no diff, so the arguments of the edit are shown.
    """
    match action:
        case RunShell(command=text) | RunPython(code=text) | UseBrowser(code=text):
            return (
                () if _fits_in_title(text) else (build_code_block("command", text, limit, is_folded=False),)
            )
        case SendInput(text=text):
            return () if _fits_in_title(text) else (build_code_block("input", text, limit),)
        case ReplaceText(old=old, new=new) if is_failed:
            return (build_code_block("old text", old, limit), build_code_block("new text", new, limit))
        case InsertText(text=text) | CreateFile(content=text) if is_failed:
            return (build_code_block("text", text, limit),)
        case Think(thought=text) | Browse(task=text):
            return () if _fits_in_title(text) else (build_text_block("", text, limit),)
        case Ask(question=text):
            return (build_text_block("", text, limit),)
        case ProposePlan(cause=cause, steps=steps, test_plan=test_plan, risks=risks):
            step_list = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))
            sections = (
                ("Cause", cause),
                ("Steps", step_list),
                ("Test plan", test_plan),
                ("Risks", risks),
            )
            return tuple(build_text_block(label, text, limit) for label, text in sections)
        case Report(text=text):
            return (build_text_block("", text, limit),)
        case Plan(items=items):
            return (ChecklistBlock(items),)
        case Finish(cause=cause, change=change, testing=testing, thread_replies=thread_replies):
            entries = [
                ("What was wrong", cause),
                ("What was changed", change),
                ("How it was checked", testing),
            ]
            entries += [
                (
                    f"Thread {thread_reply.thread}, {'done' if thread_reply.is_done else 'not done'}",
                    thread_reply.text,
                )
                for thread_reply in thread_replies
            ]
            return tuple(build_text_block(label, text, limit) for label, text in entries)
        case CallTool(arguments=arguments):
            return (
                build_code_block("arguments", json.dumps(arguments, indent=2, ensure_ascii=False), limit),
            )
        case MalformedCall(arguments=text):
            return (build_code_block("arguments", text, limit),) if text.strip() else ()
        case _:
            return ()


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
