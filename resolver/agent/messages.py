"""Converts a trajectory to chat messages. When the log grows, new messages are appended and earlier ones stay
the same.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import assert_never

import pydantic_core

from patchwright.resolver.actions import Action, AnyObservation, ExternalToolResult, SubagentResult
from patchwright.resolver.confirmation import CallDecision
from patchwright.resolver.events import (
    Entry,
    Event,
    Message,
    ModelReply,
    SystemPrompt,
    ToolCall,
    ToolResult,
    Trajectory,
)
from patchwright.resolver.llm.model import (
    AssistantMessage,
    ChatMessage,
    RawToolCall,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from patchwright.resolver.rendering.filters import code_block
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.run_events import Condensation
from patchwright.resolver.tool_actions.unchecked_actions import CallTool, MalformedCall
from patchwright.resolver.tools.further_tools import USE_TOOL, wrap_call
from patchwright.runtime.observations import (
    Acknowledgment,
    ActionFailure,
    CellResult,
    EditResult,
    ExecuteResult,
    FileContent,
    HostRequest,
    ImageData,
    PageSnapshot,
    ProcessOutput,
    ShellResult,
    TextResult,
    TreeFingerprint,
    WriteResult,
)
from patchwright.runtime.output_text import clip, clip_line

MAX_RESULT = 60_000  # Characters. The sandbox truncates at 30,000, but Patchwright does not rely on this.
MAX_LABEL = 40  # Characters.
MAX_PAGE_FACT = 2_000  # Characters of a URL, note or error of a web page.
PERSISTENT_SOURCES = frozenset({"initial_prompt", "comment"})
"""Sources of messages that survive a condensation: the task, and later messages from people."""
MISSING_RESULT = "[the answer to this call was not recorded]"


def build_messages(trajectory: Trajectory) -> tuple[ChatMessage, ...]:
    """Returns the conversation so far in the form that providers accept.

    Each reply is followed by the results of its calls, in the order of the calls, and then by the messages
    that arrived during the calls. While calls of the last reply are pending, the conversation ends before that
    reply. A condensation replaces old replies with a summary, and keeps all prompts and messages from people.
    """
    return Conversation().build_messages(trajectory)


def merge_condensations(events: Iterable[Event]) -> Condensation:
    """Merges the condensations of a run, or of a part of it, into one."""
    masked: dict[str, None] = {}
    forgotten, summary = 0, ""
    for event in events:
        if isinstance(event, Condensation):
            masked |= dict.fromkeys(event.masked_calls)
            if event.forgotten_replies > forgotten:
                forgotten, summary = event.forgotten_replies, event.summary
    return Condensation(masked_calls=tuple(masked), forgotten_replies=forgotten, summary=summary)


class Conversation:
    """Builds the messages of a growing run. It reuses the messages that it has already built."""

    def __init__(self) -> None:
        self._entries: tuple[Entry, ...] = ()
        self._reset(Condensation())

    def build_messages(self, trajectory: Trajectory) -> tuple[ChatMessage, ...]:
        """Returns the messages of the trajectory. The result does not depend on what this object has built
        before.
        """
        entries, known = trajectory.entries, len(self._entries)
        new_events = [entry.event for entry in entries[known:]]
        if entries[:known] != self._entries or any(isinstance(event, Condensation) for event in new_events):
            self._reset(merge_condensations(trajectory))
            new_events = list(trajectory)
        for event in new_events:
            self._messages += self._messages_for_event(event)
        self._entries = entries
        return tuple(self._messages)

    def _reset(self, condensation: Condensation) -> None:
        self._condensation = condensation
        self._masked = frozenset(condensation.masked_calls)
        self._messages: list[ChatMessage] = []
        self._open_reply: ModelReply | None = None
        self._results: dict[str, AnyObservation] = {}
        self._waiting_messages: list[Message] = []
        self._has_system_prompt = False
        self._offered: frozenset[str] = frozenset()
        self._reply_count = 0

    def _messages_for_event(self, event: Event) -> Iterator[ChatMessage]:
        """Adds an event of the log to the conversation, and yields the chat messages that are now complete."""
        match event:
            case SystemPrompt(text=system, tools=tools) if not self._has_system_prompt:
                self._has_system_prompt = True
                self._offered = frozenset(tool["function"]["name"] for tool in tools)
                yield SystemMessage(text=system)
            case Message(decision=CallDecision(approved=False)):
                return  # The result of the rejected call has this text.
            case Message() if self._open_reply is not None:
                self._waiting_messages.append(event)
            case Message(source=source) if (
                self._reply_count >= self._condensation.forgotten_replies or source in PERSISTENT_SOURCES
            ):
                yield _user_message(event)
            case ToolResult(call_id=call, observation=observation):
                self._results.setdefault(call, observation)
            case ModelReply():
                if self._open_reply is not None:
                    yield from self._close_exchange(self._open_reply)
                self._open_reply, self._results, self._waiting_messages = event, {}, []
            case _:
                return
        if self._open_reply is not None and all(call.id in self._results for call in self._open_reply.calls):
            yield from self._close_exchange(self._open_reply)
            self._open_reply, self._waiting_messages = None, []

    def _close_exchange(self, reply: ModelReply) -> Iterator[ChatMessage]:
        """Yields a reply, the results of its calls, and the messages that arrived during the calls."""
        self._reply_count += 1
        forgotten = self._reply_count <= self._condensation.forgotten_replies
        if not forgotten:
            yield from _exchange_messages(reply, self._results, self._masked, self._offered)
        yield from (
            _user_message(message)
            for message in self._waiting_messages
            if not forgotten or message.source in PERSISTENT_SOURCES
        )
        if self._reply_count == self._condensation.forgotten_replies and self._condensation.summary:
            yield UserMessage(text=self._condensation.summary)


def _user_message(message: Message) -> UserMessage:
    return UserMessage(text=message.text, images=message.images)


def _exchange_messages(
    reply: ModelReply, answers: dict[str, AnyObservation], masked: frozenset[str], offered: frozenset[str]
) -> Iterator[ChatMessage]:
    """Yields a reply and the results of its calls."""
    calls = tuple(_tool_call(call, offered) for call in reply.calls)
    # Several providers reject an assistant message without content.
    text = reply.thought if reply.thought.strip() or calls else "[empty reply]"
    yield AssistantMessage(text=text, tool_calls=calls, reasoning=reply.reasoning, model=reply.usage.model)
    for number, call in enumerate(reply.calls, start=1):
        answer = answers.get(call.id)
        label = f"[{number} of {len(calls)}: {_action_label(call.action)}]\n" if len(calls) > 1 else ""
        yield ToolMessage(tool_call_id=call.id, text=label + _tool_message(answer, masked=call.id in masked))
    # Providers accept images only in user messages. They accept user messages only after all results.
    for call in reply.calls:
        if call.id not in masked and (images := get_images(answers.get(call.id))):
            yield UserMessage(
                text=f"[{_count_pictures(images)} of {_action_label(call.action)}]", images=images
            )


def get_images(answer: AnyObservation | None) -> tuple[ImageData, ...]:
    """Returns the images of a result. They are sent after the result."""
    match answer:
        case CellResult(images=images) | ExternalToolResult(images=images) | TextResult(images=images):
            return images
        case PageSnapshot(screenshot=ImageData() as screenshot):
            return (screenshot,)
        case _:
            return ()


def _count_pictures(images: tuple[ImageData, ...]) -> str:
    return "1 picture" if len(images) == 1 else f"{len(images)} pictures"


def _tool_message(answer: AnyObservation | None, *, masked: bool) -> str:
    if answer is None:
        return MISSING_RESULT
    return _mask_observation(answer) if masked and is_maskable(answer) else render_observation(answer)


def is_maskable(observation: AnyObservation) -> bool:
    """Returns True if the result may be replaced with one line, because the agent can get the result again.
    Subagent results stay, because they are expensive to repeat. Errors stay, because they are short.
    """
    return isinstance(
        observation,
        ShellResult
        | CellResult
        | TextResult
        | PageSnapshot
        | EditResult
        | ExecuteResult
        | FileContent
        | Acknowledgment,
    )


def _mask_observation(observation: AnyObservation) -> str:
    """Returns the line that replaces a result."""
    match observation:
        case ShellResult(output=text):
            label, facts = "output", _result_facts(observation)
        case EditResult(diff=text):
            label, facts = "diff", _edit_facts(observation)
        case _:
            text, label, facts = render_observation(observation), "answer", ""
    return render_prompt("masked_result.md.j2", size=len(text), label=label, facts=facts)


def _tool_call(call: ToolCall, offered: frozenset[str]) -> RawToolCall:
    """Returns a call as the model may make it. Some providers reject calls of tools that the request does not offer,
    so such a call is shown as a call of `use_tool`, as the model made it.
    """
    raw = RawToolCall(id=call.id, name=_tool_name(call.action), arguments=_tool_arguments(call.action))
    return wrap_call(raw) if USE_TOOL in offered and raw.name not in offered else raw


def _action_label(action: Action) -> str:
    """Returns one line that distinguishes a call from the other calls of the same reply."""
    call = action.describe()
    what = call.label or call.target or call.code
    kind = "malformed call of" if isinstance(action, MalformedCall) else action.kind
    line = f"{kind} {what}".split("\n", 1)[0].strip()
    return line if len(line) <= MAX_LABEL else line[:MAX_LABEL] + "..."


def _tool_name(action: Action) -> str:
    name = action.name if isinstance(action, MalformedCall | CallTool) else action.kind
    # Earlier calls are sent again in each request. OpenAI, Anthropic and Gemini accept only these characters
    # in the name of a function.
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"


def _tool_arguments(action: Action) -> str:
    """Returns the arguments as a JSON object. Providers parse earlier calls, so the result is a JSON object
    even if the model sent invalid JSON.
    """
    if isinstance(action, CallTool):
        return json.dumps(action.arguments)
    if not isinstance(action, MalformedCall):
        # Fields with default values are excluded. Excluding unset fields would not work, because every field
        # of a log that was read back is set.
        return action.model_dump_json(exclude={"kind"}, exclude_defaults=True)
    try:
        parsed = pydantic_core.from_json(action.arguments, allow_inf_nan=False)
    except ValueError:
        parsed = None
    return action.arguments if isinstance(parsed, dict) else json.dumps({"not_json": action.arguments})


def render_observation(observation: AnyObservation) -> str:
    """Returns an observation as the model reads it: plain text, with additional facts in brackets."""
    return clip(_observation_text(observation), MAX_RESULT)


def _observation_text(observation: AnyObservation) -> str:
    match observation:
        case ShellResult():
            return _shell_text(observation)
        case CellResult():
            return _cell_text(observation)
        case PageSnapshot():
            return _page_text(observation)
        case HostRequest(modality=modality, files=files, task=task):
            return f"[the cell waits for the description of {len(files)} file(s) ({modality}): {task}]"
        case ExternalToolResult(text=text, ok=ok):
            return _end_with_newline(text or "[nothing]") + ("" if ok else "[the tool reported a failure]")
        case SubagentResult():
            return render_prompt("subagent_result.md.j2", result=observation)
        case TextResult(text=text) | Acknowledgment(text=text):
            return text or "[empty]"
        case EditResult(place=place, diff=diff, warning=warning):
            # The model that made an edit knows what the file now says there.
            shown = "" if place else _end_with_newline(diff) or "[nothing changed]\n"
            return shown + _edit_facts(observation) + (f"\n[warning: {warning}]" if warning else "")
        case ActionFailure(reason=reason, message=message):
            return f"[not done: {reason.replace('_', ' ')}]\n{message}"
        case ExecuteResult(exit_code=code, stdout=stdout, stderr=stderr, seconds=seconds):
            output = _end_with_newline((stdout + stderr).decode(errors="replace"))
            return f"{output}[exit code {code}, {seconds:.1f} s]"
        case FileContent(content=content, size=size):
            return f"{_end_with_newline(content.decode(errors='replace'))}[{len(content)} of {size} bytes]"
        case ProcessOutput(lines=lines, stderr=stderr):
            return _end_with_newline(lines.decode(errors="replace")) + stderr
        case TreeFingerprint(fingerprint=fingerprint):
            return f"[the work tree is in the state {fingerprint or 'unknown'}]"
        case WriteResult(size=size):
            return f"[written, {size} bytes]"
        case _:
            assert_never(observation)


def _shell_text(result: ShellResult) -> str:
    return (_end_with_newline(result.output) or "[no output]\n") + _result_facts(result)


def _cell_text(result: CellResult) -> str:
    lines = [f"[{_count_pictures(result.images)}, shown below]"] if result.images else []
    lines += [f"[{result.note}]"] if result.note else []
    status = "done" if result.ok else "not done: it raised an error, or was stopped"
    return (_end_with_newline(result.output) or "[no output]\n") + "\n".join(
        [*lines, f"[{status}, {result.seconds:.1f} s]"]
    )


def _page_text(page: PageSnapshot) -> str:
    other_tabs = [(index, tab.url) for index, tab in enumerate(page.tabs) if not tab.active]
    facts = [f"at {page.url}", *(f"tab {index}, not active: {url}" for index, url in other_tabs)]
    facts += [*page.notes, *([f"failed: {page.error}"] if page.error else [])]
    facts += ["screenshot, shown below"] if page.screenshot else []
    content = code_block(page.content) if page.content.strip() else "[the page is empty]"
    return "\n".join((content, *(f"[{clip_line(fact, MAX_PAGE_FACT)}]" for fact in facts)))


def _edit_facts(result: EditResult) -> str:
    return f"[edited{', ' if result.place else ''}{result.place}]"


def _result_facts(result: ShellResult) -> str:
    code = "no exit code" if result.exit_code is None else f"exit code {result.exit_code}"
    note = f"[{result.note}]\n" if result.note else ""
    return f"{note}[{code}, {result.seconds:.1f} s, in {result.cwd}]"


def _end_with_newline(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
