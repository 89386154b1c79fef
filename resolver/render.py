"""Trajectory to messages: pure, and stable: a longer log only adds messages at the end."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import assert_never

import pydantic_core

from resolver import prose
from resolver.actions import (
    Action,
    Ask,
    Browse,
    Called,
    CallTool,
    Delegate,
    Finish,
    Malformed,
    Plan,
    Propose,
    ReadSkill,
    Report,
    Reported,
    Result,
    SearchWeb,
    Think,
)
from resolver.events import (
    Call,
    Condensed,
    Decided,
    Entry,
    Event,
    Observed,
    Prompted,
    Told,
    Trajectory,
)
from resolver.llm.model import FromModel, FromTool, FromUser, Message, System, ToolCall
from runtime.actions import (
    Converse,
    CreateFile,
    Execute,
    InsertText,
    Interrupt,
    MarkTree,
    Provide,
    ReadBytes,
    ReplaceText,
    RunLent,
    RunPython,
    RunShell,
    SearchCode,
    SendInput,
    StartStream,
    UndoEdit,
    UseBrowser,
    ViewFile,
    WriteBytes,
)
from runtime.observations import (
    Content,
    Edited,
    Executed,
    Failed,
    Heard,
    Marked,
    Noted,
    Page,
    Picture,
    Ran,
    RanPython,
    Viewed,
    Wanted,
    Written,
)
from runtime.text import clip

MAX_RESULT = 60_000  # characters; the sandbox clips at 30,000, but it is the sandbox that says so
MAX_LABEL = 80  # characters
LASTING = frozenset({"brief", "comment"})
"""Whose words stay when a conversation is condensed: what is asked, and what people said since."""
UNRECORDED = "[the answer to this call was not recorded]"


def messages(trajectory: Trajectory) -> tuple[Message, ...]:
    """The conversation so far, as a provider accepts it.

    Every call is answered directly after its reply, in the order of the calls; what was said in between comes
    after. A last reply that still has unanswered calls is left out with what follows it, so that a message
    that was sent once never changes, until the conversation is condensed: then the system prompt, the brief and
    what people said stay, and all else up to a reply gives way to a summary.
    """
    return Conversation().messages(trajectory)


def condensed(events: Iterable[Event]) -> Condensed:
    """All condensations of a run (or of a part of it) as one."""
    masked: dict[str, None] = {}
    forgotten, summary = 0, ""
    for event in events:
        if isinstance(event, Condensed):
            masked |= dict.fromkeys(event.masked)
            if event.forgotten > forgotten:
                forgotten, summary = event.forgotten, event.summary
    return Condensed(masked=tuple(masked), forgotten=forgotten, summary=summary)


class Conversation:
    """The messages of a run that grows: those of its beginning are not made anew with each step."""

    def __init__(self) -> None:
        self._entries: tuple[Entry, ...] = ()
        self._begin(Condensed())

    def messages(self, trajectory: Trajectory) -> tuple[Message, ...]:
        """The same as of any other conversation, whatever this one was asked for before."""
        entries, known = trajectory.entries, len(self._entries)
        news = [entry.event for entry in entries[known:]]
        if entries[:known] != self._entries or any(isinstance(event, Condensed) for event in news):
            self._begin(condensed(trajectory))
            news = list(trajectory)
        for event in news:
            self._written += self._following(event)
        self._entries = entries
        return tuple(self._written)

    def _begin(self, left_out: Condensed) -> None:
        self._left_out = left_out
        self._masked = frozenset(left_out.masked)
        self._written: list[Message] = []
        self._open: Decided | None = None
        self._answers: dict[str, Result] = {}
        self._said: list[Told] = []
        self._prompted = False
        self._replies = 0

    def _following(self, event: Event) -> Iterator[Message]:
        """What can be sent now that this has happened."""
        match event:
            case Prompted(system=system) if not self._prompted:
                self._prompted = True
                yield System(text=system)
            case Told() if self._open is not None:
                self._said.append(event)
            case Told(source=source) if self._replies >= self._left_out.forgotten or source in LASTING:
                yield _told(event)
            case Observed(call=call, observation=observation):
                self._answers.setdefault(call, observation)
            case Decided():
                if self._open is not None:
                    yield from self._closed(self._open)
                self._open, self._answers, self._said = event, {}, []
            case _:
                return
        if self._open is not None and all(call.id in self._answers for call in self._open.calls):
            yield from self._closed(self._open)
            self._open, self._said = None, []

    def _closed(self, reply: Decided) -> Iterator[Message]:
        """A reply, what came of it, and what was said meanwhile."""
        self._replies += 1
        forgotten = self._replies <= self._left_out.forgotten
        if not forgotten:
            yield from _exchange(reply, self._answers, self._masked)
        yield from (_told(told) for told in self._said if not forgotten or told.source in LASTING)
        if self._replies == self._left_out.forgotten and self._left_out.summary:
            yield FromUser(text=self._left_out.summary)


def _told(told: Told) -> FromUser:
    return FromUser(text=told.text, pictures=told.pictures)


def _exchange(reply: Decided, answers: dict[str, Result], masked: frozenset[str]) -> Iterator[Message]:
    """A reply and what came of its calls."""
    calls = tuple(_call(call) for call in reply.calls)
    # Several providers refuse an assistant's message without any content.
    text = reply.thought if reply.thought.strip() or calls else "[empty reply]"
    yield FromModel(text=text, calls=calls, reasoning=reply.reasoning, model=reply.usage.model)
    for number, call in enumerate(reply.calls, start=1):
        answer = answers.get(call.id)
        label = f"[{number} of {len(calls)}: {_label(call.action)}]\n" if len(calls) > 1 else ""
        yield FromTool(call=call.id, text=label + _answer(answer, masked=call.id in masked))
    for call in reply.calls:  # providers take pictures from a user, and a user only when all is answered
        if call.id not in masked and (pictures := pictures_of(answers.get(call.id))):
            yield FromUser(text=f"[{_counted(pictures)} of {_label(call.action)}]", pictures=pictures)


def pictures_of(answer: Result | None) -> tuple[Picture, ...]:
    """The pictures that came with a result; they are shown after it."""
    match answer:
        case RanPython(pictures=pictures) | Called(pictures=pictures):
            return pictures
        case Page(screenshot=Picture() as screenshot):
            return (screenshot,)
        case _:
            return ()


def _counted(pictures: tuple[Picture, ...]) -> str:
    return "1 picture" if len(pictures) == 1 else f"{len(pictures)} pictures"


def _answer(answer: Result | None, *, masked: bool) -> str:
    if answer is None:
        return UNRECORDED
    return _masked(answer) if masked and is_maskable(answer) else result(answer)


def is_maskable(observation: Result) -> bool:
    """Whether the result can be had again; what another agent reported was paid for, and an error is short."""
    return isinstance(observation, Ran | RanPython | Viewed | Page | Edited | Executed | Content | Noted)


def _masked(observation: Result) -> str:
    """What a result was, in place of it."""
    match observation:
        case Ran(output=output):
            return prose.masked(len(output), "output", _facts(observation))
        case Edited(path=path, diff=diff):
            return prose.masked(len(diff), "diff", f"[edited {path}]")
        case _:
            return prose.masked(len(result(observation)), "answer", "")


def _call(call: Call) -> ToolCall:
    return ToolCall(id=call.id, name=_name(call.action), arguments=_arguments(call.action))


def _label(action: Action) -> str:
    """What tells one of several calls from the others, on one line."""
    match action:
        case RunShell(command=what) | Malformed(name=what) | RunPython(code=what) | UseBrowser(code=what):
            pass
        case Browse(task=what) | ReadSkill(name=what) | CallTool(name=what) | Ask(question=what):
            pass
        case ViewFile(path=what) | CreateFile(path=what) | ReplaceText(path=what) | InsertText(path=what):
            pass
        case UndoEdit(path=what) | ReadBytes(path=what) | WriteBytes(path=what) | SearchWeb(query=what):
            pass
        case SearchCode(query=query, what=sought, path=path):
            what = " ".join(filter(None, (sought, query, path and f"in {path}")))
        case Execute(argv=argv):
            what = " ".join(argv)
        case Delegate(tasks=tasks):
            what = " | ".join(tasks)
        case SendInput(text=text, key=key):
            what = " ".join(filter(None, (text, key)))
        case (
            Think()
            | Plan()
            | Finish()
            | Propose()
            | Report()
            | Interrupt()
            | MarkTree()
            | Provide()
            | RunLent()
            | StartStream()
            | Converse()
        ):
            what = ""
        case _:
            assert_never(action)
    line = f"{action.kind} {what}".split("\n", 1)[0].strip()
    return line if len(line) <= MAX_LABEL else line[:MAX_LABEL] + "..."


def _name(action: Action) -> str:
    name = action.name if isinstance(action, Malformed | CallTool) else action.kind
    # What OpenAI, Anthropic and Gemini take as a function's name in a conversation that is sent back.
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"


def _arguments(action: Action) -> str:
    """JSON of an object, always: a provider parses what is sent back, also what the model got wrong."""
    if isinstance(action, CallTool):
        return json.dumps(action.arguments)
    if not isinstance(action, Malformed):
        # By value and not by what was set: a log that was read back knows only values.
        return action.model_dump_json(exclude={"kind"}, exclude_defaults=True)
    try:
        parsed = pydantic_core.from_json(action.arguments, allow_inf_nan=False)
    except ValueError:
        parsed = None
    return action.arguments if isinstance(parsed, dict) else json.dumps({"not_json": action.arguments})


def result(observation: Result) -> str:
    """An observation as the model reads it: plain text, with what the program adds in brackets around it."""
    return clip(_text(observation), MAX_RESULT)


def _text(observation: Result) -> str:
    match observation:
        case Ran():
            return _ran(observation)
        case RanPython():
            return _ran_python(observation)
        case Page():
            return _page(observation)
        case Wanted(sense=sense, files=files, task=task):
            return f"[the cell waits for a look at {len(files)} file(s) ({sense}): {task}]"
        case Called(text=text, ok=ok):
            return _ended_line(text or "[nothing]") + ("" if ok else "[the tool says that it failed]")
        case Reported():
            return prose.reported(observation)
        case Viewed(text=text) | Noted(text=text):
            return text or "[empty]"
        case Edited(path=path, diff=diff, warning=warning):
            lines = [diff.rstrip("\n") or "[nothing changed]", f"[edited {path}]"]
            return "\n".join(lines + ([f"[warning: {warning}]"] if warning else []))
        case Failed(reason=reason, message=message):
            return f"[not done: {reason.replace('_', ' ')}]\n{message}"
        case Executed(exit_code=code, stdout=out, stderr=err, seconds=seconds):
            printed = _ended_line((out + err).decode(errors="replace"))
            return f"{printed}[exit code {code}, {seconds:.1f} s]"
        case Content(content=content, size=size):
            return f"{_ended_line(content.decode(errors='replace'))}[{len(content)} of {size} bytes]"
        case Heard(lines=lines, said=said):
            return _ended_line(lines.decode(errors="replace")) + said
        case Marked(mark=mark):
            return f"[the work tree is in the state {mark or 'unknown'}]"
        case Written(size=size):
            return f"[written, {size} bytes]"
        case _:
            assert_never(observation)


def _ran(ran: Ran) -> str:
    return (_ended_line(ran.output) or "[no output]\n") + _facts(ran)


def _ran_python(ran: RanPython) -> str:
    lines = [f"[{_counted(ran.pictures)}, shown below]"] if ran.pictures else []
    lines += [f"[{ran.note}]"] if ran.note else []
    how = "done" if ran.ok else "not done: it raised an error, or was stopped"
    return (_ended_line(ran.output) or "[no output]\n") + "\n".join([*lines, f"[{how}, {ran.seconds:.1f} s]"])


def _page(page: Page) -> str:
    tabs = [tab.url for tab in page.tabs if not tab.active]
    lines = [f"[at {page.url}]", *(f"[another tab: {url}]" for url in tabs)]
    lines += [f"[{note}]" for note in page.notes]
    lines += [f"[failed: {page.error}]"] if page.error else []
    lines += ["[screenshot, shown below]"] if page.screenshot else []
    return (_ended_line(page.tree) or "[the page is empty]\n") + "\n".join(lines)


def _facts(ran: Ran) -> str:
    code = "no exit code" if ran.exit_code is None else f"exit code {ran.exit_code}"
    note = f"[{ran.note}]\n" if ran.note else ""
    return f"{note}[{code}, {ran.seconds:.1f} s, in {ran.cwd}]"


def _ended_line(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
