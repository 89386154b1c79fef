"""Actions: one class is the wire message, the log line, the tool schema and the test value.

The docstring of an action that the model may call is the description that the model reads, and the
`description` of each field explains the argument. Write both for a reader who sees nothing else.
"""

from typing import Annotated, Literal

from pydantic import Field

from runtime.frozen import Frozen
from runtime.observations import Look

DEFAULT_SECONDS = 120
MAX_SECONDS = 1800


# --- what the model may ask of the sandbox ------------------------------------------------------------------


class RunShell(Frozen):
    """Run a bash command in the persistent shell and return what it printed and its exit code.

    The working directory, variables, functions and background jobs stay from one call to the next. Standard
    input is empty. A command that outlives its timeout is killed with everything it started; what it had
    printed is returned. Output over 30,000 characters keeps its head and tail, says which lines were cut, and
    names a file in the scratch directory that holds it: view that in parts, or narrow the command (grep,
    sed -n, head).
    """

    kind: Literal["run_shell"] = "run_shell"
    command: str = Field(min_length=1, description="The command, as typed into bash. May be several lines.")
    timeout: int = Field(
        default=DEFAULT_SECONDS, ge=1, le=MAX_SECONDS, description="Seconds until the command is killed."
    )
    interactive: bool = Field(
        default=False,
        description="For a program that asks questions (a prompt, a debugger): its standard input is a terminal, "
        "and at the timeout it is left running instead of killed. Take a short timeout, read what it asks, then "
        "answer with send_input.",
    )


Key = Literal["ctrl-c", "ctrl-d", "kill"]


class SendInput(Frozen):
    """Type at the interactive command that run_shell left running, and return what it has printed since.

    Returns when the command ends, or after the timeout with the command still running. With neither text nor
    key it only waits. Until the command has ended, run_shell is refused.
    """

    kind: Literal["send_input"] = "send_input"
    text: str = Field(
        default="", max_length=4000, description="One or more lines to type. Enter is pressed after them."
    )
    key: Key | None = Field(
        default=None,
        description="Pressed after the text: ctrl-c interrupts, ctrl-d ends the input. kill ends a command that "
        "does not listen, with everything it started.",
    )
    timeout: int = Field(
        default=5, ge=1, le=MAX_SECONDS, description="Seconds to wait for the end of the command."
    )


class RunPython(Frozen):
    """Run Python code in the sandbox's IPython session; return what it printed, its result and its pictures.

    Variables, imports and functions stay from one call to the next, as in a notebook; so a module that was imported
    stays what it was when you edit its file, until importlib.reload. The session starts in the repository's root.
    A line that begins with ! goes to a shell; await works at the top level, asyncio.run does not. Figures that are
    left open and images that are displayed are shown, at most 4. input() and debuggers fail: nobody types here.
    Code that outlives its timeout is interrupted, and what it has started is killed; if it does not listen, the
    session ends, and the answer says that everything defined in it is gone. Output over 30,000 characters keeps its
    head and tail, and the whole is in a scratch file.
    """

    kind: Literal["run_python"] = "run_python"
    code: str = Field(min_length=1, description="One cell of Python, as typed into IPython.")
    timeout: int = Field(
        default=DEFAULT_SECONDS, ge=1, le=MAX_SECONDS, description="Seconds until the code is interrupted."
    )


class ViewFile(Frozen):
    """Show a text file with line numbers, at most 400 lines at a time, or list a directory.

    A PDF, Word, PowerPoint or Excel file or a notebook is shown as Markdown, converted from it; of a picture, a
    recording or a video it tells what it is.

    Lines are never cut out of the middle: when the file goes on, the last line of the answer names the next
    range to ask for.
    """

    kind: Literal["view_file"] = "view_file"
    path: str = Field(min_length=1, description="File or directory, relative to the repository root.")
    start: int = Field(default=1, ge=1, description="First line to show.")
    end: int | None = Field(
        default=None, ge=1, description="Last line to show; at most 400 lines from start."
    )


class SearchCode(Frozen):
    """Search the repository for text, for where a name is defined or used, or outline what one file defines.

    Answers `path:line: text`; a definition with all of its lines, `path:first-last: its first line`. Files that git
    ignores are left out, unless path names them; so are binary ones. At most 200 lines are shown, some of each file,
    with how many there are where.
    """

    kind: Literal["search_code"] = "search_code"
    query: str = Field(
        default="",
        max_length=2_000,
        description="text: a Python regular expression, searched line by line. definitions, references: the name of "
        "a function, class, type, constant or field, or Class.method. outline: empty.",
    )
    what: Literal["text", "definitions", "references", "outline"] = Field(
        default="text",
        description="references: the lines of code with that name, by name alone, not in comments and strings. "
        "outline: the definitions in the file `path`.",
    )
    path: str = Field(
        default="",
        max_length=1_000,
        description="A directory, a file, or a glob such as src/**/*.py or *.{ts,tsx}; empty: the whole repository.",
    )
    literal: bool = Field(
        default=False, description="The text is taken as it is, not as a regular expression."
    )
    ignore_case: bool = Field(
        default=False, description="Upper and lower case are alike, in a search for text."
    )


class CreateFile(Frozen):
    """Create a new file with the given content. Refused when the file exists: use replace_text to change it."""

    kind: Literal["create_file"] = "create_file"
    path: str = Field(min_length=1, description="New file, relative to the repository root.")
    content: str = Field(description="The whole content.")


class ReplaceText(Frozen):
    """Replace one piece of text in a file. `old` must occur exactly once, so include enough lines around it.

    Returns the diff of the edit. A syntax error that a Python or JavaScript file has afterwards is reported
    with its line.
    """

    kind: Literal["replace_text"] = "replace_text"
    path: str = Field(min_length=1, description="File, relative to the repository root.")
    old: str = Field(
        min_length=1, description="The text to replace, with its exact whitespace, without line numbers."
    )
    new: str = Field(description="The text to put in its place; empty to delete.")


class InsertText(Frozen):
    """Insert text after a line of a file. Returns the diff of the edit."""

    kind: Literal["insert_text"] = "insert_text"
    path: str = Field(min_length=1, description="File, relative to the repository root.")
    line: int = Field(ge=0, description="Insert after this line; 0 inserts at the top of the file.")
    text: str = Field(min_length=1, description="The text to insert, one or more whole lines.")


class UndoEdit(Frozen):
    """Take back the last edit that create_file, replace_text or insert_text made to a file."""

    kind: Literal["undo_edit"] = "undo_edit"
    path: str = Field(min_length=1, description="File, relative to the repository root.")


# --- what only the program asks of the sandbox --------------------------------------------------------------


class Execute(Frozen):
    """One program, outside the persistent shell. `argv` is never seen by a shell."""

    kind: Literal["execute"] = "execute"
    argv: tuple[str, ...] = Field(min_length=1)
    cwd: str | None = None
    """Directory relative to the work tree, or absolute. None: the work tree."""
    env: dict[str, str] = Field(default_factory=dict)
    """Added to the sandbox's own environment."""
    timeout: int = Field(default=DEFAULT_SECONDS, ge=1, le=MAX_SECONDS)
    """Seconds; the whole process group is killed then."""


class RunLent(Frozen):
    """A shell command with variables that this one command sees, and what it starts: nothing keeps them."""

    kind: Literal["run_lent"] = "run_lent"
    run: RunShell
    lent: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str]


class StartStream(Frozen):
    """Start a program that is talked to line by line (`Converse`); in place of one of the same name."""

    kind: Literal["start_stream"] = "start_stream"
    name: str = Field(min_length=1, max_length=100)
    argv: tuple[str, ...] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    """Added to the sandbox's own environment."""


class Converse(Frozen):
    """Say lines to a started program, and hear what it has said since the last time."""

    kind: Literal["converse"] = "converse"
    name: str
    lines: bytes = Field(default=b"", max_length=4 << 20)
    wait: float = Field(default=1.0, ge=0, le=20)
    """Seconds for its first line to come."""


class Interrupt(Frozen):
    """End the command that runs in the shell for a host process that is gone. It does not wait for its turn."""

    kind: Literal["interrupt"] = "interrupt"


class MarkTree(Frozen):
    """Ask for a mark of the work tree's state: while it stays the same, nothing there was changed."""

    kind: Literal["mark_tree"] = "mark_tree"


class ReadBytes(Frozen):
    """Part of a file, as bytes."""

    kind: Literal["read_bytes"] = "read_bytes"
    path: str
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=1 << 20, ge=1, le=4 << 20)
    """Bytes."""


class WriteBytes(Frozen):
    """Write or append bytes to a file; its parent directories are made."""

    kind: Literal["write_bytes"] = "write_bytes"
    path: str
    content: bytes = Field(max_length=4 << 20)
    append: bool = False


class Provide(Frozen):
    """The program's answer to what a cell wants (`Wanted`); the cell goes on with it."""

    kind: Literal["provide"] = "provide"
    text: str = Field(max_length=200_000)
    failed: bool = False
    """The text is the reason why there is no answer."""
    timeout: int = Field(default=DEFAULT_SECONDS, ge=1, le=MAX_SECONDS)
    """Seconds until the cell is interrupted."""


class UseBrowser(Frozen):
    """Calls of the browser's language (`runtime/browser/calls.py`), one a line, run in order in the sandbox's browser.

    They stop at the first that fails. Without a call it only looks at the page.
    """

    kind: Literal["use_browser"] = "use_browser"
    code: str = Field(default="", max_length=100_000)
    allowed: tuple[str, ...] = ()
    """Names of the calls that may be made; any other is refused before the first is run."""
    look: Look = Look()


SandboxAction = Annotated[
    RunShell
    | RunLent
    | SendInput
    | RunPython
    | Provide
    | UseBrowser
    | ViewFile
    | SearchCode
    | CreateFile
    | ReplaceText
    | InsertText
    | UndoEdit
    | Execute
    | StartStream
    | Converse
    | Interrupt
    | MarkTree
    | ReadBytes
    | WriteBytes,
    Field(discriminator="kind"),
]
