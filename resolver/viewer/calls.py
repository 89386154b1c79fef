"""One call and what came of it, as the viewer shows them: no word twice, and nothing without bounds."""

import json
from typing import Literal

from resolver.actions import (
    Action,
    Ask,
    Browse,
    Called,
    CallTool,
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
from resolver.render import result
from resolver.summary import LINE, came, clip, did
from resolver.viewer.exhibits import Checks, Exhibit, Text, diff, printed, words
from resolver.words import wording
from runtime.actions import (
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
from runtime.observations import Edited, Failed, Noted, Page, Ran, RanPython, Viewed

Kind = Literal["thought", "command", "edit", "read", "browse", "plan", "tool", "program", "end"]
FITS = LINE - 20  # characters that the line about a call has room for
BEGINNING = 100  # characters of what is shown whole below


def kind(action: Action) -> Kind:
    """Under which kind a call is filtered."""
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
        case Finish() | Ask() | Propose():
            return "end"
        case _:
            return "tool"


def head(action: Action) -> str:
    """The line about a call; of what is shown whole below it, the beginning."""
    line = did(action)
    match action:
        case RunShell(command=code) | RunPython(code=code) | UseBrowser(code=code) if not _fits(code):
            return clip(line, BEGINNING)
        case Malformed(name=name):
            return f"a call of {clip(name, 80)} that could not be read"
        case _:
            return line


def asked(action: Action, limit: int, *, failed: bool) -> tuple[Exhibit, ...]:
    """What the line about the call leaves out. `failed`: no diff says what was to be edited."""
    match action:
        case RunShell(command=text) | RunPython(code=text) | UseBrowser(code=text):
            return () if _fits(text) else (printed("command", text, limit, fold=False),)
        case SendInput(text=text):
            return () if _fits(text) else (printed("typed", text, limit),)
        case ReplaceText(old=old, new=new) if failed:
            return (printed("to be replaced", old, limit), printed("by", new, limit))
        case InsertText(text=text) | CreateFile(content=text) if failed:
            return (printed("text", text, limit),)
        case Think(thought=text) | Browse(task=text):
            return () if _fits(text) else (words("", text, limit),)
        case Ask(question=text):
            return (words("", text, limit),)
        case Propose(cause=cause, steps=steps, proof=proof, risks=risks):
            listed = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))
            parts = (("What it is about", cause), ("Steps", listed), ("Proof", proof), ("Risks", risks))
            return tuple(words(label, text, limit) for label, text in parts)
        case Report(text=text):
            return (words("", text, limit),)
        case Plan(items=items):
            return (Checks(items),)
        case Finish(cause=cause, change=change, checked=checked, answers=answers):
            told = [("What was wrong", cause), ("What was changed", change), ("How it was checked", checked)]
            told += [
                (f"Thread {one.thread}, {'done' if one.done else 'not done'}", one.text) for one in answers
            ]
            return tuple(words(label, text, limit) for label, text in told)
        case CallTool(arguments=arguments):
            return (printed("arguments", json.dumps(arguments, indent=2, ensure_ascii=False), limit),)
        case Malformed(arguments=text):
            return (printed("arguments", text, limit),) if text.strip() else ()
        case _:
            return ()


def answered(seen: Result, limit: int) -> tuple[Exhibit, ...]:
    """What came of a call, but for its pictures."""
    match seen:
        case Ran(output=output, note=note) | RanPython(output=output, note=note):
            text = (printed("output", output, limit),) if output.strip() else ()
            return (*text, *_words(note, limit))
        case Edited(diff=text, warning=warning, path=path):
            return (diff(path, text, limit), *_words(warning, limit))
        case Page(tree=tree, notes=notes):
            return (printed("page", tree, limit, fold=True), *_words("\n".join(notes), limit))
        case Reported(text=text):
            return () if _fits(text) else (words("Its report:", text, limit),)
        case Called(text=text):
            return (printed("answer", text, limit),)
        case Viewed(text=text):
            return (printed("text", text, limit, fold=True),)
        case Failed(message=text):
            return _words(text, limit)
        case Noted(text=text):
            return (words("answer", text, limit, fold=not _fits(text)),) if text else ()
        case _:
            return (printed("answer", result(seen), limit),)


def came_of(seen: Result) -> str:
    """What came of a call in a few words, where its exhibits do not say it already."""
    match seen:
        case Edited(warning=None) | Viewed() | Noted() | Called(ok=True):
            return ""
        case Called():
            return "the tool says that it failed"
        case Ran(exit_code=int(code), output=output) if output.count("\n") <= 1:
            return f"exit code {code}" if code or not output.strip() else ""
        case Failed(reason=reason):
            return f"not done: {reason.replace('_', ' ')}"
        case _:
            return came(seen)


def is_bad(seen: Result) -> bool:
    """Whether a reader who looks for trouble should stop here."""
    match seen:
        case Ran(exit_code=code):
            return code != 0
        case RanPython(ok=ok) | Called(ok=ok):
            return not ok
        case Page(error=error, infeasible=infeasible):
            return error is not None or infeasible is not None
        case Reported(status=status):
            return status != "answered"
        case Edited(warning=warning):
            return warning is not None
        case _:
            return isinstance(seen, Failed)


def caption(seen: Result) -> str:
    """What a picture shows that came with a result."""
    return clip(f"Screenshot of {seen.url}") if isinstance(seen, Page) else "Picture"


def took(seen: Result) -> str:
    """What a call took, where that is known."""
    match seen:
        case Ran(seconds=seconds) | RanPython(seconds=seconds):
            return wording.duration(seconds)
        case Reported(spent=spent):
            return "" if spent.cost is None else wording.dollars(spent.cost)
        case _:
            return ""


def _fits(text: str) -> bool:
    return "\n" not in text.strip() and len(text) <= FITS


def _words(text: str | None, limit: int) -> tuple[Text, ...]:
    return (words("", text, limit),) if text else ()
