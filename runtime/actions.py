"""Actions that a sandbox runs. Each class is the wire message, the log entry and the tool schema.

The docstring of an action that the model may call is the description that the model reads, and the
`description` of each field explains the argument. Write both for a reader who sees nothing else.
"""

from typing import Annotated, Literal

from pydantic import Field

from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import SnapshotOptions

DEFAULT_TIMEOUT = 120
MAX_TIMEOUT = 1800


# --- actions that the model may request
# ----------------------------------------------------------------------


class RunShell(FrozenModel):
    """Run a bash command in the persistent shell and return its output and exit code.

    The working directory, variables, functions and background jobs persist between calls. Standard input is
    empty. A command that exceeds its timeout is killed with everything it started; the output so far is
    returned. The exit code of a pipe is that of its last command. Output over 30,000 characters keeps its
    head and tail, says which lines were cut, and names a file that holds it: view that file in parts, or
    narrow the command (grep, sed -n, head).
    """

    kind: Literal["run_shell"] = "run_shell"
    command: str = Field(min_length=1, description="The command, as typed into bash. May be several lines.")
    timeout: int = Field(
        default=DEFAULT_TIMEOUT, ge=1, le=MAX_TIMEOUT, description="Seconds until the command is killed."
    )
    interactive: bool = Field(
        default=False,
        description="For a program that asks questions (a prompt, a debugger): its standard input is a terminal, "
        "and at the timeout it is left running instead of killed. Set a short timeout, read the prompt, then "
        "answer with send_input.",
    )


Key = Literal["ctrl-c", "ctrl-d", "kill"]


class SendInput(FrozenModel):
    """Type into the interactive command that run_shell left running, and return its new output.

    Returns when the command ends, or after the timeout with the command still running. With neither text nor
    key it only waits. run_shell is refused until the command has ended.
    """

    kind: Literal["send_input"] = "send_input"
    text: str = Field(
        default="", max_length=4000, description="One or more lines to type. Enter is pressed after them."
    )
    key: Key | None = Field(
        default=None,
        description="Pressed after the text: ctrl-c interrupts, ctrl-d ends the input, kill ends a command that "
        "does not respond, with everything it started.",
    )
    timeout: int = Field(
        default=5, ge=1, le=MAX_TIMEOUT, description="Seconds to wait for the end of the command."
    )


class RunPython(FrozenModel):
    """Run Python code in the sandbox's IPython session and return its output, its result and its images.

    Variables, imports and functions persist between calls, as in a notebook. An imported module therefore
    keeps its old code after you edit its file, until importlib.reload. The session starts in the repository's
    root. A line that begins with ! runs in a shell. await works at the top level, asyncio.run does not. Open
    figures and displayed images are returned, at most 4. input() and debuggers fail, because there is no
    standard input. Code that exceeds its timeout is interrupted, and the processes that it started are
    killed; if it ignores the interrupt, the session is restarted, and the result says that all definitions
    are lost. Output over 30,000 characters keeps its head and tail; the result names a file that holds all of
    it.
    """

    kind: Literal["run_python"] = "run_python"
    code: str = Field(min_length=1, description="One cell of Python, as typed into IPython.")
    timeout: int = Field(
        default=DEFAULT_TIMEOUT, ge=1, le=MAX_TIMEOUT, description="Seconds until the code is interrupted."
    )


class ViewFile(FrozenModel):
    """Show a text file with line numbers, at most 400 lines at a time, or list a directory.

    A PDF, Word, PowerPoint or Excel file or a notebook is converted to Markdown. For an image, an audio file
    or a video, the result gives only its kind and size. If the file continues, the last line of the result
    names the next range to request.
    """

    kind: Literal["view_file"] = "view_file"
    path: str = Field(
        min_length=1, description="File or directory, relative to the repository root or absolute."
    )
    start: int = Field(default=1, ge=1, description="First line to show.")
    end: int | None = Field(
        default=None, ge=1, description="Last line to show; at most 400 lines from start."
    )


class SearchCode(FrozenModel):
    """Search the repository for text, find where a name is defined or used, or outline one file's
    definitions.

    Results are `path:line: text`; a definition is `path:first-last: its first line`, with the range of the
    whole definition. Files that git ignores are skipped unless path names them, and binary files always are.
    At most 200 lines are shown, spread over the matching files, with the number of matches in each.
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
        default=False, description="Search for the query literally, not as a regular expression."
    )
    ignore_case: bool = Field(default=False, description="Ignore upper and lower case in a search for text.")


class CreateFile(FrozenModel):
    """Create a new file with the given content. Fails if the file exists: use replace_text to change it."""

    kind: Literal["create_file"] = "create_file"
    path: str = Field(min_length=1, description="New file, relative to the repository root.")
    content: str = Field(description="The complete content of the file.")


class ReplaceText(FrozenModel):
    """Replace one piece of text in a file. `old` must occur exactly once, so include enough lines around it.

    Returns the diff of the edit. A syntax error that the edit leaves in a Python or JavaScript file is
    reported with its line.
    """

    kind: Literal["replace_text"] = "replace_text"
    path: str = Field(min_length=1, description="File, relative to the repository root or absolute.")
    old: str = Field(
        min_length=1, description="The text to replace, with its exact whitespace, without line numbers."
    )
    new: str = Field(description="The text to put in its place; empty to delete.")


class InsertText(FrozenModel):
    """Insert text after a line of a file. Returns the diff of the edit."""

    kind: Literal["insert_text"] = "insert_text"
    path: str = Field(min_length=1, description="File, relative to the repository root or absolute.")
    line: int = Field(ge=0, description="Insert after this line; 0 inserts at the top of the file.")
    text: str = Field(min_length=1, description="The text to insert, one or more whole lines.")


class UndoEdit(FrozenModel):
    """Undo the last edit that create_file, replace_text or insert_text made to a file."""

    kind: Literal["undo_edit"] = "undo_edit"
    path: str = Field(min_length=1, description="File, relative to the repository root or absolute.")


# --- actions that only Patchwright itself requests
# ------------------------------------------------------------


class Execute(FrozenModel):
    """Run one program outside the persistent shell. No shell interprets `argv`."""

    kind: Literal["execute"] = "execute"
    argv: tuple[str, ...] = Field(min_length=1)
    cwd: str | None = None
    """Working directory, absolute or relative to the work tree. None: the work tree."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables added to the sandbox's own environment."""
    timeout: int = Field(default=DEFAULT_TIMEOUT, ge=1, le=MAX_TIMEOUT)
    """Seconds until the whole process group is killed."""


class RunShellWithSecrets(FrozenModel):
    """Run a shell command with secret environment variables that only this command and its children see."""

    kind: Literal["run_shell_with_secrets"] = "run_shell_with_secrets"
    shell: RunShell
    secret_env: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str]


class StartProcess(FrozenModel):
    """Start a program that exchanges lines with the host (`ProcessExchange`). Replaces a program of the same
    name.
    """

    kind: Literal["start_process"] = "start_process"
    name: str = Field(min_length=1, max_length=100)
    argv: tuple[str, ...] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    """Variables added to the sandbox's own environment."""


class ProcessExchange(FrozenModel):
    """Write lines to a started program, and read the lines that it has printed since the last exchange."""

    kind: Literal["process_exchange"] = "process_exchange"
    name: str
    lines: bytes = Field(default=b"", max_length=4 << 20)
    wait_seconds: float = Field(default=1.0, ge=0, le=20)
    """Seconds to wait for the first line."""


class Interrupt(FrozenModel):
    """Kill the command that a host process left running when it died. Does not wait for that command to end."""

    kind: Literal["interrupt"] = "interrupt"


class FingerprintTree(FrozenModel):
    """Return a fingerprint of the work tree. An equal fingerprint means that nothing was changed."""

    kind: Literal["fingerprint_tree"] = "fingerprint_tree"


class ReadBytes(FrozenModel):
    """Read part of a file as bytes."""

    kind: Literal["read_bytes"] = "read_bytes"
    path: str
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=1 << 20, ge=1, le=4 << 20)
    """Bytes."""


class WriteBytes(FrozenModel):
    """Write or append bytes to a file. Missing parent directories are created."""

    kind: Literal["write_bytes"] = "write_bytes"
    path: str
    content: bytes = Field(max_length=4 << 20)
    append: bool = False


class HostReply(FrozenModel):
    """The host's reply to the `HostRequest` of a running cell. The cell waits for this reply and then
    continues.
    """

    kind: Literal["host_reply"] = "host_reply"
    text: str = Field(max_length=200_000)
    failed: bool = False
    """True if the request failed; `text` is then the reason."""
    timeout: int = Field(default=DEFAULT_TIMEOUT, ge=1, le=MAX_TIMEOUT)
    """Seconds until the cell is interrupted."""


class UseBrowser(FrozenModel):
    """Run browser calls (`runtime/browser/action_space.py`), one per line, in the sandbox's browser.

    Stops at the first call that fails. Without calls it only takes a snapshot of the page.
    """

    kind: Literal["use_browser"] = "use_browser"
    code: str = Field(default="", max_length=100_000)
    allowed_calls: tuple[str, ...] = ()
    """Names of the permitted calls. Any other call is refused before the first one runs."""
    snapshot: SnapshotOptions = SnapshotOptions()


SandboxAction = Annotated[
    RunShell
    | RunShellWithSecrets
    | SendInput
    | RunPython
    | HostReply
    | UseBrowser
    | ViewFile
    | SearchCode
    | CreateFile
    | ReplaceText
    | InsertText
    | UndoEdit
    | Execute
    | StartProcess
    | ProcessExchange
    | Interrupt
    | FingerprintTree
    | ReadBytes
    | WriteBytes,
    Field(discriminator="kind"),
]
